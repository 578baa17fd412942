"""Watchers and readers that come, fall behind, leave and come back where they stood, while logs break under them."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress

from broker import Gone, Refused, Resync, Watcher
from broker.readers.readers import Readers
from broker.rules.event import Remove, RemovePair, Report, Submit
from broker.rules.key import Key
from broker.rules.replay import rev_order
from broker.store.watch import read_cursor
from tests.chaos.run import row
from tests.chaos.stack import until
from tests.store.readers import logged

ORIGINS = ("desk", "hall", "quay")
#: So many watch at a time; then all must agree.
TOGETHER = 40
#: How long they watch before they are asked, in seconds.
SECONDS = 4.0
#: So few jobs may a reader of the second hub be behind: it is told to list again and again.
FEW = 20


@row("watchers", long=1_000, short=40)
def watchers(run):
    """Churn, trims, logs deleted, everything flushed: each who watches to the end holds exactly the true list."""
    told, done = Counter(), 0
    with run.stack() as stack, silent("broker.readers"):
        stack.serve()
        while done < run.count:
            count = min(TOGETHER, run.count - done)
            with Wave(run, stack, told) as wave:
                wave.watch(count)
            done += count
    return dict(sorted(told.items()))


@contextmanager
def silent(name):
    """Hundreds fall behind on purpose: no warning tells anything here."""
    logger = logging.getLogger(name)
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


class Wave:
    """Those who watch at a time, who writes meanwhile, and what breaks."""

    def __init__(self, run, stack, told):
        self.stack, self.told = stack, told
        self.chance = random.Random(run.chance.random())
        self.over = threading.Event()
        self._stack = ExitStack()

    def __enter__(self):
        client = self._stack.enter_context(self.stack.client())
        self.hubs = [
            self._stack.enter_context(Readers(client.store, ring_size=size, relist_seconds=often))
            for size, often in ((1_024, 300.0), (FEW, 0.5), (1_024, 300.0))
        ]
        self.writers = [Writer(self, origin) for origin in ORIGINS]
        return self

    def __exit__(self, *exc):
        self.over.set()
        self._stack.close()

    def watch(self, count):
        ends_at = time.monotonic() + SECONDS
        clients = [Client(self, ends_at) for _ in range(count)]
        try:
            for thread in (*self.writers, *clients):
                thread.start()
            self.do_damage(ends_at)
            for writer in self.writers:
                writer.ends.set()
            for writer in self.writers:
                writer.join()
            until(lambda: all(client.is_last or client.error for client in clients))
            self.all_agree(clients)
        finally:
            self.over.set()
            for client in clients:
                client.close()
            for client in clients:
                client.join(30)
        for thread in (*self.writers, *clients):
            if thread.error:
                raise AssertionError(f"{thread.name} failed") from thread.error
            assert not thread.is_alive(), f"{thread.name} does not end"
            self.told.update(thread.told)
        drift = sum(hub.drift for hub in self.hubs) + sum(client.drift for client in clients)
        assert drift == 0, f"{drift} jobs were held wrongly"

    def do_damage(self, ends_at):
        """Each wave has its own: one flush undoes what the other damages would show."""
        acts = self.chance.choice(
            [["trim"], ["trim", "delete"], ["delete", "trim", "trim"], ["flush", "trim", "delete"]]
        )
        closes_at = time.monotonic() + self.chance.uniform(0.3, 0.8) * SECONDS
        while time.monotonic() < ends_at:
            act = self.chance.choice(acts)
            self.told[act] += 1
            getattr(self, act)()
            if time.monotonic() > closes_at:
                self.hubs[2].close()
            self.over.wait(self.chance.uniform(0.1, 0.6))

    def trim(self):
        """As a janitor does it, but so far that many who stand somewhere miss something."""
        origin, count = self.chance.choice(ORIGINS), self.chance.choice((0, 1, 30))
        store = self.stack.broker.store
        term = int(store.client.hget(store.keys.of(origin).meta, "term:janitor") or 0)
        with suppress(Refused):  # another janitor took office meanwhile
            while self.stack.broker.log(origin).trim(count, 3_600_000, term=term):
                pass

    def delete(self):
        keys = self.stack.broker.store.keys.of(self.chance.choice(ORIGINS))
        self.stack.broker.store.client.delete(keys.log)

    def flush(self):
        self.stack.broker.store.client.flushall()

    def truth(self):
        return logged({job.key: job.record for job in self.stack.broker.jobs()})

    def all_agree(self, clients):
        def differing():
            truth = self.truth()
            return [client for client in clients if not client.holds(truth)]

        try:
            until(lambda: not differing(), 30, every=0.1)
        except AssertionError:
            truth, wrong = self.truth(), differing()
            told = "\n".join(client.say(truth) for client in wrong[:3])
            raise AssertionError(f"{len(wrong)} hold another list:\n{told}") from None


class Worker(threading.Thread):
    """A thread that keeps what it met."""

    def __init__(self, wave):
        super().__init__(daemon=True)
        self.wave = wave
        self.chance = random.Random(wave.chance.random())
        self.told, self.error = Counter(), None

    def run(self):
        try:
            with self.wave.stack.client() as self.broker:
                self.work()
        except BaseException as error:  # noqa: BLE001 - the row tells it
            self.error = error


class Writer(Worker):
    """Jobs of one origin come, move, end, go, and come again under their names."""

    def __init__(self, wave, origin):
        super().__init__(wave)
        self.origin, self.ends = origin, threading.Event()

    def work(self):
        while not self.ends.is_set():
            events = [self.event() for _ in range(self.chance.choice((1, 3, 10)))]
            for answer in self.broker.view.apply(events):
                self.told[f"events {answer.outcome}"] += 1
            self.ends.wait(self.chance.uniform(0.01, 0.1))

    def event(self):
        now, number = self.broker.store.clock.now(), self.chance.randrange(120)
        key = Key(self.origin, self.chance.choice(("a", "b")), "", str(number))
        what = self.chance.randrange(10)
        if what == 0:
            return RemovePair(origin=self.origin, id=key.id)
        if what <= 2:
            return Remove(key=key)
        if what == 3:
            return Submit(key=key._replace(engine="nobody"), created_at=now, digest="d")
        state = self.chance.choice(("queued", "running", "running", "completed"))
        created_at = now - self.chance.choice((0, 500))
        return Report(key=key, created_at=created_at, state=state, node=f"n{what}")


class Client(Worker):
    """One who watches, in several sessions of several kinds, the last of them to the end."""

    def __init__(self, wave, ends_at):
        super().__init__(wave)
        self.ends_at = ends_at
        self.lock = threading.Lock()
        self.held, self.cursor, self.last = {}, None, {}
        self.session, self.story, self.drift = None, [], 0
        self.is_last = False

    def work(self):
        self.wave.over.wait(self.chance.uniform(0, 0.3) * SECONDS)
        while self.chance.random() < 0.7 and time.monotonic() < self.ends_at - 0.5:
            self.watch(self.chance.uniform(0.05, 1))
            self.wave.over.wait(self.chance.uniform(0, 0.5))  # away
        self.is_last = True
        while not self.wave.over.is_set():  # its hub may end first
            self.watch(None)

    def watch(self, seconds):
        self.session = self.chance.choice((WatcherSession, ReaderSession))(self)
        self.story.append(self.session.name)
        self.last = {}  # the next one may be told later than the last one was
        self.told[self.session.name] += 1
        closer = threading.Timer(seconds or 0, self.session.close)
        with self.session:
            self.session.begin()
            if seconds:  # it is ended from outside, wherever it is
                closer.start()
            while not self.session.is_closed and not self.wave.over.is_set():
                self.session.step()
                if self.chance.random() < 0.3:
                    self.wave.over.wait(self.chance.uniform(0, 0.3))  # busy with what it was told
            with suppress(RuntimeError):
                closer.join()
        self.drift += self.session.drift

    def close(self):
        if self.session:
            self.session.close()

    def begin_with(self, snapshot):
        with self.lock:
            self.held, self.cursor = dict(snapshot.records), snapshot.cursor

    def follow(self, changes, cursor):
        with self.lock:
            for change in changes:
                if change.record is None:
                    self.held.pop(change.key, None)
                else:
                    self.held[change.key] = change.record
                if not change.synthesized:
                    rev, origin = rev_order(change.rev), change.key.origin
                    assert rev >= self.last.get(origin, rev), f"{change} after {self.last}"
                    self.last[origin] = rev
            self.cursor = cursor
        self.told["changes"] += len(changes)

    def holds(self, truth):
        with self.lock:
            return not self.error and logged(self.held) == truth

    def say(self, truth):
        with self.lock:
            held = logged(self.held)
        keys = [key for key in held.keys() | truth.keys() if held.get(key) != truth.get(key)]
        some = [f"{key}: {held.get(key)} / {truth.get(key)}" for key in keys[:2]]
        return f"{self.story}, {len(keys)} jobs: {some}, {self.error!r}"


class WatcherSession:
    """With a list; with nothing; or from where it stood, with what it held or without."""

    def __init__(self, client):
        self.client = client
        often = client.chance.choice((300.0, 0.3))
        self.watcher = Watcher(client.broker.store, relist_seconds=often)
        ways = (
            ("list", "nothing", "whole", "whole", "bare") if client.cursor else ("list", "nothing")
        )
        self.way = client.chance.choice(ways)
        self.name = f"watcher: {self.way}"
        self.is_closed = False

    def __enter__(self):
        return self.watcher.__enter__()

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.is_closed = True
        self.watcher.close()

    @property
    def drift(self):
        return self.watcher.drift

    def begin(self):
        client = self.client
        if self.way == "list":
            client.begin_with(self.watcher.snapshot())
        elif self.way == "nothing":
            client.held.clear()
        else:
            cursor = read_cursor(json.loads(json.dumps(client.cursor)))
            try:
                self.watcher.resume(cursor, client.held if self.way == "whole" else None)
            except Gone:
                self.list_again()

    def step(self):
        try:
            self.client.follow(self.watcher.changes(100), self.watcher.cursor)
        except Gone:
            assert self.way == "bare", "who says what he holds is never sent away"
            self.list_again()

    def list_again(self):
        self.client.told["gone"] += 1
        self.client.begin_with(self.watcher.snapshot())


class ReaderSession:
    """One of many on one connection."""

    drift = 0  # its hub's

    def __init__(self, client):
        self.client = client
        number = client.chance.randrange(3)
        self.reader = client.wave.hubs[number].open(f"reader of {number}")
        self.name = f"reader {number}"

    def __enter__(self):
        return self.reader.__enter__()

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.reader.close()

    @property
    def is_closed(self):
        return self.reader.closed

    def begin(self):
        if not self.is_closed:
            self.client.begin_with(self.reader.snapshot())

    def step(self):
        try:
            self.client.follow(self.reader.changes(100), self.reader.cursor)
        except Resync:
            self.client.told["resync"] += 1
            self.begin()
