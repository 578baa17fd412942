"""Calls: the threads on which an asyncio client makes the calls that block, and who waits for one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from math import inf
from typing import TypeVar

from broker.errors import Busy

T = TypeVar("T")

#: How many calls are made at once; others wait for their turn, first come, first served.
THREADS = 8


class Calls:
    """A small pool of threads, for one event loop; `close` it.

    At most `waiting_max` calls wait for a thread, each for `wait_seconds_max` at most; without these, any number for
    as long as it takes. A call that was given up before its turn, by its caller or by these bounds, is never made.
    """

    def __init__(self, *, waiting_max: float = inf, wait_seconds_max: float | None = None) -> None:
        self._waiting_max = waiting_max
        self._wait_seconds_max = wait_seconds_max
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="broker-calls")
        # The pool's own queue would keep a call that was given up until a thread is free.
        self._free = asyncio.Semaphore(THREADS)
        self._waiting = 0
        self._closing = asyncio.Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Await what blocks. Once begun it ends, also where its caller gave it up. Raises Busy."""
        await self._turn()
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(self._free.release)

        running = self._threads.submit(call)
        running.add_done_callback(ended)
        return await asyncio.wrap_future(running)

    async def close(self) -> None:
        """End the threads, after the calls that are running or waiting now."""
        try:
            async with self._closing, AsyncExitStack() as turns:
                for _ in range(THREADS):
                    await turns.enter_async_context(self._free)
        finally:
            self._threads.shutdown(wait=False)

    async def _turn(self) -> None:
        if self._free.locked() and self._waiting >= self._waiting_max:
            raise Busy(f"{self._waiting} calls wait already: this one was not made")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await self._free.acquire()
        except TimeoutError:
            waited = f"{self._wait_seconds_max:g} s"
            raise Busy(
                f"other calls took all threads for {waited}: this one was not made"
            ) from None
        finally:
            self._waiting -= 1
