"""Workers that stand still and go on as if nothing had happened: what was given to others meanwhile stays theirs."""

from __future__ import annotations

import signal
import time
from collections import Counter

from tests.chaos.checks import all_hold
from tests.chaos.dying import FROZEN, Orders
from tests.chaos.run import row
from tests.chaos.stack import ENGINES, children, family, kill, until

NODES = ("node-a", "node-b")
#: What a late holder hears: the attempt was given up, or somebody else has finished the job.
LATE = {"stale_attempt", "terminal"}
#: How long a job works that is not to end by itself, in seconds.
LONG_SECONDS = 120.0


@row("freeze-worker", long=50, short=3)
def freeze_worker(run):
    """SIGSTOP of a worker with its horse for three budgets, then SIGCONT: its late word is refused, by name."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        stack.serve()
        engines = ["deaf", "held", "work"]
        stack.workers(engines, NODES, imports=(ENGINES, "tests.chaos.dying_worker"))
        watcher.snapshot()
        keys, counts = [], Counter()
        for turn in run.turns("freezes"):
            act = (_speaks_late, _is_stopped, _starts_late)[turn % 3]
            keys.append(act(run, stack))
            counts[act.__name__.strip("_")] += 1
            if turn % 5 == 4:
                keys.append(_wakes_in_time(run, stack))
                counts["wakes_in_time"] += 1
        all_hold(stack, keys, watcher)
        return {"frozen": dict(counts)}


def _speaks_late(run, stack):
    """It ends its work as soon as it wakes: too late."""
    go = _go(stack)
    key, worker = _running(stack, "held", str(go))
    with Frozen(stack, [worker]) as frozen:
        until(lambda: stack.broker.get(key).attempt == 2)
        frozen.last(3)
        go.touch()
    [refused] = until(
        lambda: [one for one in stack.broker.why(key).refusals if one.event == "finish"]
    )
    assert (refused.rule in LATE, refused.attempt, refused.state, refused.by) == (
        True, 1, "completed", worker.name,
    ), refused  # fmt: skip
    return _stands(stack, key)


def _is_stopped(run, stack):
    """It has much left to do when it wakes: its next beat tells that the attempt is no longer its own."""
    key, worker = _running(stack, run.chance.choice(("deaf", "work")), LONG_SECONDS)
    with Frozen(stack, [worker]) as frozen:
        horses = frozen.horses
        until(lambda: stack.broker.get(key).attempt == 2)
        frozen.last(3)
    # Asked at the first beat, killed after the grace where it does not listen: long before it ends by itself.
    until(lambda: not set(children(worker.pid)) & set(horses), LONG_SECONDS / 4)
    assert not [one for one in stack.broker.why(key).refusals if one.event == "finish"]
    # The second attempt has begun elsewhere: one that only waits would be given up with the cancel.
    until(lambda: stack.effects.begun(str(key))[str(key), 2])
    assert stack.broker.cancel(key).applied
    record = stack.ended([key])[key]
    assert (record.state, record.attempt) == ("cancelled", 2), record
    return key


def _starts_late(run, stack):
    """It took the hand-off, and says start when the job has long been taken back and run elsewhere."""
    del run
    Orders(stack.folder / "orders").give("taken", FROZEN)
    key = stack.broker.submit("work", 0.1).key
    until(lambda: _froze(stack, key))
    stack.ended([key])
    kill(_froze(stack, key)[0].pid, signal.SIGCONT)
    until(lambda: stack.broker.why(key).refusals)
    until(lambda: stack.says(f"job {key} attempt 1: not started (terminal)"))
    [refused] = stack.broker.why(key).refusals
    assert (refused.event, refused.rule, refused.attempt) == ("start", "terminal", 1), refused
    record = stack.broker.get(key)
    assert (record.state, record.attempt, record.tries) == ("completed", 2, 1), record
    assert set(stack.effects.begun(str(key))) == {(str(key), 2)}
    return key


def _froze(stack, key):
    effects = stack.effects.read()
    return [one for one in effects if one.what.startswith("froze-") and one.key == str(key)]


def _wakes_in_time(run, stack):
    """It wakes after the guess and before the grace is over: its next beat contradicts the guess."""
    go = _go(stack)
    key, worker = _running(stack, "held", str(go))
    with Frozen(stack, [worker]):
        until(lambda: stack.broker.get(key).inferred)
        time.sleep(run.chance.uniform(0, _budget(stack)))
    go.touch()
    record = stack.ended([key])[key]
    assert (record.state, record.attempt, record.worker) == ("completed", 1, worker.name), record
    return key


def _stands(stack, key):
    """The second attempt's word is the job's end, and its result."""
    record = stack.ended([key])[key]
    assert (record.state, record.attempt, record.tries) == ("completed", 2, 2), record
    assert stack.broker.result(key) == {"attempt": 2}
    return key


def _go(stack):
    """A file that lets a held job go, once it is there."""
    return stack.folder / f"go-{time.monotonic_ns()}"


def _running(stack, engine, payload):
    """A job that has begun its work, and its worker."""
    key = stack.broker.submit(engine, payload).key
    until(lambda: stack.effects.begun(str(key)))
    name = stack.broker.get(key).worker
    return key, next(seen for seen in stack.broker.workers() if seen.name == name)


def _budget(stack):
    return stack.budgets.guess_ms / 1_000


class Frozen:
    """These workers and all that they started stand still, until the end of this."""

    def __init__(self, stack, workers):
        self._stack, self._begun = stack, time.monotonic()
        self.horses = [pid for worker in workers for pid in children(worker.pid)]
        self._pids = [pid for worker in workers for pid in family(worker.pid)]

    def __enter__(self):
        for pid in self._pids:
            kill(pid, signal.SIGSTOP)
        return self

    def last(self, budgets):
        """Stay so until it has lasted for so many budgets of a guess."""
        time.sleep(max(0.0, self._begun + budgets * _budget(self._stack) - time.monotonic()))

    def __exit__(self, *exc):
        for pid in self._pids:
            kill(pid, signal.SIGCONT)


@row("frozen-fleet", long=20, short=2)
def frozen_fleet(run):
    """Most workers of two nodes stand still together, for three budgets: nobody is judged, each job runs once."""
    slots = 4 if run.count > 5 else 2
    with run.stack() as stack, stack.broker.watch() as watcher:
        stack.serve()
        stack.workers(["deaf"], NODES, slots=slots)
        watcher.snapshot()
        keys, counts = [], Counter()
        for _ in run.turns("freezes"):
            keys += _keep_busy(run, stack, slots)
            workers = _most(run, stack)
            counts[f"{len(workers)} of {2 * slots}"] += 1
            with Frozen(stack, workers) as frozen:
                frozen.last(3)
            stack.ended(keys)
        records = all_hold(stack, keys, watcher)
        judged = [
            (entry.rev, entry.job, entry.rule, entry.by, entry.record.error)
            for entry in stack.broker.log("desk").entries()
            if entry.rule in ("guess_applied", "requeued", "lost", "unplaced")
        ]
        assert not judged, f"{len(judged)} judged: {judged}"
        assert all((one.state, one.attempt) == ("completed", 1) for one in records.values())
        return {"jobs": len(keys), "frozen": dict(counts)}


def _keep_busy(run, stack, slots):
    """Jobs until most workers are seen at work: the first ones may be over before anybody looks."""
    keys = []

    def at_work():
        if not any(record.state == "queued" for record in stack.broker.view.get_many(keys)):
            works = [run.chance.uniform(0.2, 2.0) for _ in range(3 * slots)]
            keys.extend(job.key for job in stack.broker.submit_many("deaf", works))
        return sum(bool(seen.job) for seen in stack.beating()) > slots

    until(at_work)
    return keys


@row("frozen-for-long", long=5, short=1)
def frozen_for_long(run):
    """The same beyond the brake: then they are judged, others run their jobs, and what they say late is refused."""
    with run.stack() as stack, stack.broker.watch() as watcher:
        stack.serve()
        stack.workers(["held"], NODES, slots=2)
        watcher.snapshot()
        keys, least, most = [], [], []
        for _ in run.turns("freezes"):
            go = _go(stack)
            made = stack.broker.submit_many("held", [str(go)] * 4)
            keys += [job.key for job in made]
            until(lambda made=made: all(stack.effects.begun(str(job.key)) for job in made))
            looked_at, fleet = until(
                lambda: (look := (time.monotonic(), stack.beating())) and len(look[1]) == 4 and look
            )
            workers = run.chance.sample(fleet, 3)
            names = {worker.name for worker in workers}
            given_up = [job.key for job in made if job.record().worker in names]
            with Frozen(stack, workers):
                frozen_at = time.monotonic()
                until(lambda one=given_up: all(stack.broker.get(key).inferred for key in one))
                least.append(time.monotonic() - looked_at)
                most.append(stack.awake.since(frozen_at))
                until(lambda one=given_up: all(stack.broker.get(key).attempt == 2 for key in one))
                go.touch()
            for key in given_up:
                until(
                    lambda key=key: any(one.rule in LATE for one in stack.broker.why(key).refusals)
                )
                record = stack.ended([key])[key]
                story = [e for e in stack.broker.log("desk").entries() if e.job == key.job]
                assert (record.state, record.tries) == ("completed", 2), story
        all_hold(stack, keys, watcher)
        brake = stack.budgets.brake_ms / 1_000
        assert all(brake <= seconds for seconds in least), least
        assert all(seconds <= 1.5 * brake for seconds in most), most
        return {
            "jobs": len(keys),
            "judged_after": [round(one, 1) for one in most],
            "brake": brake,
        } | stack.awake.told()


def _most(run, stack):
    """More than half of the fleet."""
    fleet = stack.beating()
    return run.chance.sample(fleet, run.chance.randint(len(fleet) // 2 + 1, len(fleet)))
