"""A clock that stands still until a test moves it."""

from __future__ import annotations


class StillClock:
    """Begins at Redis's time; `ahead_ms` is what the test added since."""

    def __init__(self, clock):
        self.begun_at = clock.now()
        self.ahead_ms = 0

    def now(self):
        return self.begun_at + self.ahead_ms
