"""Orders to end, for the long-running commands: an event to wait on, and how often it was ordered."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

_ORDERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Set by Ctrl-C, by SIGTERM and by the end of the terminal. `orders` counts them: a second one means `at once`.

    Then `again` is called, on a thread of ours.
    """

    def __init__(self, again: Callable[[], object] = lambda: None) -> None:
        self.event = threading.Event()
        self.orders = 0
        self._again = again
        # A handler may interrupt whoever holds the event's lock; a SimpleQueue has none to wait for.
        self._calls: SimpleQueue[bool] = SimpleQueue()
        threading.Thread(target=self._take, name="orders", daemon=True).start()

    def order(self, *_: object) -> None:
        """Take one order; safe in a signal handler."""
        self.orders += 1
        self._calls.put(True)

    def close(self) -> None:
        """Take no more."""
        self._calls.put(False)

    def _take(self) -> None:
        while self._calls.get():
            if self.event.is_set() and self.orders > 1:
                self._again()
            self.event.set()


@contextmanager
def stop_orders(again: Callable[[], object] = lambda: None) -> Iterator[Stop]:
    """Take the orders to end while inside; `again` is called at each but the first."""
    stop = Stop(again)
    before = {number: signal.signal(number, stop.order) for number in _ORDERS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()
