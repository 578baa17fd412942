"""pytest fixtures for programs that use the broker: the real thing in memory, and its jobs run inline.

    pytest_plugins = ["broker.testing"]                      # in your conftest.py

    def test_thumbnails(memory_broker):
        memory_broker.engine("thumbnail", thumbnail)         # any function (ctx, payload)
        job = memory_broker.submit("thumbnail", {"path": "a.png"})
        memory_broker.run_jobs()
        assert job.result() == {"width": 120}

The broker's own Lua runs on fakeredis: what is accepted, refused, retried or removed is what a fleet would do, by the
same events. What is left out is the fleet: no processes, no beats, no timeouts; an engine runs in the test's thread.
Fixture `broker_engines` gives a dict of engines that every `memory_broker` begins with: override it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytest

from broker.client import Broker
from broker.config import settings
from broker.errors import Invalid
from broker.jobs.holder import Holder
from broker.rules.event import Place
from broker.rules.key import ENGINE_BYTES_MAX, Key, check_part
from broker.rules.state import RUN
from broker.store.connection import Clock
from broker.store.queue import move_due, ready
from broker.store.store import Store

try:
    from fakeredis import FakeRedis, FakeServer
except ImportError as missing:
    raise ImportError("broker.testing needs fakeredis: fleet-broker[testing] has it") from missing

#: What an engine is to the broker: `(ctx, payload) -> JSON-able data`, raising where it fails.
EngineFunction = Callable[[Any, Any], Any]

#: More jobs in one `run_jobs` mean that each makes another one.
JOBS_MAX = 10_000
_READY_MAX = 1_000


class MovableClock(Clock):
    """Redis's time, and what the test added to it."""

    ahead_ms = 0

    def now(self) -> int:
        return super().now() + self.ahead_ms


@dataclass(slots=True)
class MemoryContext:
    """One execution as its engine sees it: what `workers.Context` is in a fleet."""

    holder: Holder
    key: str
    attempt: int
    tries: int
    model: str
    payload: Any = None
    saw_stop: bool = False

    @property
    def cancelled(self) -> bool:
        """Whether the job should end."""
        beat = self.holder.beat()
        if not beat.valid or beat.desired != RUN:
            self.saw_stop = True
        return self.saw_stop

    def progress(self, fraction: float) -> None:
        """Tell how far it is, from 0 to 1."""
        self.holder.progress(float(fraction))

    def write(self, chunk: str | bytes) -> None:
        """Put a piece of output on the lane; bytes are read as UTF-8."""
        text = chunk if isinstance(chunk, bytes) else chunk.encode(errors="replace")
        self.holder.write(text.decode(errors="replace"))


class MemoryBroker(Broker):
    """A Broker on a Redis of its own in memory, which also runs the jobs that are submitted to it."""

    def __init__(self, engines: Mapping[str, EngineFunction] | None = None) -> None:
        store = Store(FakeRedis(server=FakeServer(version=(7, 0))))
        store.clock = self.clock = MovableClock(store.client)
        super().__init__(store, settings(node="memory", namespace="broker"))
        self._engines: dict[str, EngineFunction] = {}
        for name, function in (engines or {}).items():
            self.engine(name, function)

    def engine(self, name: str, function: EngineFunction) -> None:
        """Let `function` run the jobs of the engine `name`, instead of what did so far. Raises Invalid."""
        self._engines[check_part("engine", name, ENGINE_BYTES_MAX)] = function

    def advance(self, seconds: float) -> None:
        """Move the broker's clock forward: what is due by then may run."""
        self.clock.ahead_ms += round(seconds * 1000)

    def run_jobs(self, *, jump: bool = True) -> list[Key]:
        """Run every job that waits for a known engine, best first, until none is left. Which ran, a retry each time.

        With `jump` the clock moves forward to whatever is delayed or backs off; else that stays for later.
        """
        ran: list[Key] = []
        while key := self._next(jump=jump):
            if len(ran) == JOBS_MAX:
                raise RuntimeError(
                    f"{JOBS_MAX} jobs ran and more are waiting: they make each other"
                )
            ran.append(key)
            self._run(key)
        return ran

    def _next(self, *, jump: bool) -> Key | None:
        origins = self.view.origins()
        while True:
            now = self.clock.now()
            for origin in origins:
                while move_due(self.store, origin, now):
                    pass
                for key in ready(self.store, origin, _READY_MAX):
                    if key.engine in self._engines:
                        return key
            dues = [due for origin in origins for due in self._delayed(origin)]
            if not jump or not dues:
                return None
            self.clock.ahead_ms += max(0, min(dues) - self.clock.now())

    def _delayed(self, origin: str) -> list[int]:
        """When the delayed jobs of known engines are due."""
        delayed = self.store.keys.of(origin).delayed
        found = self.store.client.zrange(delayed, 0, -1, withscores=True)
        return [
            int(due)
            for job, due in cast("list[tuple[bytes, float]]", found)
            if Key.of_job(origin, job.decode()).engine in self._engines
        ]

    def _run(self, key: Key) -> None:
        """What dispatcher, worker and horse do with a job, without the processes."""
        node, record = self.config.node, self.get(key)
        self.view.apply([Place(key=key, node=node, rev=record.rev, term=1)])
        holder = Holder(
            self,
            key,
            created_at=record.created_at,
            attempt=record.attempt,
            node=node,
            worker=f"{node}-inline",
        )
        if not holder.start().applied:
            return
        context = MemoryContext(holder, str(key), record.attempt, record.tries + 1, record.model)
        try:
            context.payload = holder.payload()
            result = self._engines[key.engine](context, context.payload)
        except Exception as raised:  # noqa: BLE001 - whatever an engine raises is its failure
            self._failed(holder, context, raised)
            return
        if context.saw_stop:
            holder.finish("cancelled")
            return
        try:
            holder.finish("completed", result=result)
        except Invalid as wrong:  # too large, or no JSON: another try would give the same
            holder.finish("failed", error=str(wrong), reason="permanent")

    @staticmethod
    def _failed(holder: Holder, context: MemoryContext, raised: Exception) -> None:
        if context.cancelled:
            holder.finish("cancelled")
            return
        retryable = getattr(raised, "retryable", True)  # `workers.Permanent` says that it is not
        holder.finish(
            "failed",
            error=f"{type(raised).__name__}: {raised}",
            reason="error" if retryable else "permanent",
            retryable=retryable,
        )


@pytest.fixture
def broker_engines() -> Mapping[str, EngineFunction]:
    """The engines that each `memory_broker` begins with, by name: none. Override it in your own conftest."""
    return {}


@pytest.fixture
def memory_broker(broker_engines: Mapping[str, EngineFunction]) -> Iterator[MemoryBroker]:
    """An empty broker in memory, for this test alone."""
    with MemoryBroker(broker_engines) as broker:
        yield broker
