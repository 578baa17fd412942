"""JobEvents: how a program that runs jobs itself tells of them.

It numbers each event and writes it under the job's own lock, so that the log has them in the order in which they
happened, whoever calls from wherever. It knows nothing of how an event is decided; `broker.rules.course` knows what
there is to say.

When Redis is away, or keys that an event needs are damaged, nothing is lost and nobody waits for ever. The event that
could not be written keeps its number and its place; the call that met the failure returns once the client gave up,
later calls return at once, and a background thread (a task, in asyncio) tries again every second, each job's events in
their order. A repeat of an event that was written after all is answered as a duplicate. The newest
`EVENTS_WAITING_MAX` events of a job wait at most, its last word always among them; while `JOBS_WAITING_MAX` jobs wait,
`create` raises Unavailable: the program may then go on without a job, for every call here does nothing for None.

Live jobs are re-asserted every 30 seconds with their last word and its number, tagged `resync`. So a guess against
them is corrected, and a job is known to live.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, Unpack, cast

from broker.errors import BrokerError, Damaged, Unavailable
from broker.jobs.outcome import Outcome
from broker.jobs.reported import (
    AsyncReporting,
    JobEventsOptions,
    Jobs,
    ReportedJob,
    Reporting,
    logger,
)
from broker.rules.event import Report

#: Words that met these are said again: Redis comes back, and damaged keys are mended (by the auditor, or by hand).
NOT_TAKEN = (Unavailable, Damaged)


class JobEvents(Jobs):
    """The reports of the jobs of one engine that this program runs itself. Thread-safe; a context manager.

    Make it after forking: a child's jobs are its own, and those of its parent are not its to tell.

    Every method but `create` takes None for a job, and then does nothing. Those that tell a change say whether it was
    one. They raise Invalid for a value out of its bounds.
    """

    _broker: Reporting

    def __init__(self, broker: Reporting, engine: str, **options: Unpack[JobEventsOptions]) -> None:
        super().__init__(broker, engine, **options)
        self._stop = threading.Event()
        self._starting = threading.Lock()
        self._keeper: threading.Thread | None = None

    def create(self, *, model: str = "", requester: str = "") -> ReportedJob:
        """A job was admitted: it is queued, on no node yet. Raises Unavailable where too many wait already."""
        job = self._begin(threading.Lock(), model, requester)
        self._say(job, job.course.create)
        with self._starting:
            if not self._closed and (self._keeper is None or not self._keeper.is_alive()):
                self._keeper = threading.Thread(
                    target=self._keep, name="broker-job-events", daemon=True
                )
                self._keeper.start()
        return job

    def dispatch(self, job: ReportedJob | None, node: str) -> int:
        """A new attempt begins on `node`. Gives its number, 0 where there is no job or it has ended."""
        if job is None:
            return 0
        with job.lock:
            report = job.course.dispatch(node)
            attempt = 0 if job.course.ended else job.course.attempt
            self._tell(job, report)
        return attempt

    def repoint(self, job: ReportedJob | None, node: str = "") -> bool:
        """It waits on another node, or between two attempts on none; a running one is queued again."""
        return job is not None and self._say(job, lambda: job.course.repoint(node))

    def start(
        self, job: ReportedJob | None, node: str | None = None, *, attempt: int | None = None
    ) -> bool:
        """It runs. A word on another node or attempt than the current one comes too late and is ignored."""
        return job is not None and self._say(
            job, lambda: job.course.start(self._now(), node, attempt)
        )

    def finish(self, job: ReportedJob | None, state: str = "completed", error: str = "") -> bool:
        """It ended as completed, failed or cancelled. The first call counts, from wherever it comes."""
        return job is not None and self._say(
            job, lambda: job.course.finish(self._now(), state, error)
        )

    def step(self) -> int:
        """Write what waits and re-assert what is due, up to the first failure. How many reports were taken."""
        taken = 0
        for job in self.live:
            with job.lock:
                try:
                    taken += self._write(job)
                    if not job.waiting and (again := self._assertion(job)):
                        job.waiting.append(again)
                        taken += self._write(job)
                except NOT_TAKEN:
                    break
                except BrokerError as wrong:
                    logger.warning("%s: a report was given up: %s", job.key, wrong)
        return taken

    def close(self, timeout: float = 10.0) -> int:
        """Stop re-asserting, and write what waits for about `timeout` seconds. How many reports could not be.

        A job that has not ended stays as it is: finish it first.
        """
        deadline = time.monotonic() + timeout
        self._closed = True
        self._stop.set()
        if self._keeper is not None:
            self._keeper.join(timeout)
        self.step()
        while self._waiting() and time.monotonic() < deadline:
            time.sleep(min(self._retry_seconds, timeout))
            self.step()
        return self._waiting()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _say(self, job: ReportedJob, change: Callable[[], Report | None]) -> bool:
        with job.lock:
            report = change()
            self._tell(job, report)
        return report is not None

    def _tell(self, job: ReportedJob, report: Report | None) -> None:
        if report is not None and self._queued(job, report):
            with suppress(*NOT_TAKEN):
                self._write(job)

    def _write(self, job: ReportedJob) -> int:
        taken = 0
        while job.waiting:
            report = job.waiting[0]
            try:
                outcome = self._broker.report(report)
            except NOT_TAKEN as wrong:
                self._failed(wrong)
                raise
            except BrokerError:
                self._settled(job, report)
                raise
            if not self._written(job, report, outcome):
                break
            taken += 1
        return taken

    def _keep(self) -> None:
        while not self._stop.wait(self._retry_seconds):
            try:
                self.step()
            except Exception:  # noqa: BLE001 - whatever it was, live jobs must be re-asserted
                logger.exception("the keeper of reported jobs goes on after a failure")


class AsyncJobEvents(Jobs):
    """JobEvents for asyncio: the same names, to be awaited. Takes a Broker (called in threads) or its asyncio twin."""

    def __init__(
        self, broker: Reporting | AsyncReporting, engine: str, **options: Unpack[JobEventsOptions]
    ) -> None:
        super().__init__(broker, engine, **options)
        self._native = inspect.iscoroutinefunction(broker.report)
        self._stop = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._writing: set[asyncio.Task[int]] = set()

    async def create(self, *, model: str = "", requester: str = "") -> ReportedJob:
        job = self._begin(asyncio.Lock(), model, requester)
        await self._tell(job, job.course.create())
        if not self._closed and (self._keeper is None or self._keeper.done()):
            self._keeper = asyncio.create_task(self._keep(), name="broker-job-events")
        return job

    async def dispatch(self, job: ReportedJob | None, node: str) -> int:
        if job is None:
            return 0
        report = job.course.dispatch(node)
        attempt = 0 if job.course.ended else job.course.attempt
        await self._tell(job, report)
        return attempt

    async def repoint(self, job: ReportedJob | None, node: str = "") -> bool:
        return job is not None and await self._tell(job, job.course.repoint(node))

    async def start(
        self, job: ReportedJob | None, node: str | None = None, *, attempt: int | None = None
    ) -> bool:
        return job is not None and await self._tell(
            job, job.course.start(self._now(), node, attempt)
        )

    async def finish(
        self, job: ReportedJob | None, state: str = "completed", error: str = ""
    ) -> bool:
        return job is not None and await self._tell(
            job, job.course.finish(self._now(), state, error)
        )

    async def step(self) -> int:
        taken = 0
        for job in self.live:
            try:
                taken += await self._write(job, again=True)
            except NOT_TAKEN:
                break
            except BrokerError as wrong:
                logger.warning("%s: a report was given up: %s", job.key, wrong)
        return taken

    async def close(self, timeout: float = 10.0) -> int:
        deadline = time.monotonic() + timeout
        self._closed = True
        self._stop.set()
        if self._keeper is not None:
            await asyncio.wait([self._keeper], timeout=timeout)
        await self.step()
        while self._waiting() and time.monotonic() < deadline:
            await asyncio.sleep(min(self._retry_seconds, timeout))
            await self.step()
        return self._waiting()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _tell(self, job: ReportedJob, report: Report | None) -> bool:
        """Queue it in the very step that numbered it; whoever cancels the caller does not cut the write off."""
        if report is not None and self._queued(job, report):
            task = asyncio.create_task(self._write(job))
            self._writing.add(task)
            task.add_done_callback(self._wrote)
            with suppress(*NOT_TAKEN):
                await asyncio.shield(task)
        return report is not None

    def _wrote(self, task: asyncio.Task[int]) -> None:
        self._writing.discard(task)
        if not task.cancelled():
            task.exception()  # the event still waits, if its caller is gone nobody else needs to know

    async def _write(self, job: ReportedJob, *, again: bool = False) -> int:
        taken = 0
        async with job.lock:
            if again and not job.waiting and (assertion := self._assertion(job)):
                job.waiting.append(assertion)
            while job.waiting and await self._write_first(job):
                taken += 1
        return taken

    async def _write_first(self, job: ReportedJob) -> bool:
        report = job.waiting[0]
        try:
            outcome = await self._report(report)
        except NOT_TAKEN as wrong:
            self._failed(wrong)
            raise
        except BrokerError:
            self._settled(job, report)
            raise
        return self._written(job, report, outcome)

    async def _report(self, report: Report) -> Outcome:
        if self._native:
            return await cast("AsyncReporting", self._broker).report(report)
        return await asyncio.to_thread(cast("Reporting", self._broker).report, report)

    async def _keep(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._retry_seconds)
            try:
                await self.step()
            except Exception:  # noqa: BLE001 - whatever it was, live jobs must be re-asserted
                logger.exception("the keeper of reported jobs goes on after a failure")
