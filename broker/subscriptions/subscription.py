"""Subscription: a member of a group on threads of its own, for handlers that are functions or coroutine functions.

It knows when to step, to wait and to stop; what is delivered, and in which order, is the member's.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from broker.errors import BrokerError, Gone
from broker.jobs.catalog import Catalog
from broker.subscriptions.delivery import Delivery
from broker.subscriptions.handler import check_coroutine_function
from broker.subscriptions.member import TRIES_MAX, Member

#: The longest sleep between two steps, in ms.
WAIT_MS_MAX = 1_000
#: After a ring that brought nothing it rests, so that a bell that rings without end does not make it spin.
REST_SECONDS = 0.05
#: The pause after the first failure, and the longest one, in seconds.
PAUSE_SECONDS_MIN = 0.05
PAUSE_SECONDS_MAX = 2.0
#: How often it is noticed that an event loop was closed under its handler, in seconds.
LOOP_LOOK_SECONDS = 0.5

_OWN_END = "a handler cannot wait for the end of its own subscription: close it"

Value = TypeVar("Value")

_log = logging.getLogger(__package__)


class Subscription:
    """Delivers to a member's handler, in a thread, until it is closed. A context manager: it closes, then joins.

    The handler is called by one thread, never twice at once. Make it after forking.
    """

    def __init__(self, member: Member, *, on_end: Callable[[], object] | None = None) -> None:
        self._member = member
        self._on_end = on_end
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._trouble = _Trouble(member.name)
        self._threads = [
            threading.Thread(target=target, name=f"broker-{what}-{member.name}", daemon=True)
            for what, target in (("subscription", self._run), ("leases", self._keep))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def owned(self) -> list[str]:
        """The origins that this member reads now; the group's other members read the others."""
        return self._member.owned

    @property
    def ended(self) -> bool:
        """Whether nothing is delivered any more."""
        return self._ended.is_set()

    def close(self) -> None:
        """End it, from any thread and from inside the handler; returns at once. Closing twice does nothing.

        No further event is begun. The one in hand is finished, and the group's other members may then read on.
        """
        self._stop.set()
        self._member.close()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, `timeout` seconds at most: whether it has. Raises what ended it, if not `close`."""
        if threading.current_thread() in self._threads:
            raise RuntimeError(_OWN_END)
        if not self._ended.wait(timeout):
            return False
        for thread in self._threads:
            thread.join()
        self.check()
        return True

    def check(self) -> None:
        """Raise what ended it, if anything but `close` did."""
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        self.join()

    def _run(self) -> None:
        try:
            while not self._member.closing:
                self._trouble.meets(self._step, self._stop)
        except BaseException as error:  # noqa: BLE001 - whoever joins is told
            _log.error("the subscription of group %s ends: %r", self._member.name, error)
            self._error = error
        finally:
            self._stop.set()
            try:
                self._member.leave()
            finally:
                self._ended.set()
                if self._on_end is not None:
                    self._on_end()

    def _step(self) -> None:
        if not self._member.step() and self._member.wait(WAIT_MS_MAX) and not self._member.step():
            self._stop.wait(REST_SECONDS)

    def _keep(self) -> None:
        """Renew the leases until the last entry is finished."""
        while not self._ended.wait(self._member.lease_ms / 3_000):
            self._trouble.meets(self._renew, self._ended)

    def _renew(self) -> None:
        self._member.renew()
        self._member.watch_lag()


class AsyncSubscription:
    """The same for a coroutine function, which runs in the event loop that this is made in; `async with` it.

    `handler` and `on_gone` are awaited, one event after the other; the loop is never held up by Redis.
    """

    def __init__(
        self,
        broker: Catalog,
        name: str,
        handler: Callable[[Delivery], Awaitable[object]],
        *,
        origins: Sequence[str] | None = None,
        tries: int = TRIES_MAX,
        on_gone: Callable[[Gone], Awaitable[object]] | None = None,
    ) -> None:
        check_coroutine_function("handler", handler)
        if on_gone is not None:
            check_coroutine_function("on_gone", on_gone)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._handling: asyncio.Task[Any] | None = None
        member = Member(
            broker.store,
            broker.config,
            name,
            lambda delivery: self._await(handler, delivery),
            origins=origins,
            tries=tries,
            on_gone=None if on_gone is None else lambda gone: self._await(on_gone, gone),
        )
        self._subscription = Subscription(member, on_end=self._say_ended)

    @property
    def owned(self) -> list[str]:
        """See `Subscription.owned`."""
        return self._subscription.owned

    @property
    def ended(self) -> bool:
        """See `Subscription.ended`."""
        return self._subscription.ended

    def close(self) -> None:
        """See `Subscription.close`."""
        self._subscription.close()

    async def join(self, timeout: float | None = None) -> bool:
        """See `Subscription.join`."""
        if self._handling is not None and asyncio.current_task() is self._handling:
            raise RuntimeError(_OWN_END)
        try:
            await asyncio.wait_for(self._ended.wait(), timeout)
        except TimeoutError:
            return False
        self.check()
        return True

    def check(self) -> None:
        """See `Subscription.check`."""
        self._subscription.check()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
        await self.join()

    def _await(self, function: Callable[[Value], Awaitable[object]], value: Value) -> None:
        """Run it in the loop, from the member's thread. A loop that was closed ends the subscription."""

        async def run() -> None:
            self._handling = asyncio.current_task()
            await function(value)

        running = run()
        try:
            future = asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:
            running.close()
            raise _LoopClosed from None
        while not concurrent.futures.wait([future], LOOP_LOOK_SECONDS).done:
            if self._loop.is_closed():
                raise _LoopClosed
        future.result()

    def _say_ended(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(self._ended.set)


class _LoopClosed(BaseException):
    """The event loop was closed while its subscription was still open."""


class _Trouble:
    """What fails is tried again with growing pauses, whatever it is; both threads together tell it once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._pauses: dict[int, float] = {}  # thread -> its last pause, while it is in trouble

    def meets(self, step: Callable[[], object], stop: threading.Event) -> None:
        """Take one step; where it fails, pause."""
        thread = threading.get_ident()
        try:
            step()
        except Exception as error:  # noqa: BLE001 - it outlives whatever one step met
            with self._lock:
                is_new = not self._pauses
                doubled = max(PAUSE_SECONDS_MIN, 2 * self._pauses.get(thread, 0))
                self._pauses[thread] = pause = min(doubled, PAUSE_SECONDS_MAX)
            if is_new:
                trace = None if isinstance(error, BrokerError) else error
                _log.warning("group %s: %s; trying on", self._name, error, exc_info=trace)
            stop.wait(pause * random.uniform(0.8, 1))
        else:
            with self._lock:
                is_over = self._pauses.pop(thread, 0) and not self._pauses
            if is_over:
                _log.warning("group %s works again", self._name)
