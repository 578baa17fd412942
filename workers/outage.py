"""Outage: what a worker's process tells of a Redis that does not take its calls: when it begins, and when it is over.

Several kinds of calls fail together then, in two threads: it is one story. It is over when each kind that failed was
taken again, so that one which fails for good beside others that do not is no story a second.
"""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger("workers")


class Outage:
    """Of one process. Its threads say of each call what became of it."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._failing: set[str] = set()
        self._since = 0.0
        self._over_at = float("-inf")

    def met(self, what: str, begun: float, failed: Exception) -> None:
        """A call of this kind, which began then by the monotonic clock, failed."""
        with self._lock:
            # One that began in the last outage and fails only now is a part of that one.
            if begun < self._over_at:
                return
            if not self._failing:
                self._since = begun
                said = str(failed).removesuffix(".")
                log.warning("worker %s: cannot %s: %s; trying on", self._worker, what, said)
            self._failing.add(what)

    def taken(self, what: str) -> None:
        """A call of this kind went well."""
        with self._lock:
            if what not in self._failing:
                return
            self._failing.discard(what)
            if not self._failing:
                self._over_at = time.monotonic()
                seconds = self._over_at - self._since
                log.warning("worker %s: all is well again after %.1f s", self._worker, seconds)
