"""Clears away what RQ keeps of attempts that were given up, and of workers that are gone. It judges nobody.

RQ finds out by itself after minutes, or never. What is damaged there is told and left to the auditor: it must not hold
up those that are judged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from broker.errors import Damaged
from broker.roles.handoff import Handoff
from broker.roles.leftovers import find_over
from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.nodes import WorkerSeen
from broker.store.view import View

#: How many of each kind one step clears away at most.
CLEAR_MAX = 100
#: RQ's list of workers is cleared of the dead so often, in seconds.
CLEAN_SECONDS = 60.0

Left = TypeVar("Left")


class Clearing:
    """`step()` does one bounded piece."""

    def __init__(self, view: View, handoff: Handoff, complain: Callable[[str], None]) -> None:
        self._view = view
        self._handoff = handoff
        self._complain = complain
        self._silent: set[str] = set()
        #: Workers that fell silent: RQ may keep attempts whose end they told, and which nobody else throws away.
        self._fallen: deque[WorkerSeen] = deque()
        self._clean_due = 0.0

    def note_silent(self, workers: Iterable[WorkerSeen]) -> None:
        """Those who are silent now: whoever was not before is looked after once."""
        silent = {worker.name: worker for worker in workers}
        self._fallen.extend(worker for name, worker in silent.items() if name not in self._silent)
        self._silent = set(silent)

    def step(self, given_up: deque[tuple[Key, Record]], here: float) -> int:
        """How much there was. Takes from `given_up` what is done; `here` is a monotonic clock, in seconds.

        Raises Unavailable; what was not cleared away then is cleared away by the next step.
        """
        done = self._clear(given_up, lambda attempt: self._handoff.discard(*attempt))
        done += self._clear(self._fallen, self._look_after)
        if here >= self._clean_due:
            self._clean_due = here + CLEAN_SECONDS
            try:
                self._handoff.forget_dead_workers()
            except Damaged as error:
                self._complain(f"RQ lists workers that are gone: {error}")
        return done

    def _clear(self, left: deque[Left], clear: Callable[[Left], int]) -> int:
        done = 0
        for _ in range(min(CLEAR_MAX, len(left))):
            try:
                done += clear(left[0])
            except Damaged as error:
                self._complain(f"something stays in RQ that is over: {error}")
            left.popleft()
        return done

    def _look_after(self, worker: WorkerSeen) -> int:
        """What a worker that fell silent still has in hand by RQ's word, though it is over."""
        noted = self._handoff.noted_by(worker.name, worker.node, worker.engine)
        over = [one for one, _ in find_over(self._view, self._handoff, noted)]
        return sum(map(self._handoff.discard_noted, over))
