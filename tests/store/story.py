"""A job's story told to one twin: each verb builds the honest event of that moment, and gives `outcome rule`."""

from __future__ import annotations

from broker.rules import event as events
from tests.store.twins import NOW, LedgerTwin, RedisTwin, key, pair

CREATED = NOW - 10_000
NODE = "node-a"


class Story:
    """One job, `key("7")` unless a verb is told another."""

    def __init__(self, twin: LedgerTwin | RedisTwin):
        self.twin = twin

    def tell(self, event) -> str:
        [answer] = self.twin.apply([event])
        return f"{answer.outcome} {answer.rule}"

    def tell_all(self, events) -> list[str]:
        return [f"{answer.outcome} {answer.rule}" for answer in self.twin.apply(events)]

    def wait(self, ms) -> None:
        self.twin.clock.time += ms

    @property
    def now(self):
        return self.twin.clock.now()

    def record(self, of=None):
        return self.twin.record(of or key())

    def log(self):
        """Every entry as `event rule`."""
        return [f"{entry[1]} {entry[3]}" for entry in self.twin.books().log]

    # --- reports and removals ------------------------------------------------------------------

    def report(self, state="queued", node=NODE, seq=0, created_at=CREATED, **more) -> str:
        told = {"key": key(), "state": state, "node": node, "seq": seq, "created_at": created_at}
        return self.tell(events.Report(**(told | more)))

    def remove(self, **more) -> str:
        return self.tell(events.Remove(**({"key": key()} | more)))

    def remove_pair(self, **more) -> str:
        return self.tell(pair(**more))

    # --- the machine of submitted jobs -----------------------------------------------------------

    def submit(self, **more) -> str:
        told = {"key": key(), "created_at": CREATED, "digest": "d1", "spec": '{"payload":1}'}
        return self.tell(events.Submit(**(told | more)))

    def place(self, **more) -> str:
        return self.tell(events.Place(**(self._swept() | {"node": NODE} | more)))

    def start(self, **more) -> str:
        told = self._attempt() | {"node": NODE, "holder": "h1", "worker": "w1"}
        return self.tell(events.Start(**(told | more)))

    def reassert(self, **more) -> str:
        return self.tell(events.Reassert(**(self._attempt() | {"holder": "h1"} | more)))

    def finish(self, state="completed", **more) -> str:
        told = self._attempt() | {"holder": "h1", "state": state}
        return self.tell(events.Finish(**(told | more)))

    def unplace(self, **more) -> str:
        return self.tell(events.Unplace(**(self._swept() | more)))

    def guess(self, **more) -> str:
        told = self._swept() | {"last_seen": self._last_seen(), "error": "node-a went offline"}
        return self.tell(events.Guess(**(told | more)))

    def requeue(self, **more) -> str:
        return self.tell(events.Requeue(**(self._swept() | more)))

    def lost(self, **more) -> str:
        return self.tell(events.Lost(**(self._swept() | more)))

    def cancel(self, **more) -> str:
        return self.tell(events.Intent(**({"key": key()} | more)))

    def prune(self, **more) -> str:
        told = self._swept() | {"last_seen": self._last_seen()}
        return self.tell(events.Prune(**(told | more)))

    def begin(self, **options) -> None:
        """A job that runs: submitted, placed and started."""
        assert self.submit(**options) == "applied submitted"
        self.go_on()

    def go_on(self) -> None:
        """The next attempt of a job that waits: placed and started."""
        assert self.place() == "applied placed"
        assert self.start() == "applied started"

    def _swept(self):
        record = self.record()
        return {"key": key(), "rev": record.rev if record else "", "term": 1}

    def _last_seen(self):
        record = self.record()
        return record.last_seen if record else 0

    def _attempt(self):
        record = self.record()
        attempt = record.attempt if record else 1
        return {"key": key(), "created_at": CREATED, "attempt": attempt}
