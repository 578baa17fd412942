"""One job for people, as `name  value` lines. Imports nothing slow: `broker show` must start at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.cli.output import Format, ago, instant, print_object
from broker.rules.record import SUBMITTED
from broker.rules.state import QUEUED, RUNNING
from broker.text import to_json

_TIMES = ("created_at", "placed_at", "started_at", "completed_at", "due", "guessed_at", "last_seen")
#: Told by the key and the state already, or only of use to programs.
_LEFT_OUT = ("origin", "engine", "run", "id", "inferred", "suspect", "holder", "sightings")


def print_job(job: dict[str, Any], output: Format) -> None:
    """What `Catalog.show` gives."""
    print_object(job, output, job_lines(job))


def shown_state(job: dict[str, Any]) -> str:
    """The state for people: a guess ends in `~`, a doubt in `?`."""
    return str(job["state"]) + ("~" if job["inferred"] else "?" if job.get("suspect") else "")


def error_of(job: dict[str, Any]) -> str:
    """What went wrong. On a job that runs, or waits again, the record keeps the word on the last try: not its own."""
    said = job["error"] or job["reason"]
    if not said or not is_live(job):
        return str(said or "")
    return f"last try: {said}" if job["state"] == QUEUED else ""


def is_live(job: dict[str, Any]) -> bool:
    """Whether it is one of ours that goes on, and no guess: nothing that went wrong is its current try's."""
    return job["kind"] == SUBMITTED and job["state"] in (QUEUED, RUNNING)


def job_lines(job: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """What `Catalog.show` gives, as names and values."""
    yield "key", job["key"]
    yield "state", shown_state(job)
    for name, value in job.items():
        if name in ("key", "state", *_LEFT_OUT):
            continue
        if name in ("error", "reason") and is_live(job):
            yield name, error_of(job) if name == "error" else None
        elif name in _TIMES:
            yield name, f"{instant(value)} ({ago(value)})" if value else None
        elif name == "timeout":
            yield name, f"{value / 1000:g} s" if value else None
        elif name in ("payload", "extras"):
            yield name, None if value is None else to_json(value)
        elif name == "refused":
            yield name, value and f"{sum(each.get('count', 1) for each in value)} (broker why)"
        else:
            yield name, value or None
