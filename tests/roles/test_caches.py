"""Whoever holds something of the jobs lets go of it with their last word: a list that only grows comes to lie.

Every place that holds jobs is listed here; one that is added and is not asked is found by its annotation.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from broker import Filter, JobEvents, Resync
from broker.cli.top.feed import Feed
from broker.cli.watching import Following
from broker.client import Broker
from broker.config import settings
from broker.fleet.doubts import Doubts
from broker.roles.chronicle import Chronicle
from broker.roles.load import ENTRIES_MIN
from broker.roles.watchlist import SLACK
from broker.rules.event import Finish, Intent, Place, Remove, Report, Start, Submit
from broker.rules.history import History
from broker.rules.key import Key
from broker.rules.stopwatch import Stopwatch
from tests.roles.fleet import ORIGIN
from tests.store.readers import until

ROOT = Path(__file__).parents[2]

#: What holds jobs for longer than a call: attribute -> who is asked below.
HOLDERS = {
    "broker/store/follow.py records": "watcher",
    "broker/store/follow.py live": "watcher",
    "broker/store/watch.py records": "watcher",
    "broker/store/watch.py live": "watcher",
    "broker/store/watch.py _untold": "watcher",
    "broker/readers/shared.py records": "readers",
    "broker/rules/ring.py _changes": "readers",
    "broker/roles/office.py again": "dispatchers",
    "broker/roles/office.py _rung": "dispatchers",
    "broker/roles/load.py _records": "dispatchers",
    "broker/roles/load.py _waiting": "dispatchers",
    "broker/roles/load.py _delayed": "dispatchers",
    "broker/roles/load.py _placed": "dispatchers",
    "broker/roles/watchlist.py given_up": "sweeper",
    "broker/roles/watchlist.py _records": "sweeper",
    "broker/roles/watchlist.py _due": "sweeper",
    "broker/roles/watchlist.py _queue": "sweeper",
    "broker/roles/watchlist.py _of": "sweeper",
    "broker/roles/chronicle.py _known": "chronicle",
    "broker/rules/stopwatch.py _since": "stopwatch",
    "broker/fleet/doubts.py _seen": "doubts",
    "broker/jobs/reported.py _jobs": "producer",
    "broker/cli/top/feed.py records": "top",
    "broker/cli/watching.py records": "following",
    "broker/cli/watching.py doubted": "following",
}
#: What holds one job, for as long as it is in hand, or waited for.
ONE_JOB = {
    "workers/attempt.py _record",
    "broker/waiting/wait.py record",
    "broker/waiting/waits.py _of",
}
#: What holds the newest changes, however old: so many and no more, by count. As `History`, of which each reader knows.
BY_COUNT = {"broker/web/stream.py _kept", "broker/aio/readers.py _batch"}


def test_every_holder_of_jobs_is_asked():
    """What a class keeps of jobs says so in its annotation, which mypy holds."""
    held = re.compile(r"self\.(\w+): [^=\n]*\b(?:Key|Kind|Change|Record)\b[^=\n]* = ")
    found = {
        f"{path.relative_to(ROOT)} {name}"
        for package in ("broker", "workers")
        for path in (ROOT / package).rglob("*.py")
        for name in held.findall(path.read_text())
    }
    assert found == set(HOLDERS) | ONE_JOB | BY_COUNT


def keys_in(thing, seen=None):
    """Every key that can be reached from here through our own objects, each time that it is held."""
    seen = set() if seen is None else seen
    if isinstance(thing, Key):
        return [thing]
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type(None), History)):
        return []
    seen.add(id(thing))
    if isinstance(thing, Mapping):
        parts = [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set, frozenset, deque)):
        parts = list(thing)
    elif type(thing).__module__.split(".")[0] == "broker":
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        parts = [getattr(thing, name) for name in slots if hasattr(thing, name)]
        parts += vars(thing).values() if hasattr(thing, "__dict__") else []
    else:
        parts = []
    return [key for part in parts for key in keys_in(part, seen)]


class Life:
    """A hundred jobs at a time, in every way in which a job can come and go, each by a batch of events."""

    def __init__(self, fleet, producer):
        self.fleet = fleet
        self.producer = producer
        self.count = 0

    def say(self, events):
        self.count += len(events)
        assert {answer.outcome for answer in self.fleet.view.apply(events)} == {"applied"}

    def records(self, keys):
        return zip(keys, self.fleet.view.get_many(keys), strict=True)

    def submit(self, engine, turn, **more):
        keys = [Key(ORIGIN, engine, "", f"{turn}-{n}") for n in range(100)]
        now = self.fleet.clock.now()
        self.say([Submit(key=key, created_at=now, digest="d", **more) for key in keys])
        return keys

    def remove(self, keys):
        self.say([Remove(key=key) for key in keys])

    def told(self, turn):
        keys = [Key(ORIGIN, "ollama", "", f"{turn}-{n}") for n in range(100)]
        now = self.fleet.clock.now()
        for state in ("queued", "running", "completed"):
            yield self.say(
                [Report(key=key, created_at=now, state=state, node="n1") for key in keys]
            )
        yield self.remove(keys)

    def waited(self, turn, **more):
        """Nobody offers their engine: they are cancelled, and removed."""
        keys = self.submit("nobody", turn, **more)
        yield self.say([Intent(key=key) for key in keys])
        yield self.remove(keys)

    def ran(self, turn):
        keys = self.submit("echo", turn)
        [term] = {role._lead.term for role in self.fleet.dispatchers if role.leads}
        yield self.say(
            [Place(key=key, node="n1", rev=record.rev, term=term) for key, record in self.records(keys)]
        )  # fmt: skip
        same = [
            {"key": key, "created_at": record.created_at, "attempt": 1, "holder": f"h-{key.id}"}
            for key, record in self.records(keys)
        ]
        yield self.say([Start(**of, node="n1", worker="w1") for of in same])
        yield self.say([Finish(**of, state="completed") for of in same])
        yield self.remove(keys)

    def produced(self):
        for _ in range(20):
            job = self.producer.create()
            self.producer.dispatch(job, "n1")
            self.producer.start(job, "n1")
            self.producer.finish(job, "completed")
            self.count += 4
            self.remove([job.key])
        yield None

    def turn(self, turn):
        yield from self.told(f"r{turn}")
        yield from self.waited(f"w{turn}")
        yield from self.waited(f"d{turn}", due=10**14)
        yield from self.ran(f"e{turn}")
        yield from self.produced()


@pytest.fixture
def holders(fleet, store, caplog):
    caplog.set_level(logging.INFO, logger="broker.jobs")
    """All of them, each as it is used; the dispatcher and the sweeper twice, for others stand by."""
    fleet.submit("known", engine="nobody")
    broker = Broker(store, settings(namespace=store.keys.namespace, node=ORIGIN))
    stopwatch, doubts = Stopwatch(), Doubts(broker)
    with (
        broker.watch() as watcher,
        broker.readers(told=stopwatch.follow) as readers,
        closing(Chronicle(store)) as chronicle,
        closing(Feed(broker)) as top,
        JobEvents(broker, engine="x") as events,
    ):
        reader, never = readers.open(), readers.open()
        watcher.snapshot()
        reader.snapshot()
        never.snapshot()
        following = Following(broker, readers.open(), Filter())
        following.begin()
        leading, standing = fleet.dispatcher(), fleet.dispatcher()
        sweeper = fleet.sweeper()
        made = {
            "watcher": [watcher],
            "readers": [readers, reader, never],
            "dispatchers": [leading, standing],
            "sweeper": [sweeper],
            "producer": [events],
            "chronicle": [chronicle],
            "stopwatch": [stopwatch],
            "doubts": [doubts],
            "top": [top],
            "following": [following],
        }

        def step():
            watcher.changes(0)
            try:
                reader.changes(0)
            except Resync:
                reader.snapshot()
            leading.step()
            standing.step()
            sweeper.step()
            chronicle.step()
            doubts.among(watcher.records)
            top.take()
            following.next(0)

        yield made, step, events


def test_ten_thousand_events_of_jobs_that_came_and_went_leave_nothing_anywhere(fleet, holders):
    made, step, producer = holders
    assert set(made) == set(HOLDERS.values())
    life = Life(fleet, producer)
    for turn in range(20):
        for _ in life.turn(turn):
            step()
        if life.count > 10_000:
            break
    assert life.count > 10_000
    *_, never = made["readers"]
    until(lambda: len(never.snapshot().records) == 1)
    [stopwatch] = made["stopwatch"]
    # It is told of a change after the readers.
    until(lambda: all(key.id == "known" for key in keys_in(stopwatch)))
    [top], [following] = made["top"], made["following"]
    until(lambda: step() or len(top.records) == len(following.records) == 1)
    fleet.clock.ahead_ms += 3_600_000
    step()
    left = {
        who: [sum(key.id != "known" for key in keys_in(thing)) for thing in things]
        for who, things in made.items()
    }
    assert left["watcher"] == [0]
    assert left["readers"] == [0, 0, 0]
    for who in ("producer", "chronicle", "stopwatch", "doubts", "top", "following"):
        assert left[who] == [0], who
    # Their heaps are looked through when they hold more than so many; no more of that after any number of jobs.
    assert max(left["dispatchers"]) <= ENTRIES_MIN
    assert max(left["sweeper"]) <= SLACK
