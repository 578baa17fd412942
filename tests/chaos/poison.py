"""Jobs that kill whoever runs them, and jobs that keep everything else in their process from running."""

from __future__ import annotations

import time
from collections import Counter

from tests.chaos.checks import all_hold
from tests.chaos.run import row
from tests.chaos.stack import until

NODES = ("node-a", "node-b")
WAYS = ("exit", "exit0", "kill", "parent", "memory", "segfault")
#: At the third death of one job nobody runs it again.
DEATHS_MAX = 3
#: Neighbours for each deadly job, and how long one works, in seconds.
NEIGHBOURS, WORK = 4, 0.2


@row("deadly", long=50, short=6)
def deadly(run):
    """A job that kills its worker is poison after its third death; neighbours' jobs and workers go on unharmed."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        stack.serve()
        slots = 3 if run.count > len(WAYS) else 2
        supervisors = stack.workers(["deadly", "work"], NODES, slots=slots)
        watcher.snapshot()
        ways, neighbours = {}, []
        for turn in run.turns("deadly jobs"):
            way = WAYS[turn % len(WAYS)]
            attempts = run.chance.randint(DEATHS_MAX, 10)
            ways[stack.broker.submit("deadly", way, attempts=attempts).key] = way
            made = stack.broker.submit_many("work", [WORK] * NEIGHBOURS, attempts=1)
            neighbours += [job.key for job in made]
        stack.ended([*ways, *neighbours], 60 + 12 * run.count)
        after = [
            job.key for job in stack.broker.submit_many("deadly", [""] * run.count, attempts=1)
        ]
        records = all_hold(stack, [*ways, *neighbours, *after], watcher)
        effects = stack.effects.begun()
        for key, way in ways.items():
            record = records[key]
            ended = record.state, record.reason, record.deaths, record.tries
            assert ended == ("failed", "poison", DEATHS_MAX, DEATHS_MAX), f"{way}: {record}"
            begun = sum(count for (name, _), count in effects.items() if name == str(key))
            assert begun == DEATHS_MAX, f"{way}: its effect happened {begun} times"
        for key in [*neighbours, *after]:
            assert records[key].state == "completed", f"harmed: {records[key]}"
            assert effects[str(key), 1] == 1, f"{key}: {records[key]}"
        for supervisor in supervisors:
            until(lambda p=supervisor: len(stack.slots(p)) == 2 * slots, 60)
        return {
            "deadly": dict(Counter(ways.values())),
            "neighbours": len(neighbours),
            "served after": len(after),
        }


@row("blocked", long=20, short=2)
def blocked(run):
    """A job that lets nothing else in its process run, for three budgets: never guessed, never in doubt, run once."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        stack.serve()
        stack.worker("blocked", node="node-a", slots=2)
        stack.worker("blocked", node="node-b", slots=2, inline=True)
        watcher.snapshot()
        seconds = 3 * stack.budgets.guess_ms / 1_000
        # As many on each node: with and without a process for each job.
        keys = [job.key for job in stack.broker.submit_many("blocked", [seconds] * (2 * run.count))]
        doubted, guessed = Doubts(stack.awake), set()

        def ended():
            jobs = stack.broker.jobs()
            doubted.look(job.key for job in jobs if job.suspect)
            guessed.update(job.key for job in jobs if job.record.inferred)
            return all(job.record.ended for job in jobs)

        until(ended, 60 + 3 * seconds * run.count, every=0.05)
        records = all_hold(stack, keys, watcher)
        assert not guessed, f"given up though their workers lived: {guessed}"
        # Where nothing beats for it, a job is in doubt for all its work but the first moments; a machine that stands
        # still lets a beat be late, and it is said as soon as anything runs again.
        silent_ms = 1_000 * seconds - stack.budgets.suspect_ms
        assert doubted.longest < silent_ms / 2_000, f"in doubt though it lived: {doubted.longest} s"
        rules = Counter(entry.rule for entry in stack.broker.log("desk").entries())
        assert not rules["guess_applied"], rules
        for key, record in records.items():
            run_once = (record.state, record.attempt, record.tries) == ("completed", 1, 1)
            assert run_once, f"{key}: {record}"
        nodes = Counter(record.node for record in records.values())
        assert set(nodes) == set(NODES), nodes
        told = {"jobs": dict(nodes), "budgets": 3, "longest doubt, s": round(doubted.longest, 2)}
        return told | stack.awake.told()


class Doubts:
    """For how long on end any job was seen in doubt, from look to look; not while the machine stood still."""

    def __init__(self, awake):
        self.longest = 0.0  #: seconds
        self._awake = awake
        self._since = {}

    def look(self, keys):
        now = time.monotonic()
        self._since = {key: self._since.get(key, now) for key in keys}
        doubts = (self._awake.between(since, now) for since in self._since.values())
        self.longest = max([self.longest, *doubts])
