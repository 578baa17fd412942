"""Line: the two bytes that a worker and its horse share across the fork.

Plain shared memory: it needs no lock, no Redis and no signal, so that it works while any of them does not.
The parent writes the wish, the horse its phase; each byte has one writer.
"""

from __future__ import annotations

import mmap
from enum import IntEnum


class Wish(IntEnum):
    """What the horse is asked for. The first one stands."""

    RUN = 0
    CANCEL = 1  #: the user wants it to end
    TIMEOUT = 2  #: its time is over
    FENCE = 3  #: the attempt was given up elsewhere: end, and say nothing


class Phase(IntEnum):
    """How far the horse is."""

    FORKED = 0
    RUNNING = 1  #: the fork did not hang: our code runs in it
    SAID = 2  #: its word on the attempt was answered, or nobody asks for it any more
    UNSAID = 3  #: its word could not be said: Redis stayed away for too long


class Line:
    """One execution's line. Make it before the fork; a new one for each job, so that no stray child of an earlier
    one can speak on it.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 2)  # anonymous and shared

    @property
    def wish(self) -> Wish:
        return Wish(self._memory[0])

    def ask(self, wish: Wish) -> None:
        """Ask for an end; once asked, another wish changes nothing."""
        if not self._memory[0]:
            self._memory[0] = wish

    @property
    def phase(self) -> Phase:
        return Phase(self._memory[1])

    def reach(self, phase: Phase) -> None:
        self._memory[1] = phase

    def reset(self) -> None:
        """For the next job, where one process runs them all."""
        self._memory[:] = b"\0\0"
