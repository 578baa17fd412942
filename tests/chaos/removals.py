"""Removals before, between, after and beside the events of their job, said again and again: no ghost anywhere."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

from broker.rules.event import Finish, Place, Remove, RemovePair, Report, Start, Submit
from broker.rules.key import Key
from tests.chaos.checks import in_order, lists_agree
from tests.chaos.crowd import ORIGINS, Crowd
from tests.chaos.run import row

#: So many jobs live at a time.
GROUP = 125
#: One job in so many comes again after its removal, in a new generation: that one stays.
AGAIN_EACH = 10
WHEN = ("before", "between", "after", "beside")


@row("removals", long=5_000, short=250)
def removals(run):
    """Each job is removed at some point, and everything said of it is said again: only what came anew is listed."""
    with run.stack() as stack, Crowd(run, stack) as crowd, following(stack) as early:
        fates = [make_fate(run.chance, stack.broker, number) for number in range(run.count)]
        middle = None
        for begun in range(0, run.count, GROUP):
            if middle is None and begun * 2 >= run.count - GROUP:
                middle = stack.broker.watch()
                middle.snapshot()
            live_through(crowd, stack.broker, fates[begun : begun + GROUP])
        early.stop()
        late = stack.broker.watch()
        entries = sum(in_order(stack.broker, origin) for origin in stack.broker.origins())
        lists_agree(stack, early.watcher, middle, late)
        only_these(stack.broker, {fate.key for fate in fates if fate.comes_again})
        for watcher in (middle, late):
            watcher.close()
        told = Counter(f"{fate.what}, removed {fate.when}" for fate in fates)
        return {"entries": entries} | dict(sorted(told.items()))


@dataclass
class Fate:
    """One job: what is said of it in order, its removal, and after which of its events that comes."""

    key: Key
    what: str
    when: str
    events: list
    removal: object
    after: int = 0
    comes_again: bool = False


def make_fate(chance, broker, number):
    key = Key(ORIGINS[number % len(ORIGINS)], "e", chance.choice(("", "r")), f"x{number}")
    # Clocks of several clients differ by as much as reading them took: nobody removes a job before it was made.
    created_at = broker.store.clock.now() - 5_000
    what = chance.choice(tuple(KINDS))
    events = KINDS[what](key, created_at)
    when = chance.choice(WHEN)
    after = {"before": 0, "between": chance.randrange(1, len(events))}.get(when, len(events))
    more = {
        "removed_at": chance.choice((0, created_at, created_at + 20)),
        "force": chance.random() < 0.3,
        "event_id": chance.choice(("", f"remove-{number}")),
    }
    comes_again = number % AGAIN_EACH == 0
    if comes_again and not more["event_id"]:
        # A bare one speaks of whatever is listed when it comes: said again later, it means what came anew.
        more["removed_at"] = created_at
    removal = (
        Remove(key=key, **more)
        if chance.random() < 0.5
        else RemovePair(origin=key.origin, id=key.id, **more)
    )
    return Fate(key, what, when, events, removal, after, comes_again)


def numbered(key, created_at):
    more = {"key": key, "created_at": created_at}
    return [
        Report(state="queued", seq=1, **more),
        Report(state="running", node="a", seq=2, **more),
        Report(state="running", node="b", seq=3, **more),
        Report(state="completed", node="b", seq=4, **more),
    ]


def unnumbered(key, created_at):
    more = {"key": key, "created_at": created_at}
    return [
        Report(state="queued", **more),
        Report(state="running", node="a", **more),
        Report(state="failed", node="a", **more),
    ]


def named(key, created_at):
    more = {"key": key, "created_at": created_at, "resync": True}
    return [
        Report(state="running", node="a", event_id="1", **more),
        Report(state="running", node="b", event_id="2", **more),
        Report(state="completed", node="b", event_id="3", **more),
    ]


def submitted(key, created_at):
    names = {"key": key, "created_at": created_at, "attempt": 1, "holder": f"h-{key.id}"}

    def place(broker):
        record = broker.view.get(key)
        return Place(key=key, node="a", rev=record.rev if record else "0-0", term=1, event_id="p")

    return [
        Submit(key=key, created_at=created_at, digest="d", event_id="s"),
        place,
        Start(**names, node="a", worker="w", event_id="b"),
        Finish(**names, state="completed", result="1", event_id="f"),
    ]


KINDS = {
    "numbered": numbered,
    "unnumbered": unnumbered,
    "named": named,
    "submitted": submitted,
}


def live_through(crowd, broker, fates):
    """First part and removal and second part; then what comes anew; and then all of the old again, in any order."""
    crowd.tell(fate.events[: fate.after] for fate in fates if fate.when != "beside")
    crowd.tell(
        story
        for fate in fates
        for story in (
            [fate.removal],
            [fate.removal] * 2,
            fate.events if fate.when == "beside" else [],
        )
    )
    crowd.tell(fate.events[fate.after :] for fate in fates if fate.when != "beside")
    # Who was asked for while it ran is gone with its last word; beside each other, that may have come first.
    crowd.tell([fate.removal] for fate in fates)
    now = broker.store.clock.now()
    crowd.tell(
        [Report(key=fate.key, created_at=now + 60_000, state="running", node="c", seq=1)]
        for fate in fates
        if fate.comes_again
    )
    again = [
        story for fate in fates for story in ([fate.removal], *([event] for event in fate.events))
    ]
    crowd.tell(again * 2)


def only_these(broker, keys):
    """Of records, indexes and what belongs to a job, nothing but theirs is left."""
    client = broker.store.client
    for origin in ORIGINS:
        mine = {key for key in keys if key.origin == origin}
        books = broker.store.keys.of(origin)
        found = {
            "live": [
                Key.of_job(origin, name.decode()) for name in client.zrange(books.live, 0, -1)
            ],
            "ids": [
                Key.of_member(origin, name.decode()) for name in client.zrange(books.ids, 0, -1)
            ],
        }
        for what in ("job", "spec", "result", "out"):
            prefix = books.of_job("").all[("job", "refused", "spec", "result", "out").index(what)]
            names = client.scan_iter(f"{prefix}*", count=1_000)
            found[what] = [Key.of_job(origin, name.decode().removeprefix(prefix)) for name in names]
        for what, listed in found.items():
            if what in ("job", "live", "ids"):
                assert set(listed) == mine, f"{what} of {origin}: {set(listed) ^ mine}"
            else:
                assert not listed, f"{what} of {origin}: {listed}"
        for index in (books.done, books.ready, books.delayed):
            assert client.zrange(index, 0, -1) == [], index


class Follower:
    """A watcher that follows all the time, on a thread."""

    def __init__(self, watcher):
        self.watcher = watcher
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.follow)

    def follow(self):
        while not self.ended.is_set():
            self.watcher.changes(50)

    def stop(self):
        self.ended.set()
        self.thread.join()


@contextmanager
def following(stack):
    with stack.broker.watch() as watcher:
        watcher.snapshot()
        follower = Follower(watcher)
        follower.thread.start()
        try:
            yield follower
        finally:
            follower.stop()
