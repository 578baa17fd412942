"""How long a retry waits: exponential, with full jitter, so that a crowd of failures does not return as a crowd."""

from __future__ import annotations

#: The first retry waits up to this long, each further one up to twice as long as the one before.
BACKOFF_MS_BASE = 1_000
BACKOFF_MS_MAX = 300_000


def backoff_ms(tries: int, chance: float) -> int:
    """Milliseconds to wait after the given number of tries (from 1); `chance` is uniform in [0, 1)."""
    ceiling = min(BACKOFF_MS_MAX, BACKOFF_MS_BASE * 2 ** min(tries - 1, 20))
    return int(chance * ceiling)
