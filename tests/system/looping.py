"""What the tests of the asyncio client stand on: a loop on a thread of its own, and how to tell that one ticks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self

from broker import AsyncBroker, Broker
from tests.system.beats import BEAT_SECONDS, Beats

#: How long anything here may take, in seconds.
SECONDS_MAX = 30.0


class Loop:
    """Runs coroutines of a test that does not want to be one itself."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._twins: list[AsyncBroker] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        for twin in self._twins:
            self.run(twin.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(SECONDS_MAX)
        self.loop.close()

    def twin(self, broker: Broker) -> AsyncBroker:
        """The client's twin, closed at the end."""
        for known in self._twins:
            if known.broker is broker:
                return known
        self._twins.append(AsyncBroker(broker))
        return self._twins[-1]

    def begin(self, running: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(running, self.loop)

    def run(self, running: Coroutine[Any, Any, Any]) -> Any:
        return self.begin(running).result(SECONDS_MAX)


class Pulse:
    """Whether the event loop ticks on: how often a thread beside it beat while the loop did not come to its turn.

    A machine that stands still stops both, and a loop that waits for something stops alone. For `async with`.
    """

    def __init__(self) -> None:
        self._beats = Beats()
        #: The most beats between two ticks of the loop.
        self.missed_max = 0

    async def __aenter__(self) -> Self:
        self._beats.__enter__()
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.beaten(1)  # the last gap counts as well
        self._ticking.cancel()
        self._beats.__exit__()

    async def beaten(self, count: int) -> None:
        """So many more beats."""
        until = self._beats.count + count
        while self._beats.count < until:  # noqa: ASYNC110 - the loop is to tick meanwhile
            await asyncio.sleep(BEAT_SECONDS)

    async def _tick(self) -> None:
        while True:
            before = self._beats.count
            await asyncio.sleep(BEAT_SECONDS)
            self.missed_max = max(self.missed_max, self._beats.count - before)
