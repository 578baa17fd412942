"""How long jobs waited and ran, told from one change to the next.

A wait ends with a start, and begins when the job might first have started: for one that ran before, when it was queued
again, or was due after that. A run ends with the word on its end, or with the job being queued again.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.rules.state import QUEUED, RUNNING

WAIT, RUN = "wait", "run"
#: How a run ended that was none of the job's end.
RETRIED = "retried"
#: What is longer was told by a clock that is wrong.
MS_MAX = 366 * 86_400_000


class Span(NamedTuple):
    """One wait or run, in milliseconds; of a run also how it ended: `completed`, `failed`, `cancelled`, `retried`."""

    kind: str
    engine: str
    ms: int
    end: str = ""


class Stopwatch:
    """Is shown each change with the record before it. What a new listing found tells no times."""

    def __init__(self) -> None:
        #: The jobs that ran, and wait again: since when.
        self._since: dict[Key, int] = {}

    def follow(self, change: Change, before: Record | None) -> list[Span]:
        """The wait and the run that ended with this change, if any did."""
        key, record = change.key, change.record
        if record is None or change.synthesized:
            self._since.pop(key, None)
            return []
        if before is not None and before.created_at != record.created_at:
            self._since.pop(key, None)
            before = None
        if before is not None and before.ended:
            return []
        at = int(change.rev.partition("-")[0] or 0)
        was = before.believed if before else ""
        found: list[Span] = []
        if was == RUNNING and before is not None:
            found += self._end(key, record, before, at)
        elif record.state == RUNNING and not record.inferred:
            # Of a job that is first heard of as it runs, only its origin knows when it started.
            started_at = record.started_at or (at if before else 0)
            found += self._start(key, record, started_at)
        elif record.ended:
            if record.started_at:  # nobody told that it ran
                found += self._start(key, record, record.started_at)
                found += _span(RUN, key, record.started_at, record.completed_at or at, record.state)
            self._since.pop(key, None)
        return found

    def _start(self, key: Key, record: Record, started_at: int) -> list[Span]:
        since = self._since.pop(key, 0) or max(record.created_at, record.due)
        return _span(WAIT, key, since, started_at)

    def _end(self, key: Key, record: Record, before: Record, at: int) -> list[Span]:
        if record.ended:
            return _span(RUN, key, before.started_at, record.completed_at or at, record.state)
        if record.state == QUEUED:
            self._since[key] = max(at, record.due)
            return _span(RUN, key, before.started_at, at, RETRIED)
        return []


def _span(kind: str, key: Key, since: int, until: int, end: str = "") -> list[Span]:
    """Nothing where one of the two is not known, or cannot be."""
    if not since or not until or until - since > MS_MAX:
        return []
    return [Span(kind, key.engine, max(0, until - since), end)]
