"""AsyncCatalog: the reading half of the asyncio client, and what both halves stand on.

Each call is the one of `Broker`, made on a small pool of threads that belongs to this client, so that the event loop
never waits for Redis. What lasts takes none of them: any number of waits share two threads, and the readers of one
list share one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar

from broker.aio.calls import Calls
from broker.aio.readers import AsyncReader, AsyncReaders
from broker.aio.twin import Twin, stream, twin
from broker.client import Broker
from broker.errors import Gone, Unavailable
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.store.log import Log
from broker.subscriptions.delivery import Delivery
from broker.subscriptions.member import TRIES_MAX
from broker.subscriptions.subscription import AsyncSubscription
from broker.waiting.wait import Answer, Wait
from broker.waiting.waits import Waits

T = TypeVar("T")
Lasting = TypeVar("Lasting", AsyncReaders, AsyncReader, AsyncSubscription)


class AsyncLog(Twin[Log]):
    """The log of one origin: see `Log`."""

    position = twin(Log.position)
    read = twin(Log.read)
    read_back = twin(Log.read_back)
    read_back_of = twin(Log.read_back_of)
    read_on = twin(Log.read_on)
    entries = stream(Log.entries)
    wait = twin(Log.wait)
    trim = twin(Log.trim)

    @property
    def origin(self) -> str:
        """Whose log it is."""
        return self._inner.origin

    @property
    def key(self) -> str:
        """The stream's key."""
        return self._inner.key


class AsyncCatalog(Twin[Broker]):
    """What can be asked; see `AsyncBroker`."""

    def __init__(self, broker: Broker, *, calls: Calls | None = None) -> None:
        super().__init__(broker, self.run)
        self.broker = broker
        self.config = broker.config
        self._calls = calls or Calls()
        self._waits = Waits(broker.store, broker.view)
        self._lasting: list[AsyncReaders | AsyncReader | AsyncSubscription] = []
        self._is_closed = False

    @classmethod
    async def from_url(
        cls, url: str | None = None, *, namespace: str | None = None, node: str | None = None
    ) -> Self:
        """See `Broker.from_url`."""
        connecting = asyncio.ensure_future(
            asyncio.to_thread(Broker.from_url, url, namespace=namespace, node=node)
        )
        try:
            return cls(await asyncio.shield(connecting))
        except asyncio.CancelledError:
            connecting.add_done_callback(_close_unwanted)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End its readers, subscriptions and waits, and give back the threads and the connections.

        Calls that were begun, or wait for a thread, end first, as does the event that a subscription has in hand
        (where that closes this, it ends later). Closing twice does nothing.
        """
        self._is_closed = True
        for one in self._lasting:
            one.close()
        for one in self._lasting:
            if isinstance(one, AsyncSubscription):
                with suppress(Exception):  # who joins it is told
                    await one.join()
        await asyncio.shield(self._give_back())

    async def _give_back(self) -> None:
        try:
            await self._calls.close()
        finally:
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._waits.close()
        self.broker.close()

    async def run(self, call: Callable[[], T]) -> T:
        """Await what blocks, on a thread of this client. Once begun it ends, also where its caller gave it up."""
        self._check_open()
        return await self._calls.run(call)

    # --- reading ---------------------------------------------------------------------------------

    find = twin(Broker.find)
    get = twin(Broker.get)
    jobs = twin(Broker.jobs)
    select = stream(Broker.select)
    listed = twin(Broker.listed)
    list_records = twin(Broker.list_records)
    show = twin(Broker.show)
    why = twin(Broker.why)
    result = twin(Broker.result)
    output = twin(Broker.output)
    replay = twin(Broker.replay)
    origins = twin(Broker.origins)
    nodes = twin(Broker.nodes)
    workers = twin(Broker.workers)
    groups = twin(Broker.groups)
    parked = twin(Broker.parked)
    audit = twin(Broker.audit)
    repairs = twin(Broker.repairs)

    async def wait(self, key: Key | str, timeout: float | None = None) -> Record | None:
        """See `Broker.wait`. Any number of waits share two threads and two connections."""
        if isinstance(key, str):
            key = await self.find(key)
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Record | None] = loop.create_future()

        def settle(answer: Answer) -> None:
            if told.done():
                return
            if isinstance(answer, Exception):
                told.set_exception(answer)
            else:
                told.set_result(answer)

        def tell(answer: Answer) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, answer)

        wait = Wait(key, timeout)
        self._waits.enter(wait, tell)
        try:
            return await told
        finally:
            self._waits.leave(wait)

    def log(self, origin: str) -> AsyncLog:
        """The log of one origin."""
        return AsyncLog(self.broker.log(origin), self.run)

    # --- following -------------------------------------------------------------------------------

    def watch(self, origins: list[str] | None = None) -> AsyncReader:
        """A reader of its own: `await snapshot()`, then `await changes(wait_ms)`, or `async for` them; close it."""
        self._check_open()
        readers = self.broker.readers(origins)
        return self._lasts(AsyncReader(partial(readers.open, "watcher"), on_close=readers.close))

    def readers(
        self,
        origins: list[str] | None = None,
        *,
        told: Callable[[Change, Record | None], None] | None = None,
    ) -> AsyncReaders:
        """For many readers in one process: they share one connection and one list. Close it, or `async with` it.

        `told` is called in a thread with each change and the record before it: see `Readers`.
        """
        self._check_open()
        return self._lasts(AsyncReaders(self.broker.readers(origins, told=told)))

    def subscribe(
        self,
        name: str,
        handler: Callable[[Delivery], Awaitable[object]],
        *,
        origins: Sequence[str] | None = None,
        tries: int = TRIES_MAX,
        on_gone: Callable[[Gone], Awaitable[object]] | None = None,
    ) -> AsyncSubscription:
        """See `Broker.subscribe`: `handler` and `on_gone` are coroutine functions, awaited in this event loop."""
        self._check_open()
        return self._lasts(
            AsyncSubscription(
                self.broker, name, handler, origins=origins, tries=tries, on_gone=on_gone
            )
        )

    # --- inside ----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("this client is closed")

    def _lasts(self, one: Lasting) -> Lasting:
        self._lasting = [known for known in self._lasting if not _has_ended(known)]
        self._lasting.append(one)
        return one


def _has_ended(one: AsyncReaders | AsyncReader | AsyncSubscription) -> bool:
    return one.ended if isinstance(one, AsyncSubscription) else one.closed


def _close_unwanted(connecting: asyncio.Future[Broker]) -> None:
    """Whoever asked for it was cancelled meanwhile."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()
