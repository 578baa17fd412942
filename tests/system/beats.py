"""A clock that stands still whenever this machine does: for what must be over soon, on whatever machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

BEAT_SECONDS = 0.01


class Beats:
    """Counts while it is open, on a thread that wants to run every 10 ms, how often it came to run.

    So it never runs ahead of the time, and what this machine does for others does not count. A context manager.
    `asks`: what it waits for before it counts, an answer of Redis for example: so it stands still when that does.
    """

    def __init__(self, asks: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._asks = asks
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @property
    def seconds(self) -> float:
        return self.count * BEAT_SECONDS

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._done.wait(BEAT_SECONDS):
            self._asks()
            self.count += 1
