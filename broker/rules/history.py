"""The newest changes that all readers of one list were told, numbered: what a reader that comes back missed.

It is bounded by count. Who comes back from before its oldest change is not told a part of what it missed, but that it
must list again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from broker.rules.record import Record
from broker.rules.replay import Change

#: How many changes are kept.
HISTORY_MAX = 10_000


class Step(NamedTuple):
    """A change, and the record that was known before it: whom it concerns is told by both."""

    change: Change
    before: Record | None


class History:
    """`number` counts every step ever added; the place after the third one is 3."""

    def __init__(self, size: int = HISTORY_MAX) -> None:
        self._steps: deque[Step] = deque(maxlen=size)
        self.number = 0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, steps: Iterable[Step]) -> None:
        """What was told to all, in its order."""
        for step in steps:
            self._steps.append(step)
            self.number += 1

    def since(self, number: int) -> list[Step] | None:
        """The steps after that place; None where they are not (all) known."""
        missed = self.number - number
        if not 0 <= missed <= len(self._steps):
            return None
        return list(islice(self._steps, len(self._steps) - missed, None))
