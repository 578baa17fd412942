"""What the tests of the source documents share: their frames, and every moment at which a reader can be overtaken."""

from __future__ import annotations

from broker.rules.wire import parse_event
from broker.store.log import Log
from tests.store.story import CREATED, Story
from tests.store.twins import ORIGIN, key

HOUR_MS = 3_600_000
METHODS = {"queued": "submitted", "running": "started", "completed": "completed"}


def frame(state, node="", seq=0, *, method="", resync=False, **info):
    """A lifecycle notification as the sources write it."""
    workload = {
        "id": "7", "model": "llama3", "engine": "ollama", "state": state, "originatedFrom": ORIGIN,
        "scheduledOn": node, "createdAt": CREATED, "startedAt": None, "completedAt": None, "error": None,
        "requesterId": None,
    } | info  # fmt: skip
    if seq:
        workload["seq"] = seq
    params = {"workloadInfo": workload} | ({"resync": True} if resync else {})
    name = method or f"workload:{METHODS.get(state, 'errored')}"
    return {"jsonrpc": "2.0", "method": name, "params": params}


def removal(id="7", **exact):
    params = {"workloadId": id, "originatedFrom": ORIGIN} | exact
    return {"jsonrpc": "2.0", "method": "workloads:remove", "params": params}


class Source(Story):
    """A story told in frames: each `say` gives `outcome rule`."""

    def say(self, state, node="", seq=0, **more):
        return self.tell(parse_event(frame(state, node, seq, **more)))

    def take_away(self, id="7", **exact):
        return self.tell(parse_event(removal(id, **exact)))

    def now_is(self, **of):
        """Where the job stands, in short; a guess ends in `~`."""
        record = self.record(key(**of))
        return record and (record.state + "~" * record.inferred, record.node, record.seq)

    @property
    def jobs(self):
        return sorted(map(str, self.twin.books().records))


def trim(store, count, origin=ORIGIN):
    """Cut the origin's log to so many entries."""
    while Log(store, origin).trim(count, HOUR_MS):
        pass


class Moments:
    """Every moment at which a reader can be overtaken: just before each call that it makes to Redis.

    Each call takes a connection out of the store's pool first.
    """

    def __init__(self, store, monkeypatch):
        pool = store.client.connection_pool
        take = pool.get_connection
        self._calls = 0
        self._acts = {}

        def get_connection(*args, **more):
            self._calls += 1
            if act := self._acts.pop(self._calls, None):
                act()
            return take(*args, **more)

        monkeypatch.setattr(pool, "get_connection", get_connection)

    def count(self, work):
        """How many calls `work` makes."""
        before = self._calls
        work()
        return self._calls - before

    def before(self, number, act):
        """Do `act` just before the call that comes after so many."""
        self._acts = {self._calls + 1 + number: act}
