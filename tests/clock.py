"""Redis's time, and what a test adds to it."""

from __future__ import annotations


class MovedClock:
    def __init__(self, clock):
        self.clock = clock
        self.ahead_ms = 0

    def now(self):
        return self.clock.now() + self.ahead_ms
