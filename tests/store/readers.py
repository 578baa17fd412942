"""What the tests of readers share: a short way to write events, and to wait for what a watcher is told."""

from __future__ import annotations

import os
import signal
import time

from broker.rules.event import Remove, RemovePair, Report
from broker.rules.key import Key
from broker.rules.record import PROJECTION
from broker.store.view import View

ORIGIN = "desk"
#: How long a test waits for what must come, which takes milliseconds: it catches a hang, and no slow machine.
SECONDS_MAX = 60.0


def key(id, origin=ORIGIN, engine="ollama", run=""):
    return Key(origin, engine, run, str(id))


def report(id, state="running", *, seq=0, created_at=1_000, origin=ORIGIN, engine="ollama", **more):
    return Report(key=key(id, origin, engine), created_at=created_at, state=state, seq=seq, **more)


def patient(url):
    """The same Redis, each of whose answers is waited for for a minute: a machine that stood still is no outage.

    Who gives up calls again, and may hear `duplicate` of what was applied; a watcher that gives up says Unavailable.
    """
    return f"{url}?socket_timeout=60"


def kill(server):
    """As a crash of its process would: what it was told stays on disk."""
    os.kill(server.pid, signal.SIGKILL)
    server.stop()


class Desk:
    """Writes to one origin."""

    def __init__(self, store, origin=ORIGIN):
        self.store = store
        self.origin = origin
        self.view = View(store)
        self.keys = store.keys.of(origin)

    def report(self, id, state="running", **more):
        """Decide one report; its rev, if it is applied."""
        return self.view.apply([report(id, state, origin=self.origin, **more)])[0].rev

    def report_many(self, ids, state="running", **more):
        events = [report(id, state, origin=self.origin, **more) for id in ids]
        return [answer.rev for answer in self.view.apply(events)]

    def remove(self, id, removed_at=0):
        self.view.apply([Remove(key=key(id, self.origin), removed_at=removed_at)])

    def remove_pair(self, id, removed_at=0):
        return self.view.apply([RemovePair(origin=self.origin, id=str(id), removed_at=removed_at)])

    def records(self):
        """Read without the scan that readers use."""
        members = self.store.client.zrange(self.keys.ids, 0, -1)
        keys = [Key.of_member(self.origin, member.decode()) for member in members]
        found = zip(keys, self.view.get_many(keys), strict=True)
        return {key: record for key, record in found if record}


def logged(records):
    """Records without what moves without a log entry, to compare."""
    return {
        key: (record.rev, *(getattr(record, name) for name in PROJECTION))
        for key, record in records.items()
    }


def until(condition):
    """Wait until the condition holds; its value."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)
    return found


def changes_until(watcher, enough):
    """All changes up to and with the first batch after which `enough(changes)` holds."""
    told = []
    deadline = time.monotonic() + SECONDS_MAX
    while not enough(told):
        assert time.monotonic() < deadline, f"only {told[-3:]} came"
        told += watcher.changes(500)
    return told


def blocked(store):
    """How many clients wait in a blocking call."""
    return store.client.info("clients")["blocked_clients"]


def revs(entries):
    return [entry.rev for entry in entries]
