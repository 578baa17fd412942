"""What must hold after a run, when all is at rest. Each check names what it found, all of it."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

from broker.rules.record import projection
from broker.rules.replay import rev_order
from broker.store.log import BEGIN
from tests.chaos.stack import until

#: What RQ keeps of a worker, and of a look at a queue, for minutes.
RQ_FOR_A_WHILE = re.compile(r"rq:(worker:[^:]+|clean_registries:.+|clean_groups)")


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
    """Records, the fold of each whole log, and what each watcher holds are the same list, once all is at rest."""
    for origin in stack.broker.origins():
        with suppress(AssertionError):
            # Once a second a watcher looks for new origins.
            until(lambda o=origin: not _disagreement(stack.broker, o, watchers), 30, every=0.1)
        found = _disagreement(stack.broker, origin, watchers)
        assert not found, found


def _disagreement(broker, origin, watchers):
    """Who holds another list of the origin than its records are, if anybody does."""
    here = {job.key: projection(job.record) for job in broker.jobs(origin=origin)}
    if broker.log(origin).position().floor == BEGIN:
        told = {key: projection(record) for key, record in broker.replay(origin).items()}
        if told != here:
            return f"the log of {origin} tells another list: {_differing(told, here)}"
    for watcher in watchers:
        while watcher.changes(0):
            pass
        if origin not in watcher.cursor:
            return f"a watcher does not know {origin}"
        held = {k: projection(r) for k, r in watcher.records.items() if k.origin == origin}
        if held != here:
            return f"a watcher of {origin} holds another list: {_differing(held, here)}"
    return ""


def nothing_left(stack, seconds=30.0):
    """leak = what outlives the jobs: RQ's notes on attempts, entries that wait, consumers, temporary keys: 0."""
    try:
        until(lambda: not _left(stack), seconds, every=0.2)
    except AssertionError:
        found = _left(stack)
        assert not found, f"{len(found)} left behind: {found[:10]}"


def _left(stack):
    client = stack.broker.store.client
    found = _left_in_rq(client) + _left_in_broker(stack.broker.store)
    for origin in stack.broker.origins():
        keys = stack.broker.store.keys.of(origin)
        found += [
            f"{name}: {n}" for name in (keys.ready, keys.delayed) if (n := client.zcard(name))
        ]
        for group in client.xinfo_groups(keys.log) if client.exists(keys.log) else ():
            for what, bound in (("pending", 0), ("consumers", 1)):
                if group[what] > bound:
                    found.append(f"{group['name']} of {origin}: {group[what]} {what}")
    found += [
        f"{worker.name} says it runs {worker.job}"
        for worker in stack.broker.workers()
        if worker.job and worker.silent_ms < stack.budgets.suspect_ms
    ]
    return found


def _left_in_rq(client):
    """Whatever RQ keeps but its lists of queues and workers, and what expires with a worker."""
    names = [name.decode() for name in client.scan_iter("rq:*", count=1_000)]
    return [
        name
        for name in names
        if name not in ("rq:queues", "rq:workers")
        and not name.startswith("rq:workers:")
        and not (RQ_FOR_A_WHILE.fullmatch(name) and client.ttl(name) != -1)
    ]


def _left_in_broker(store):
    """Whatever is in the namespace and no key of ours; a lease that never ends."""
    names = [
        name.decode() for name in store.client.scan_iter(f"{store.keys.namespace}:*", count=1_000)
    ]
    found = [name for name in names if store.keys.read(name) is None]
    leases = [name for name in names if name.startswith(store.keys.leader(""))]
    return found + [f"{name} never ends" for name in leases if store.client.ttl(name) == -1]


def every_slot_serves(stack, engine, slots):
    """leak = a slot that nobody is given any more: as many jobs as there are slots run at once."""
    until(lambda: len([one for one in stack.beating() if one.engine == engine]) == slots, 60)
    keys = [job.key for job in stack.broker.submit_many(engine, [60] * slots)]

    def run_at_once():
        return all(record.holder for record in stack.broker.view.get_many(keys))

    until(run_at_once, 30)
    for key in keys:
        stack.broker.cancel(key)
    all_ended(stack, keys)


def all_registered_live(stack, seconds=240.0):
    """RQ's lists hold no worker that is gone: its own keys of one end two minutes after it, and then it is unlisted."""
    client = stack.broker.store.client

    def gone():
        listed = {name for key in client.scan_iter("rq:workers*") for name in client.smembers(key)}
        return [name for name in listed if not client.exists(name)]

    living = {worker.name for worker in stack.beating()}
    until(lambda: len(client.smembers("rq:workers")) == len(living) and not gone(), seconds, 1.0)


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
