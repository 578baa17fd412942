"""Whether a reader falls behind for good, or only breathes."""

from __future__ import annotations

#: A lag is compared with what it was so long ago, so it is told once in that time at most.
WINDOW_MS = 60_000
#: By how much it must have grown: less is the time that one event takes.
GROWTH_MS_MIN = 1_000


class LagWatch:
    """Is shown the lag, again and again, and says when it has grown from one minute to the next."""

    def __init__(self) -> None:
        self._since: int | None = None
        self._lag_ms = 0

    def grew(self, now: int, lag_ms: int) -> int:
        """By how many milliseconds the lag grew in the last minute; 0 where it did not, or is not yet known to."""
        if self._since is not None and lag_ms and now - self._since < WINDOW_MS:
            return 0
        grown = lag_ms - self._lag_ms if self._since is not None else 0
        self._since, self._lag_ms = now, lag_ms
        return grown if grown >= GROWTH_MS_MIN else 0
