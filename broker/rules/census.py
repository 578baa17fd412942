"""What the records add up to: how many are where, who waits for how long, what an autoscaler needs, why jobs fail.

One pass over all records, each looked at once. A guess counts as what it replaced, as everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.rules.fingerprint import fingerprint
from broker.rules.key import Key
from broker.rules.record import SUBMITTED, Record, may_be_cut
from broker.rules.state import FAILED, QUEUED, RUN, RUNNING

#: What is told of the last minute, and of the last five, in milliseconds.
MINUTE_MS = 60_000
FAILED_MS = 300_000


@dataclass(slots=True)
class Failure:
    """Errors that are alike: how many jobs they ended, and the newest of these. `newest_at` is epoch ms."""

    error: str
    count: int
    newest_key: Key
    newest_at: int
    cut: bool = False  #: whether some of them may be only the beginning: a record keeps no more


@dataclass(slots=True)
class Census:
    """What was counted. Times are in milliseconds."""

    #: (state, engine, node) -> how many; the state is what a guess replaced, the node empty where there is none.
    jobs: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    guesses: int = 0
    ready: int = 0  #: submitted jobs that wait for a place and may have one
    delayed: int = 0  #: those that are not yet due
    placed: int = 0  #: those that were given to a node and have not started
    oldest_ready_ms: int | None = None  #: for how long the first of `ready` may have had a place
    #: By engine: the submitted jobs that somebody wants run now (wish `run`, due, not ended): so many slots would do.
    wanted: Counter[str] = field(default_factory=Counter)
    #: By engine: the submitted jobs that hold a slot: placed or running, also one that is to be cancelled.
    occupied: Counter[str] = field(default_factory=Counter)
    created: int = 0  #: in the last minute; jobs that are gone already are not counted, nor are they in those below
    ended: int = 0  #: in the last minute
    ended_lately: int = 0  #: in the last five minutes
    failed_lately: int = 0  #: of these
    failures: dict[str, Failure] = field(default_factory=dict)  #: by fingerprint

    def by_state(self) -> Counter[str]:
        """How many are in each state."""
        found: Counter[str] = Counter()
        for (state, _, _), count in self.jobs.items():
            found[state] += count
        return found

    @property
    def failed_share(self) -> float | None:
        """Of those that ended in the last five minutes; None where none did."""
        return self.failed_lately / self.ended_lately if self.ended_lately else None

    def worst(self, count: int) -> list[Failure]:
        """The errors that ended most jobs; of as many, the newer one first."""
        found = sorted(self.failures.values(), key=lambda one: (-one.count, -one.newest_at))
        return found[:count]


def ready_since(record: Record) -> int:
    """Since when a job that waits for a place may have one, epoch ms.

    One that was placed and taken back unstarted waits since before; one that ran, since what was decided of it last.
    """
    decided_at = int(record.rev.partition("-")[0] or 0) if record.tries else 0
    return max(record.created_at, record.due, decided_at)


def take(records: Mapping[Key, Record], now: int) -> Census:
    """Count them all; `now` is Redis's time, epoch ms."""
    census = Census()
    jobs, minute_ago = census.jobs, now - MINUTE_MS
    for key, record in records.items():
        state = record.guessed_from or record.state
        jobs[state, key.engine, record.node] += 1
        if minute_ago < record.created_at <= now:
            census.created += 1
        if record.guessed_from:
            census.guesses += 1
        elif state not in (QUEUED, RUNNING):
            _count_ended(census, key, record, now)
            continue
        if record.kind == SUBMITTED:
            _count_live(census, key, record, state, now)
    return census


def _count_live(census: Census, key: Key, record: Record, state: str, now: int) -> None:
    is_due = record.due <= now
    if record.desired == RUN and (is_due or state == RUNNING):
        census.wanted[key.engine] += 1
    if state == RUNNING or record.node:
        census.occupied[key.engine] += 1
        census.placed += state == QUEUED
    elif not record.ready:
        return
    elif is_due:
        census.ready += 1
        waited = max(0, now - ready_since(record))
        census.oldest_ready_ms = max(waited, census.oldest_ready_ms or 0)
    else:
        census.delayed += 1


def _count_ended(census: Census, key: Key, record: Record, now: int) -> None:
    # When the end was accepted, by Redis's clock: a reporter's own word on it may be anything.
    at = int(record.rev.partition("-")[0] or 0)
    if now - at < FAILED_MS:
        census.ended_lately += 1
        census.failed_lately += record.state == FAILED
        census.ended += now - at < MINUTE_MS
    if record.state != FAILED:
        return
    said = record.error or record.reason
    error = fingerprint(said)
    known = census.failures.get(error)
    if known is None:
        known = census.failures[error] = Failure(error, 0, key, at)
    known.count += 1
    known.cut = known.cut or may_be_cut(said)
    if at >= known.newest_at:
        known.newest_key, known.newest_at = key, at
