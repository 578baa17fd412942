"""Which records of an origin are past their bounds: looked for a page at a time, so that no look holds anybody up.

It lets nothing go: whoever prunes names the record as it was read here, and the merge refuses where it moved since.
A record that cannot be pruned, because a foreign hand damaged it, must not hide those behind it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import redis

from broker.rules.bounds import Bounds
from broker.rules.event import AHEAD_MS_MAX, NUMBER_MAX
from broker.rules.key import Key
from broker.rules.record import REPORTED
from broker.store.connection import redis_errors
from broker.store.decode import read_text
from broker.store.store import Store

#: How many members of each listing one look reads.
PAGE = 100


class Aged(NamedTuple):
    """A record past its bounds, as it was read."""

    key: Key
    rev: str
    last_seen: int
    ended: bool  #: listed among the ended ones; else a reported one that nobody speaks of


class Look(NamedTuple):
    """What one look found; `broken` are the jobs, as text, that are listed but cannot be read."""

    aged: list[Aged]
    broken: list[str]


class _Candidate(NamedTuple):
    """A listed job that may be aged: it is, unless it was seen after `seen_max`."""

    job: str
    seen_max: int
    ended: bool


#: Members of a listing with their scores.
_Listed = list[tuple[bytes, float]]


class AgedRecords:
    """Those of one origin. Keeps where it stands: in the scan of `live`, and behind what is stuck in `done`."""

    def __init__(self, store: Store, origin: str, bounds: Bounds) -> None:
        self._store = store
        self._origin = origin
        self._bounds = bounds
        self._keys = store.keys.of(origin)
        self._cursor = 0
        self._passed = 0

    def look(self, now: int) -> Look:
        """The next page of them, the longest ended first. `now` is Redis's time. Raises Unavailable, Damaged."""
        with redis_errors(), self._store.client.pipeline(transaction=False) as pipe:
            pipe.zcard(self._keys.done)
            pipe.zrange(self._keys.done, self._passed, self._passed + PAGE - 1, withscores=True)
            pipe.zscan(self._keys.live, self._cursor, count=PAGE)
            count, oldest, (self._cursor, open_ones) = pipe.execute()
        ended = self._ended(count - self._passed, oldest, now)
        if not ended:
            self._passed = 0  # from the head again, next time
        found = self._read(ended + self._silent(open_ones, now))
        self.pass_over(len(ended) - sum(aged.ended for aged in found.aged))
        return found

    def pass_over(self, count: int) -> None:
        """So many of the ended ones that were found stay where they are: look behind them next time."""
        self._passed += count

    def _ended(self, count: int, oldest: _Listed, now: int) -> list[_Candidate]:
        """Of the oldest in `done`, those beyond the count and those beyond the age: both are at its head.

        When they ended is their producer's word. By age goes only what Redis's own clock calls old as well, or the jobs
        of a producer whose clock is behind would be gone as soon as they end.
        """
        too_many = max(0, count - self._bounds.done_max)
        ended_max = now - self._bounds.done_ms_max
        return [
            _Candidate(read_text(job), NUMBER_MAX if at < too_many else ended_max, True)
            for at, (job, ended_at) in enumerate(oldest)
            if at < too_many or ended_at <= ended_max
        ]

    def _silent(self, listed: _Listed, now: int) -> list[_Candidate]:
        """Of these in `live`, those that may have been silent for so long.

        A job was seen no earlier than it was created, but for a clock that may run ahead by so much.
        """
        seen_max = now - self._bounds.silence_ms_max
        return [
            _Candidate(read_text(job), seen_max, False)
            for job, created_at in listed
            if created_at <= seen_max + AHEAD_MS_MAX
        ]

    def _read(self, candidates: list[_Candidate]) -> Look:
        with redis_errors():
            pipe = self._store.client.pipeline(transaction=False)
            for candidate in candidates:
                job_key = self._keys.of_job(candidate.job).job
                pipe.hmget(job_key, "kind", "rev", "last_seen")
            replies = pipe.execute(raise_on_error=False)
            for reply in replies:
                if isinstance(reply, redis.RedisError) and "WRONGTYPE" not in str(reply):
                    raise reply
        look = Look([], [])
        for (job, seen_max, ended), reply in zip(candidates, replies, strict=True):
            try:
                kind, rev, last_seen = (raw.decode() for raw in cast("list[Any]", reply))
                aged = Aged(Key.of_job(self._origin, job), rev, int(last_seen or 0), ended)
            except (AttributeError, TypeError, ValueError):
                look.broken.append(job)
            else:
                if aged.last_seen <= seen_max and (ended or kind == REPORTED):
                    look.aged.append(aged)
        return look
