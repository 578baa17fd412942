"""When this machine stood still: no bound of time runs then, and whoever measures one tells how long that was."""

from __future__ import annotations

import threading
import time

#: How often a thread wants to run, and how late it must be so that the machine did something else; in seconds.
TICK_SECONDS, LATE_SECONDS = 0.01, 0.05
#: A row that ran on a machine that stood still for a larger part of its time has measured nothing.
STILL_SHARE_MAX = 0.9


class Awake(threading.Thread):
    """Watches this machine from its start until it is closed. Times are of the monotonic clock, in seconds."""

    def __init__(self):
        super().__init__(name="awake", daemon=True)
        self.begun = time.monotonic()
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._ticked = self.begun
        self._stills = []  #: from when until when it stood still

    def close(self):
        self._closed.set()
        self.join()

    def run(self):
        while not self._closed.wait(TICK_SECONDS):
            self._tick()

    def _tick(self):
        with self._lock:
            now = time.monotonic()
            if now - self._ticked > LATE_SECONDS:
                self._stills.append((self._ticked + TICK_SECONDS, now))
            self._ticked = now

    def stills(self, begun, ended):
        """For how long it stood still between two moments, each time."""
        self._tick()  # whoever asks may be the first who wakes
        return [
            min(until, ended) - max(since, begun)
            for since, until in self._stills
            if since < ended and until > begun
        ]

    def between(self, begun, ended):
        """How long it was awake between two moments."""
        return ended - begun - sum(self.stills(begun, ended))

    def since(self, begun):
        return self.between(begun, time.monotonic())

    def told(self):
        """Counted for whoever reads what a row measured."""
        now = time.monotonic()
        stills = self.stills(self.begun, now)
        share = sum(stills) / (now - self.begun)
        assert share <= STILL_SHARE_MAX, f"this machine stood still for {share:.0%} of the time"
        return {
            "the machine stood still": f"{len(stills)} times, {sum(stills):.1f} s in all, "
            f"{max(stills, default=0):.1f} s at most"
        }
