"""Holds an origin's records and indexes against its log, piece by piece, while others write.

First the log is folded, then every listing is walked through, and before each page the log is read on. What does not
fit is only a suspect: it is looked at once more, and it counts only if no entry spoke of the job, or of its pair, from
before the first look until after the second. All that moves a job without an entry is its way from `delayed` to
`ready`, once for each entry: it cannot spoil both looks. So what is found was so, however many write meanwhile.

It reads and judges; it mends nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import redis

from broker.errors import BrokerError, Gone, Unavailable
from broker.rules.audit import GHOST, NOTHING, Books, Finding, Look, judge
from broker.rules.liveness import Budgets
from broker.rules.record import REPORTED, SUBMITTED, Record
from broker.rules.replay import rev_order
from broker.rules.state import CLIMB, STATES
from broker.rules.told import Told
from broker.store.connection import redis_errors
from broker.store.decode import read_record
from broker.store.log import CHUNK_MAX, REV, Log, Place
from broker.store.store import Store

#: About how many jobs one step reads: some milliseconds.
PAGE = 500
#: How often a look is begun anew when the log was cut or replaced under it.
LOOKS_MAX = 5

_KINDS = (SUBMITTED, REPORTED)


class Audit:
    """One whole look at one origin. `step` until it is `done`; then `findings` holds all that is wrong there.

    `also` are jobs to look at though no index and no entry may lead to them.
    Raises Unavailable, and Damaged where a fixed key is of a wrong type. The next step begins anew.
    """

    def __init__(
        self,
        store: Store,
        origin: str,
        budgets: Budgets | None = None,
        also: Sequence[str] = (),
    ) -> None:
        self.origin = origin
        self.findings: list[Finding] = []
        self.done = False
        #: How many records were looked at so far.
        self.looked = 0
        self._store = store
        self._budgets = budgets or Budgets()
        self._also = also
        self._keys = store.keys.of(origin)
        self._log = Log(store, origin)
        self._begin()

    def step(self) -> bool:
        """Read on by one page or chunk; whether that was the last one."""
        if not self.done:
            try:
                self.done = next(self._walk, True) is True
            except BrokerError:
                self._begin()
                raise
        return self.done

    def _begin(self) -> None:
        self._walk = self._look_on()
        self._forget()

    def _forget(self) -> None:
        self._told = Told()
        self._place = Place("", "")
        #: What did not fit -> where the log had been read to before it was looked at.
        self._suspects: dict[str, str] = {}
        self._strange: dict[tuple[str, bytes], Finding] = {}
        self.looked = 0

    def _look_on(self) -> Iterator[None]:
        for _ in range(LOOKS_MAX):
            try:
                yield from self._look_once()
            except Gone:
                self._forget()
            else:
                return
        raise Unavailable(f"the log of {self.origin} is cut faster than it can be looked through")

    def _look_once(self) -> Iterator[None]:
        position = self._log.position()
        self._place = Place(position.epoch, position.floor)
        while self._read_on():
            yield
        yield from self._through_records()
        keys = self._keys
        for index in (keys.live, keys.done, keys.ready, keys.delayed):
            for jobs in self._pages(index):
                self._suspect_unlisted(jobs)
                yield
        for jobs in _in_pages([*self._told.bearing(), *self._also]):
            self._suspect_unlisted(jobs)
            yield
        yield from self._look_again()

    def _read_on(self) -> bool:
        """Bring the words up to date, by one chunk; whether there may be more."""
        chunk = self._log.read_on(self._place, CHUNK_MAX)
        for entry in chunk.entries:
            self._told.take(entry)
        self._place = chunk.place
        return chunk.is_full

    # --- the first look ------------------------------------------------------------------------

    def _through_records(self) -> Iterator[None]:
        for members in self._pages(self._keys.ids):
            jobs = [_job_of(member) for member in members]
            at = self._place.rev
            for job, finding in self._judged(jobs):
                if finding:
                    self._suspects[job] = at
            self.looked += len(jobs)
            yield

    def _pages(self, index: str) -> Iterator[list[str]]:
        """The members of an index, page by page; before each, the log is read on.

        ZSCAN: each that is there from beginning to end comes at least once, whatever comes and goes.
        """
        cursor = 0
        while True:
            self._read_on()
            with redis_errors():
                cursor, found = self._store.client.zscan(index, cursor, count=PAGE)
            yield list(self._texts(index, cast("list[tuple[bytes, float]]", found)))
            if cursor == 0:
                return

    def _texts(self, index: str, members: list[tuple[bytes, float]]) -> Iterator[str]:
        """The members as text. What is none is no name of a job, now or later: it needs no second look."""
        for member, _ in members:
            try:
                yield member.decode()
            except UnicodeDecodeError:
                self._strange[index, member] = Finding(
                    kind=GHOST,
                    origin=self.origin,
                    job="",
                    text=f"{index} lists {member!r:.100}, which is no text",
                    what=NOTHING,
                    key=index,
                )

    def _suspect_unlisted(self, jobs: Sequence[str]) -> None:
        """Those that something tells of, but `ids` does not: the walk through the records did not meet them."""
        if not jobs:
            return
        at = self._place.rev
        with redis_errors():
            scores = self._store.client.zmscore(self._keys.ids, list(map(member_of, jobs)))
        for job, score in zip(jobs, scores, strict=True):
            if score is None:
                self._suspects.setdefault(job, at)

    # --- the second look -----------------------------------------------------------------------

    def _look_again(self) -> Iterator[None]:
        found: list[tuple[str, Finding]] = []
        for jobs in _in_pages(list(self._suspects)):
            self._read_on()
            at = self._place.rev
            left = [job for job in jobs if not self._spoken_of(job, self._suspects[job])]
            found += [(at, finding) for _, finding in self._judged(left) if finding]
            yield
        while self._read_on():
            yield
        rev = self._place.rev
        self.findings = [*self._strange.values()]
        self.findings += [
            replace(finding, rev=rev)
            for at, finding in found
            if not self._spoken_of(finding.job, at)
        ]

    def _spoken_of(self, job: str, since: str) -> bool:
        return rev_order(self._told.last(job)) > rev_order(since)

    # --- reading -------------------------------------------------------------------------------

    def _judged(self, jobs: Sequence[str]) -> Iterator[tuple[str, Finding | None]]:
        books = Books(
            origin=self.origin,
            begin=self._told.begin,
            now=self._store.clock.now(),
            budgets=self._budgets,
        )
        for job, look in zip(jobs, self._look_at(jobs), strict=True):
            yield job, judge(job, look, self._told.of(job, look.record), books)

    def _look_at(self, jobs: Sequence[str]) -> Iterator[Look]:
        """One call for all of them, in no transaction: a full Redis would refuse that, even a reading one."""
        if not jobs:
            return
        keys, pairs = self._keys, [job.rpartition("/")[2] for job in jobs]
        with redis_errors():
            pipe = self._store.client.pipeline(transaction=False)
            for job in jobs:
                pipe.hgetall(keys.of_job(job).job)
            pipe.zmscore(keys.ids, list(map(member_of, jobs)))
            for index in (keys.live, keys.done, keys.delayed, keys.ready):
                pipe.zmscore(index, list(jobs))
            pipe.zmscore(keys.gone, list(jobs))
            pipe.zmscore(keys.gone, pairs)
            replies = pipe.execute(raise_on_error=False)
            hashes, indexes = replies[: len(jobs)], replies[len(jobs) :]
            broken = [reply for reply in hashes if "WRONGTYPE" not in str(reply)] + indexes
            for reply in broken:
                if isinstance(reply, redis.RedisError):
                    raise reply
        for reply, *scores in zip(hashes, *indexes, strict=True):
            yield _look(reply, *scores)


def _look(
    reply: Any,
    listed: float | None,
    live: float | None,
    done: float | None,
    delayed: float | None,
    ready: float | None,
    buried: float | None,
    pair_buried: float | None,
) -> Look:
    record = _record(reply)
    return Look(
        record=record,
        damaged=record is None and bool(reply),
        listed=listed is not None,
        live=live,
        done=done,
        ready=ready,
        delayed=delayed,
        buried=buried or 0,
        pair_buried=pair_buried or 0,
    )


def _record(reply: Any) -> Record | None:
    """The record of a hash; None where there is none, or none that the merge could have left."""
    try:
        record = read_record(reply)
    except (AttributeError, TypeError, ValueError):
        return None
    is_ours = record.kind in _KINDS and record.state in STATES and record.desired in CLIMB
    return record if is_ours and REV.match(record.rev) else None


def _in_pages(jobs: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(jobs), PAGE):
        yield jobs[start : start + PAGE]


# A member of `ids` begins with what stands last in the job's text. Both ways fit whatever text a foreign hand left.


def _job_of(member: str) -> str:
    first, slash, rest = member.partition("/")
    return f"{rest}{slash}{first}"


def member_of(job: str) -> str:
    """How `ids` lists the job `engine/run/id`, or whatever text stands in its place."""
    rest, slash, last = job.rpartition("/")
    return f"{last}{slash}{rest}"
