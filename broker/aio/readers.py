"""AsyncReaders and AsyncReader: the asyncio twins of `Readers` and `Reader`. They wait in the event loop, on a bell."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from broker.errors import BrokerError, Damaged, Resync, Unavailable
from broker.readers.readers import Reader, Readers
from broker.rules.filter import Filter
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.store.watch import Cursor, Snapshot

#: How long one turn of an iteration waits, in ms; nothing depends on it.
TURN_MS = 60_000


class Opens(Protocol):
    """Makes a reader that rings a bell."""

    def __call__(self, *, bell: Callable[[], None]) -> Reader: ...


class AsyncReaders:
    """Opens readers for this event loop; `async with` it, or `close` it. See `Readers`."""

    def __init__(self, readers: Readers) -> None:
        self.readers = readers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.readers.__exit__)

    def open(
        self, name: str = "", *, wanted: Filter | None = None, after: str | None = None
    ) -> AsyncReader:
        """One more reader, of this event loop; see `Readers.open`. Raises Resync."""

        def opens(*, bell: Callable[[], None]) -> Reader:
            return self.readers.open(name, wanted=wanted, after=after, bell=bell)

        return AsyncReader(opens, is_resumed=after is not None)

    def close(self) -> None:
        """End every reader, and the reading; returns at once. Closing twice does nothing."""
        self.readers.close()

    @property
    def drift(self) -> int:
        """See `Readers.drift`."""
        return self.readers.drift

    @property
    def records(self) -> dict[Key, Record]:
        """See `Readers.records`."""
        return self.readers.records

    @property
    def position(self) -> str:
        """See `Readers.position`."""
        return self.readers.position

    @property
    def is_listed(self) -> bool:
        """See `Readers.is_listed`."""
        return self.readers.is_listed

    @property
    def is_behind(self) -> bool:
        """See `Readers.is_behind`."""
        return self.readers.is_behind

    @property
    def trouble(self) -> BrokerError | None:
        """See `Readers.trouble`."""
        return self.readers.trouble

    @property
    def age_seconds(self) -> float:
        """See `Readers.age_seconds`."""
        return self.readers.age_seconds

    @property
    def turn_seconds(self) -> float:
        """See `Readers.turn_seconds`."""
        return self.readers.turn_seconds

    @property
    def closed(self) -> bool:
        """See `Readers.closed`."""
        return self.readers.closed


class AsyncReader:
    """Follows the list: `snapshot`, then `changes`, or `async for`; `async with` it. For one task, but for `close`."""

    def __init__(
        self,
        opens: Opens,
        *,
        is_resumed: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        news = self._news

        def ring() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(news.set)

        self._reader = opens(bell=ring)
        self._on_close = on_close
        self._is_listed = is_resumed
        #: What an iteration was not asked for yet, and where the reader stood before it.
        self._batch: deque[Change] = deque()
        self._stood: tuple[Cursor, str] = ({}, "")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """How warnings call it."""
        return self._reader.name

    @property
    def closed(self) -> bool:
        """Whether it has ended: nothing is told any more."""
        return self._reader.closed

    @property
    def cursor(self) -> Cursor:
        """See `Reader.cursor`. Within an iteration where it stood before the changes that were read together."""
        return dict(self._stood[0]) if self._batch else self._reader.cursor

    @property
    def position(self) -> str:
        """See `Reader.position`. Within an iteration where it stood before the changes that were read together."""
        return self._stood[1] if self._batch else self._reader.position

    @property
    def is_listed(self) -> bool:
        """See `Reader.is_listed`."""
        return self._reader.is_listed

    @property
    def trouble(self) -> BrokerError | None:
        """See `Reader.trouble`."""
        return self._reader.trouble

    async def snapshot(self) -> Snapshot:
        """See `Reader.snapshot`. One that was cancelled leaves the reader as one that has not listed."""
        self._is_listed = False
        self._batch.clear()
        while True:
            self._news.clear()
            if found := await asyncio.to_thread(self._reader.snapshot_if_listed):
                self._is_listed = True
                return found
            await self._news.wait()

    async def changes(self, wait_ms: int) -> list[Change]:
        """See `Reader.changes`. Cancelling it loses nothing: the next call tells it."""
        if self._batch:
            taken = [] if self.closed else list(self._batch)
            self._batch.clear()
            return taken
        deadline = asyncio.get_running_loop().time() + wait_ms / 1000
        while True:
            self._news.clear()
            try:
                taken = self._look()
                trouble = None
            except (Unavailable, Damaged) as met:
                taken, trouble = [], met
            left = deadline - asyncio.get_running_loop().time()
            if taken or self.closed:
                return taken
            if left <= 0:
                if trouble is not None:
                    raise trouble
                return []
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)

    def _look(self) -> list[Change]:
        if not self._is_listed and not self.closed:
            raise Resync(f"{self.name} has not listed yet: take a snapshot")
        return self._reader.changes(0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        """The next change; ends when the reader is closed. Raises Resync as `changes`; trouble it rides out."""
        while not self.closed:
            if self._batch:
                return self._batch.popleft()
            stood = (self._reader.cursor, self._reader.position)
            with suppress(Unavailable, Damaged):
                self._batch.extend(await self.changes(TURN_MS))
                self._stood = stood
        raise StopAsyncIteration

    def close(self) -> None:
        """End it, from any thread; returns at once. Closing twice does nothing."""
        self._reader.close()
        if self._on_close is not None:
            self._on_close()
