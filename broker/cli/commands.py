"""The commands by name: where each lives and what it is for. Imports nothing, so that `broker --help` is instant."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A function of the command's own name in `module`, and its line in the overview."""

    module: str
    help: str


#: In the order and the groups of the overview.
GROUPS: dict[str, dict[str, Command]] = {
    "Run a fleet": {
        "up": Command("broker.cli.up", "Everything on one machine, on a Redis of its own."),
        "serve": Command("broker.cli.serve", "The broker's roles, on the Redis of REDIS_URL."),
        "worker": Command("broker.cli.worker", "Worker processes for this node's engines."),
    },
    "Jobs": {
        "submit": Command("broker.cli.submit", "Hand in a job, or one a line of a file."),
        "report": Command("broker.cli.report", "Tell what happened to jobs that run elsewhere (JSONL)."),
        "jobs": Command("broker.cli.jobs", "List jobs."),
        "show": Command("broker.cli.show", "All that is known of a job."),
        "why": Command("broker.cli.why", "What decided its state, what was refused, what would change it."),
        "wait": Command("broker.cli.wait", "Wait for a job's end."),
        "result": Command("broker.cli.wait", "Print a job's result."),
        "cancel": Command("broker.cli.change", "Ask for a job's end, or for that of all that fit."),
        "retry": Command("broker.cli.change", "Hand an ended job in again, as a new one; or all that fit."),
        "remove": Command("broker.cli.change", "Take a job off the list, for good; or all that fit."),
    },
    "Logs": {
        "log": Command("broker.cli.log", "What happened at an origin, in order."),
        "replay": Command("broker.cli.log", "The job list as the log tells it, now or at an earlier entry."),
        "groups": Command("broker.cli.groups", "Who subscribes, how far behind."),
    },
    "Fleet": {
        "top": Command("broker.cli.top", "Overview, nodes and jobs on a terminal, live."),
        "nodes": Command("broker.cli.nodes", "List nodes: slots, load, last beat, flags."),
        "node": Command("broker.cli.nodes", "Say what is to become of a node."),
        "trust": Command(
            "broker.cli.trust",
            "Who this node is, whom it trusts, and what it told of that.",
        ),
        "doctor": Command("broker.cli.doctor", "Look for what is wrong with Redis and the fleet."),
    },
}  # fmt: skip

COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

EPILOGUE = """\
KEY is origin/engine/run/id, or any end of it that only one job has: 7, ollama/7.
Listings take -o table|json|jsonl. Redis is REDIS_URL, else a running `broker up`, else port 6379.
Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 refused, 5 timed out, 6 Redis unreachable, 7 the job failed,
8 a peer's word could not be verified."""


def overview() -> str:
    """What `broker --help` prints."""
    lines = [
        "Usage: broker COMMAND [ARGUMENTS]",
        "",
        "A job broker for a fleet of machines whose job list is true.",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:8} {command.help}" for name, command in group.items()]
    return "\n".join([*lines, "", "broker COMMAND --help tells more.", "", EPILOGUE])
