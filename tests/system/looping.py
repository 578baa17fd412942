"""What the tests of the asyncio client stand on: an event loop on a thread of its own, as a program has it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self

from broker import AsyncBroker, Broker

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
