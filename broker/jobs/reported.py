"""The jobs that a program reports: identities, the words that wait for each, and what an answer means for them.

What `broker.producer` builds its two forms on. It writes nothing and never waits.
"""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypedDict

from broker.config import settings
from broker.errors import Unavailable
from broker.jobs.outcome import Outcome
from broker.rules.course import Course
from broker.rules.event import Report
from broker.rules.key import Key

#: How often a live job is re-asserted, and how often a failed write is tried again, in seconds.
RESYNC_SECONDS = 30.0
RETRY_SECONDS = 1.0
EVENTS_WAITING_MAX = 100
JOBS_WAITING_MAX = 10_000

logger = logging.getLogger("broker.producer")


class Reporting(Protocol):
    """What is needed of a Broker."""

    def report(self, event: Report, /) -> Outcome: ...


class AsyncReporting(Protocol):
    """What is needed of an asyncio Broker."""

    def report(self, event: Report, /) -> Awaitable[Outcome]: ...


class _Incarnation:
    """This process: the nonce that its runs bear, and how far the ids of each engine were counted."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self.run = secrets.token_hex(8)
        self._counts: dict[tuple[str, str], itertools.count[int]] = {}

    def next_id(self, origin: str, engine: str) -> str:
        return str(next(self._counts.setdefault((origin, engine), itertools.count(1))))


_process = _Incarnation()
# A forked child counts from 1 as well: under its own nonce.
os.register_at_fork(after_in_child=_process.renew)


@dataclass(slots=True, eq=False)
class ReportedJob:
    """A job whose course a JobEvents tells. Its fields are to be read only."""

    course: Course
    lock: Any = field(repr=False)  #: held while an event is numbered and written
    waiting: deque[Report] = field(default_factory=lambda: deque(maxlen=EVENTS_WAITING_MAX))
    asserted_at: float = 0.0
    is_stuck: bool = False  #: its own keys are damaged: its oldest word waits for their repair

    @property
    def key(self) -> Key:
        return self.course.key

    @property
    def state(self) -> str:
        return self.course.state

    @property
    def node(self) -> str:
        return self.course.node


class JobEventsOptions(TypedDict, total=False):
    """`origin`: where the jobs are submitted (default: the broker's own node). `clock`: epoch seconds."""

    origin: str | None
    resync_seconds: float
    retry_seconds: float
    clock: Callable[[], float]


class Jobs:
    """What both forms share: identities, the jobs to look after, and what an answer means for them."""

    def __init__(
        self,
        broker: Reporting | AsyncReporting,
        engine: str,
        *,
        origin: str | None = None,
        resync_seconds: float = RESYNC_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        config = getattr(broker, "config", None) or settings()
        self.origin = Key.of(config.node if origin is None else origin, engine, "", "1").origin
        self.engine = engine
        self._broker = broker
        self._resync_seconds = resync_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._jobs: dict[Key, ReportedJob] = {}
        self._away = False
        self._closed = False
        self._run = _process.run

    @property
    def live(self) -> list[ReportedJob]:
        """The jobs that are looked after: not ended, or ended with a word that still waits."""
        return list(self._jobs.values())

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _begin(self, lock: Any, model: str, requester: str) -> ReportedJob:
        if self._run != _process.run:
            self._run = _process.run
            self._jobs = {}
        if self._away and sum(bool(job.waiting) for job in self.live) >= JOBS_WAITING_MAX:
            raise Unavailable(f"Redis is away, and {JOBS_WAITING_MAX} jobs wait to be reported")
        key = Key(self.origin, self.engine, self._run, _process.next_id(self.origin, self.engine))
        return ReportedJob(Course(key, self._now(), model, requester), lock)

    def _queued(self, job: ReportedJob, report: Report) -> bool:
        """Take the next word of a job. Whether it is to be written now: not while the keeper tries for all."""
        job.waiting.append(report)
        self._jobs[job.key] = job
        return self._closed or not self._away

    def _failed(self, wrong: Exception) -> None:
        if not self._away:
            logger.warning("Redis does not take reports, they wait: %s", wrong)
        self._away = True

    def _written(self, job: ReportedJob, report: Report, outcome: Outcome) -> bool:
        """Redis is there, and answered the oldest word of the job. False: that is to be said again, later."""
        self._away = False
        job.asserted_at = time.monotonic()
        if outcome.outcome == "error":
            if not job.is_stuck:
                logger.warning(
                    "%s: its words wait, its keys are damaged: %s", job.key, outcome.rule
                )
            job.is_stuck = True
            return False
        job.is_stuck = False
        if not outcome.ok:
            logger.warning("%s: %s by the rule %s", job.key, outcome.outcome, outcome.rule)
        self._settled(job, report, gone=outcome.rule == "tombstoned")
        return True

    def _settled(self, job: ReportedJob, report: Report, *, gone: bool = False) -> None:
        """The oldest word needs no more care; nor does a job that has none left and ended or was removed."""
        if job.waiting and job.waiting[0] is report:  # else it was dropped: too many waited
            job.waiting.popleft()
        if not job.waiting and (job.course.ended or gone):
            self._jobs.pop(job.key, None)

    def _assertion(self, job: ReportedJob) -> Report | None:
        """The last word once more, where it is due."""
        due = time.monotonic() - job.asserted_at >= self._resync_seconds
        if self._closed or job.course.ended or job.course.last is None or not due:
            return None
        return replace(job.course.last, resync=True)

    def _waiting(self) -> int:
        return sum(len(job.waiting) for job in self.live)
