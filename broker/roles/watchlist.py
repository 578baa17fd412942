"""Which jobs a sweeper has to look at, and when: those that somebody holds, or speaks of.

Fed with one job's newest record at a time, each in O(log n): no step of a sweeper looks at all jobs. What it keeps of
a job may be old, for beats are not logged: whoever finds a job due reads it anew, and puts it back. It judges nobody
and talks to nobody.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable

from broker.rules.key import Key
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.replay import Change, rev_order
from broker.rules.sweep import NEVER, Around, due_at, is_watched

#: The queue is made anew when it holds more entries that no longer count.
SLACK = 1_000


class Watchlist:
    """The watched jobs, each as it was seen last."""

    def __init__(self) -> None:
        #: Attempts that were given up: the job, and the record under which somebody may still have it in hand.
        self.given_up: deque[tuple[Key, Record]] = deque()
        self._records: dict[Key, Record] = {}
        self._due: dict[Key, int] = {}
        self._queue: list[tuple[int, Key]] = []  # may hold entries that `_due` no longer knows
        self._of: dict[str, set[Key]] = {}  # by the nodes and origins that a job depends on

    def __len__(self) -> int:
        return len(self._records)

    @property
    def names(self) -> Collection[str]:
        """The nodes and origins that jobs depend on: a job of ours on its node, a reported one on both."""
        return self._of.keys()

    def follow(self, change: Change, around: Around) -> None:
        """What the log told. It may be older than what was read of the job since."""
        known = self._records.get(change.key)
        is_older = known is not None and rev_order(change.rev) <= rev_order(known.rev)
        # A new listing is the truth also where a log fell back with its Redis.
        if change.synthesized or not is_older:
            self.put(change.key, change.record, around)

    def put(self, key: Key, record: Record | None, around: Around, not_before: int = 0) -> None:
        """A job as it is now, None where it is gone; it is not due before `not_before`."""
        known = self._records.pop(key, None)
        self._due.pop(key, None)
        if known is not None:
            for name in _names(key, known):
                self._of[name].discard(key)
                if not self._of[name]:
                    del self._of[name]
            if _is_given_up(known, record):
                self.given_up.append((key, known))
        if record is None or not is_watched(record):
            return
        self._records[key] = record
        for name in _names(key, record):
            self._of.setdefault(name, set()).add(key)
        self._await(key, max(not_before, due_at(key, record, around)))

    def review(self, names: Iterable[str], around: Around) -> None:
        """Something about these nodes or origins changed: so may what their jobs wait for."""
        for name in names:
            for key in self._of.get(name, ()):
                self._await(key, due_at(key, self._records[key], around))

    def take_due(self, now: int, count: int, again_at: int) -> list[Key]:
        """The jobs to look at, at most `count`; each is due again then, unless it is put back."""
        found: list[Key] = []
        while self._queue and self._queue[0][0] <= now and len(found) < count:
            due, key = heapq.heappop(self._queue)
            if self._due.get(key) == due:
                found.append(key)
                self._await(key, again_at)
        return found

    def _await(self, key: Key, due: int) -> None:
        if due == NEVER:
            self._due.pop(key, None)
        elif self._due.get(key) != due:
            self._due[key] = due
            heapq.heappush(self._queue, (due, key))
            if len(self._queue) > 2 * len(self._due) + SLACK:
                self._queue = [(at, waiting) for waiting, at in self._due.items()]
                heapq.heapify(self._queue)


def _names(key: Key, record: Record) -> set[str]:
    return {record.node, key.origin} - {""} if record.kind == REPORTED else {record.node}


def _is_given_up(known: Record, record: Record | None) -> bool:
    """Whether an attempt of ours that stood on a node stands there no more, though nobody said how it ended."""
    if known.kind != SUBMITTED:
        return False
    if record is None or record.created_at != known.created_at:
        return True
    return record.attempt > known.attempt
