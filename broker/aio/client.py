"""AsyncBroker: the asyncio twin of `Broker`. The same names, the same rules, the same core."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, Unpack

from broker.aio.catalog import AsyncCatalog
from broker.aio.twin import Twin, twin
from broker.client import Broker, Job
from broker.errors import JobFailed
from broker.jobs.outcome import Outcome
from broker.jobs.reporting import Reporter
from broker.jobs.submission import JobOptions
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.wire import Reported
from broker.store.output import Chunk

T = TypeVar("T")


class AsyncReporter(Twin[Reporter]):
    """Collects events and sends them in batches: see `Reporter`. One `flush` at a time."""

    flush = twin(Reporter.flush)

    @property
    def full(self) -> bool:
        """Whether it is time to flush."""
        return self._inner.full

    @property
    def outcomes(self) -> list[Outcome | None]:
        """The answer of each that was added since the last flush that succeeded; None = it still waits."""
        return self._inner.outcomes

    def add(self, item: Mapping[str, Any] | Reported | Outcome) -> None:
        """Take one event, or an outcome that is known already and only keeps its place in the order."""
        self._inner.add(item)


class AsyncBroker(AsyncCatalog):
    """A client of one namespace on one Redis, for one event loop; `async with` it, or `close` it.

    What it is made of is `broker`. A call that was cancelled after it had begun ends in its thread all the same:
    whether it was taken is then not known, as after Unavailable.
    """

    # --- writing ---------------------------------------------------------------------------------

    async def submit(
        self,
        engine: str,
        payload: Any = None,
        *,
        origin: str | None = None,
        id: str | None = None,
        run: str = "",
        **options: Unpack[JobOptions],
    ) -> AsyncJob:
        """See `Broker.submit`."""
        call = partial(
            self.broker.submit, engine, payload, origin=origin, id=id, run=run, **options
        )
        return self._job(await self.run(call))

    async def submit_many(
        self,
        engine: str,
        payloads: Iterable[Any],
        *,
        origin: str | None = None,
        run: str = "",
        **options: Unpack[JobOptions],
    ) -> list[AsyncJob]:
        """See `Broker.submit_many`."""
        call = partial(self.broker.submit_many, engine, payloads, origin=origin, run=run, **options)
        return [self._job(job) for job in await self.run(call)]

    async def retry(self, key: Key | str) -> AsyncJob:
        """See `Broker.retry`."""
        return self._job(await self.run(partial(self.broker.retry, key)))

    async def report_many(
        self,
        events: Iterable[Mapping[str, Any] | Reported | Outcome]
        | AsyncIterable[Mapping[str, Any] | Reported | Outcome],
    ) -> AsyncIterator[Outcome]:
        """See `Broker.report_many`; `events` may be an asynchronous iterable."""
        reporter = self.reporter()
        async for event in _each(events):
            reporter.add(event)
            if reporter.full:
                for outcome in await reporter.flush():
                    yield outcome
        for outcome in await reporter.flush():
            yield outcome

    def reporter(self) -> AsyncReporter:
        """For a stream of events whose pauses matter: add, and flush when it is full or quiet."""
        return AsyncReporter(self.broker.reporter(), self.run)

    hand_in = twin(Broker.hand_in)
    report = twin(Broker.report)
    cancel = twin(Broker.cancel)
    remove = twin(Broker.remove)
    remove_pair = twin(Broker.remove_pair)
    cancel_many = twin(Broker.cancel_many)
    remove_many = twin(Broker.remove_many)
    retry_many = twin(Broker.retry_many)
    flag_node = twin(Broker.flag_node)
    tell_node = twin(Broker.tell_node)
    remove_node = twin(Broker.remove_node)
    beat = twin(Broker.beat)
    leave = twin(Broker.leave)
    replay_parked = twin(Broker.replay_parked)
    remove_group = twin(Broker.remove_group)

    def _job(self, job: Job) -> AsyncJob:
        return AsyncJob(self, job.key)


@dataclass(frozen=True)
class AsyncJob:
    """A submitted job, as its submitter holds it: see `Job`."""

    broker: AsyncBroker
    key: Key

    async def record(self) -> Record:
        """What is known of it now; raises NotFound."""
        return await self.broker.get(self.key)

    async def wait(self, timeout: float | None = None) -> Record | None:
        """Wait until it ends; see `Broker.wait`."""
        return await self.broker.wait(self.key, timeout)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait, then give what it returned; see `Broker.result`."""
        if await self.wait(timeout) is None:
            raise JobFailed(f"{self.key} was removed")
        return await self.broker.result(self.key)

    async def cancel(self, *, force: bool = False) -> Outcome:
        """Wish that it ends; see `Broker.cancel`."""
        return await self.broker.cancel(self.key, force=force)

    async def output(self, after: str = "0-0") -> list[Chunk]:
        """Its progress and output; see `Broker.output`."""
        return await self.broker.output(self.key, after)

    @property
    def id(self) -> str:
        """The id part of its key."""
        return self.key.id


async def _each(values: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
