"""What `broker top` shows, gathered behind its back: whoever draws never waits for Redis.

Changes come from one reader; a thread of its own looks once a second at nodes, beats and the overview, another one runs
the user's errands. Both only lay down what they found; the picture takes it with its next tick.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, Resync, Unavailable
from broker.fleet.doubts import Doubts
from broker.fleet.nodes import node_json
from broker.fleet.overview import overview
from broker.rules.key import Key
from broker.rules.record import Record

if TYPE_CHECKING:
    from broker.client import Broker

#: How often nodes, beats and the overview are looked at, in seconds.
PULSE_SECONDS = 1.0

#: What became of an errand: what it gave, or why it could not be run.
Answer = Callable[[Any, Exception | None], None]


@dataclass(frozen=True)
class Pulse:
    """One look at all that no log tells."""

    overview: dict[str, Any]
    nodes: list[dict[str, Any]] = field(default_factory=list)
    doubted: frozenset[Key] = frozenset()


class Feed:
    """Everything but `broker` and `records` may be used by the drawing thread alone."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        #: The whole list, as far as it was told.
        self.records: dict[Key, Record] = {}
        self.is_listed = False
        #: The newest look; None before the first one.
        self.pulse: Pulse | None = None
        #: Why the last look failed, if it did.
        self._pulse_trouble: Exception | None = None
        self._news_trouble: BrokerError | None = None
        self._troubled_at = 0.0
        self._readers = broker.readers()
        self._reader = self._readers.open("broker top")
        self._stop = threading.Event()
        self._errands: SimpleQueue[tuple[Callable[[], Any], Answer] | None] = SimpleQueue()
        self._done: SimpleQueue[Callable[[], None]] = SimpleQueue()
        for work in (self._beat, self._run_errands):
            # Nobody waits for them in the end: they may be held up by a Redis that does not answer.
            threading.Thread(target=work, name=f"top {work.__name__}", daemon=True).start()

    def close(self) -> None:
        """End all of it; returns at once."""
        self._stop.set()
        self._errands.put(None)
        self._readers.close()

    def take(self) -> bool:
        """Take what happened since the last call, without waiting; whether the list changed. Runs due answers."""
        while not self._done.empty():
            self._done.get()()
        if not self.is_listed:
            self._news_trouble = self._readers.trouble
            if not self._readers.is_listed:
                return False
            return self._list()
        try:
            told = self._reader.changes(0)
        except Resync:
            return self._list()
        except BrokerError as trouble:
            self._news_trouble = trouble
            return False
        self._news_trouble = None
        for change in told:
            if change.record is None:
                self.records.pop(change.key, None)
            else:
                self.records[change.key] = change.record
        return bool(told)

    def _list(self) -> bool:
        self.records = self._reader.snapshot().records
        self.is_listed = True
        return True

    @property
    def trouble(self) -> str:
        """What stands in the way of knowing more, in one line; empty where nothing does."""
        met = self._pulse_trouble or self._news_trouble
        if met is None:
            self._troubled_at = 0.0
            return ""
        self._troubled_at = self._troubled_at or time.monotonic()
        since = f" for {time.monotonic() - self._troubled_at:.0f}s"
        away = (
            f"Redis is away{since}, this is the last known: "
            if isinstance(met, Unavailable)
            else ""
        )
        return f"{away}{met}"

    def ask(self, errand: Callable[[], Any], answer: Answer) -> None:
        """Have it run elsewhere, one after the other; `answer` is called by a later `take`."""
        self._errands.put((errand, answer))

    def _run_errands(self) -> None:
        while (asked := self._errands.get()) and not self._stop.is_set():
            errand, answer = asked
            found, trouble = None, None
            try:
                found = errand()
            except Exception as met:  # noqa: BLE001 - whatever it met, the next one is run
                trouble = met
            self._done.put(lambda a=answer, f=found, t=trouble: a(f, t))  # type: ignore[misc]

    def _beat(self) -> None:
        doubts = Doubts(self.broker)
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                if self._readers.is_listed:
                    self.pulse = self._look(doubts)
                self._pulse_trouble = None
            except Exception as trouble:  # noqa: BLE001 - what stands still must say so, and look again
                self._pulse_trouble = trouble
            took = time.monotonic() - begun
            # Before the first list there is nothing to count.
            pause = PULSE_SECONDS if self.pulse else PULSE_SECONDS / 20
            self._stop.wait(max(pause - took, took))

    def _look(self, doubts: Doubts) -> Pulse:
        age, records = self._readers.age_seconds, self._readers.records
        seen = self.broker.nodes()
        workers = [worker for node in seen for worker in node.workers]
        found = overview(self.broker, records, list_age_seconds=age, doubts=doubts)
        return Pulse(
            overview=found.to_json(),
            nodes=[node_json(node, self.broker.config.budgets) for node in seen],
            doubted=frozenset(doubts.among(records, found.at, workers)),
        )
