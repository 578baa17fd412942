"""What must hold after a run, when all is at rest. Each check names what it found, all of it."""

from __future__ import annotations

from collections import Counter

from broker.rules.record import projection
from broker.rules.replay import rev_order
from broker.store.log import BEGIN
from tests.chaos.stack import until


def all_ended(stack, keys, seconds=120.0):
    """lost = accepted and never terminal: 0. Gives the records."""
    try:
        found = stack.ended(keys, seconds)
    except AssertionError:
        found = dict(zip(keys, stack.broker.view.get_many(keys), strict=True))
    lost = {str(key): record for key, record in found.items() if not (record and record.ended)}
    assert not lost, f"{len(lost)} lost, such as {next(iter(lost.items()))}"
    return found


def none_twice(stack):
    """twice = an attempt that had its effect more than once: 0."""
    twice = {name: count for name, count in stack.effects.begun().items() if count > 1}
    assert not twice, f"{len(twice)} ran twice under one attempt: {twice}"


def no_ghosts(stack, keys):
    """ghost = listed, and never accepted or explained by its log: 0."""
    listed = {job.key for job in stack.broker.jobs()}
    ghosts = listed - set(keys)
    assert not ghosts, f"{len(ghosts)} ghosts: {sorted(map(str, ghosts))[:5]}"


def in_order(broker, origin):
    """Each log tells a legal story of each job: no step back, each attempt started once, nothing after the end.

    For a whole log. Gives how many entries it read.
    """
    last, ended, attempts, starts = (0, 0), {}, {}, Counter()
    count = 0
    for entry in broker.log(origin).entries():
        count += 1
        assert rev_order(entry.rev) > last, f"{entry.rev} after {last}"
        last = rev_order(entry.rev)
        record = entry.record
        if record is None:
            ended.pop(entry.job, None)
            attempts.pop(entry.job, None)
            continue
        assert entry.job not in ended, f"{entry.job}: {entry.rule} after its end"
        assert record.attempt >= attempts.get(entry.job, 0), f"{entry.job}: an attempt went back"
        attempts[entry.job] = record.attempt
        if entry.rule == "started":
            starts[entry.job, record.created_at, record.attempt] += 1
        if record.ended:
            ended[entry.job] = entry.rev
    again = {name: n for name, n in starts.items() if n > 1}
    assert not again, f"started twice: {again}"
    return count


def lists_agree(stack, *watchers):
    """Records, the fold of each whole log, and what each watcher holds are the same list."""
    broker = stack.broker
    for origin in broker.origins():
        records = {job.key: job.record for job in broker.jobs(origin=origin)}
        here = {key: projection(record) for key, record in records.items()}
        if broker.log(origin).position().floor == BEGIN:
            told = {key: projection(record) for key, record in broker.replay(origin).items()}
            assert told == here, f"the log of {origin} tells another list: {_differing(told, here)}"
        for watcher in watchers:
            until(lambda watcher=watcher: not watcher.changes(0), 30)
            held = {k: projection(r) for k, r in watcher.records.items() if k.origin == origin}
            assert held == here, (
                f"a watcher of {origin} holds another list: {_differing(held, here)}"
            )


def nothing_left(stack, seconds=30.0):
    """leak = what outlives the jobs: RQ's keys of attempts, queue entries, pending entries, temporary keys: 0."""
    client = stack.broker.store.client

    def left():
        found = []
        for kind in ("job", "executions", "execution", "results", "wip", "failed", "finished"):
            found += client.scan_iter(f"rq:{kind}:*", count=1_000)
        found += client.scan_iter("rq:queue:*", count=1_000)
        found += client.scan_iter("*:damaged", count=1_000)
        for origin in stack.broker.origins():
            keys = stack.broker.store.keys.of(origin)
            found += [
                f"{name}: {n}" for name in (keys.ready, keys.delayed) if (n := client.zcard(name))
            ]
            if client.exists(keys.log):
                found += [
                    f"{group['name']} of {origin}: {group['pending']} pending"
                    for group in client.xinfo_groups(keys.log)
                    if group["pending"]
                ]
        found += [
            f"{worker.name} says it runs {worker.job}"
            for worker in stack.broker.workers()
            if worker.job and worker.silent_ms < stack.budgets.suspect_ms
        ]
        return found

    try:
        until(lambda: not left(), seconds, every=0.2)
    except AssertionError:
        found = left()
        assert not found, f"{len(found)} left behind: {found[:10]}"


def all_hold(stack, keys, *watchers, seconds=120.0):
    """Every check of a run that lost nothing on purpose; gives the records by key."""
    found = all_ended(stack, keys, seconds)
    none_twice(stack)
    no_ghosts(stack, keys)
    for origin in stack.broker.origins():
        in_order(stack.broker, origin)
    lists_agree(stack, *watchers)
    nothing_left(stack)
    return found


def _differing(one, other):
    names = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    return f"{len(names)}, such as {names[0]}: {one.get(names[0])} / {other.get(names[0])}"
