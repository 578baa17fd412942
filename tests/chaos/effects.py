"""What jobs really did: a ledger beside the broker, one line an execution's beginning and end.

Lines are appended by one write(2) each, so those of many processes never mix.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple


class Effect(NamedTuple):
    """`what` is begin or end; `at` is the time of this machine's monotonic clock, in seconds."""

    what: str
    key: str
    attempt: int
    pid: int
    at: float


def note(what, key, attempt):
    """Called by the engine, in its own process."""
    line = f"{what} {key} {attempt} {os.getpid()} {time.monotonic():.6f}\n"
    file = os.open(os.environ["CHAOS_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


class Effects:
    def __init__(self, path):
        self.path = Path(path)

    def read(self):
        """All effects so far, in the order in which they happened."""
        if not self.path.exists():
            return []
        found = [line.split(" ") for line in self.path.read_text().splitlines()]
        return [Effect(what, key, int(n), int(pid), float(at)) for what, key, n, pid, at in found]

    def begun(self, key=None):
        """How often each (key, attempt) began."""
        return Counter(
            (effect.key, effect.attempt)
            for effect in self.read()
            if effect.what == "begin" and key in (None, effect.key)
        )
