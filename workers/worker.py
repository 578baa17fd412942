"""Worker: the RQ worker class. One queue, one engine, one slot: the parent says start, forks the horse, looks after it.

RQ is the transport: it brings the name of an attempt. Its own notes (status, registries, executions) are kept for
`rq info` and thrown away with the attempt; what is true stands in the job's record, so nothing that fails in RQ's
notes may harm a job. RQ's command channel (stop, kill and shutdown by pubsub) is not listened to: it is lossy, and
`broker cancel` is not.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

from rq.exceptions import NoSuchJobError
from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue
from rq.serializers import JSONSerializer
from rq.timeouts import HorseMonitorTimeoutException
from rq.worker import WorkerStatus

from broker import Misconfigured, WorkerInfo
from workers.attempt import Attempt
from workers.handoff import Handoff
from workers.horse import fork
from workers.notes import NotingWorker
from workers.post import Post
from workers.pulse import Pulse

log = logging.getLogger("workers")

#: How long one wait for a hand-off lasts: a signal to stop is seen after it.
DEQUEUE_SECONDS = 1
#: RQ's own notes expire a minute after this; its sockets wait a little less.
WORKER_TTL_SECONDS = 60
#: A second signal that follows so soon is the same one, sent twice (a terminal, and a supervisor).
SECOND_SIGNAL_SECONDS = 1.0


class Worker(NotingWorker):
    """Serves the queue of one engine on one node, a job at a time.

    Under `rq worker -w workers.Worker NAMESPACE:NODE:ENGINE` settings and engines come from the environment and the
    configuration file; `broker worker` gives a `Post` instead.
    """

    job_class = Handoff

    def __init__(
        self,
        queues: str | Queue | Sequence[str | Queue],
        name: str | None = None,
        *,
        connection: Any = None,
        prepare_for_work: bool = True,
        post: Post | None = None,
        job_monitoring_interval: int = 30,
        maintenance_interval: int = 600,
        **_of_rq: Any,
    ) -> None:
        listed = [queues] if isinstance(queues, str | Queue) else list(queues)
        names = [queue if isinstance(queue, str) else queue.name for queue in listed]
        if prepare_for_work:
            if len(names) != 1:
                raise Misconfigured("a worker serves exactly one queue, NAMESPACE:NODE:ENGINE")
            post = post or Post.of_queue(names[0], connection)
            name = name or post.worker_name()
        super().__init__(
            names,
            name,
            connection=connection,
            prepare_for_work=prepare_for_work,
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL_SECONDS,
            job_monitoring_interval=job_monitoring_interval,
            maintenance_interval=maintenance_interval,
        )
        self._attempt: Attempt | None = None
        self._stop_asked_at = float("-inf")
        if post is not None and prepare_for_work:
            self.post = post
            self.pulse = self._make_pulse()

    def _make_pulse(self) -> Pulse:
        return Pulse(self.post.broker_of_beats(), self._info(), self.outage)

    def _info(self) -> WorkerInfo:
        born = time.time_ns() // 1_000_000
        return WorkerInfo(self.name, self.post.node, self.post.spec.name, os.getpid(), born)

    # --- the loop --------------------------------------------------------------------------------

    def bootstrap(self, logging_level: str | None = None, *formats: Any, **named: Any) -> None:
        """Beat first: what is wrong with Redis or the settings shows here, before anything is taken."""
        # RQ does it only after the birth, and an order to end may come before.
        self._install_signal_handlers()  # type: ignore[no-untyped-call]
        self.pulse.start()
        super().bootstrap(logging_level, *formats, **named)
        log.info("worker %s: ready for %s", self.name, self.post.spec.name)

    def teardown(self) -> None:
        if self.is_horse:
            return
        self.pulse.stop()
        with self.noting():
            self.post.broker.leave(self.name)
        with self.noting():
            super().teardown()  # type: ignore[no-untyped-call]
        log.info("worker %s: left", self.name)

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """The first signal: finish the job in hand, then leave. A later one: end it now.

        Nothing is raised by the first: it may come between a hand-off's taking and its start.
        """
        del signum, frame
        if self._stop_requested and time.monotonic() - self._stop_asked_at > SECOND_SIGNAL_SECONDS:
            raise SystemExit(1)
        if not self._stop_requested:
            self._stop_requested = True
            self._stop_asked_at = time.monotonic()

    def dequeue_job_and_maintain_ttl(
        self, timeout: int | None, max_idle_time: int | None = None
    ) -> tuple[Job, Queue] | None:
        """The next hand-off, by RQ's reliable move; None when asked to stop (or, in a burst, when there is none)."""
        [queue] = self.queues
        self.set_state(WorkerStatus.IDLE)
        what = f"ask for work in {queue.key}"
        idle_since = noted_at = time.monotonic()
        while not self._stop_requested:
            if time.monotonic() - noted_at > WORKER_TTL_SECONDS / 4:
                noted_at = time.monotonic()
                self.heartbeat()
            if max_idle_time is not None and time.monotonic() - idle_since >= max_idle_time:
                return None
            begun = time.monotonic()
            try:
                found = self._take(queue, None if timeout is None else DEQUEUE_SECONDS)
            except Exception as failed:  # noqa: BLE001 - whatever it is: without Redis there is nothing to do
                self.outage.met(what, begun, failed)
                noted_at = float("-inf")  # what RQ knew of us may be lost with it
                time.sleep(1.0)
                continue
            self.outage.taken(what)
            if found:
                return found, queue
            if timeout is None:
                return None
        return None

    def _take(self, queue: Queue, seconds: int | None) -> Job | None:
        """One look into the queue; what cannot be read is refused here."""
        lists = queue.key, queue.intermediate_queue_key
        taken: Any = (
            self.connection.lmove(*lists)
            if seconds is None
            else self.connection.blmove(*lists, seconds)
        )
        if taken is None:
            return None
        try:
            return Handoff.fetch(taken.decode(), self.connection, JSONSerializer)
        except NoSuchJobError:
            pass  # given up, and deleted, in between
        except (ValueError, TypeError) as wrong:
            log.warning("worker %s: refused a hand-off: %.200r", self.name, str(wrong))
        self.connection.lrem(queue.intermediate_queue_key, 1, taken)
        return None

    # --- one hand-off ----------------------------------------------------------------------------

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Refuse it, or run it to an end that was said."""
        assert isinstance(job, Handoff)
        why = job.refusal or job.misplaced(self.post.namespace, self.post.node, self.post.spec.name)
        if why or job.names is None:
            log.warning("worker %s: refused the RQ job %r: %s", self.name, job.id, why)
            self.forget(job, queue)
            return
        attempt = Attempt(self.post, self.pulse, self.name, job.names)
        try:
            self._go_through(attempt, job, queue)
        except SystemExit:
            attempt.close(cold=True)
            raise
        finally:
            self._attempt = None
            self._horse_pid = 0
            self.forget(job, queue)

    def _go_through(self, attempt: Attempt, job: Job, queue: Queue) -> None:
        """Start it, look after it, close it: also where it did not start, for that may have been heard."""
        try:
            if attempt.start(lambda: self._stop_requested):
                self._attempt = attempt
                super().execute_job(job, queue)
        except Exception as failed:
            log.exception("worker %s: job %s: the worker failed", self.name, attempt.key)
            attempt.close(failed=failed)
        else:
            attempt.close()

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """Fork while the pulse is still, so that the horse inherits no lock that anybody holds."""
        assert self._attempt
        self._horse_pid = fork(
            self._attempt.watch, self.pulse, lambda: self.main_work_horse(job, queue)
        )

    def main_work_horse(self, job: Job, queue: Queue) -> None:
        """In the horse. Everything that RQ has to note is noted by the parent."""
        del queue
        self._is_horse = True
        self.setup_work_horse_signals()  # type: ignore[no-untyped-call]
        job.perform()

    def monitor_work_horse(self, job: Job, queue: Queue, execution: Execution) -> None:
        """Wait for the horse's end; meanwhile keep RQ's notes fresh."""
        del queue
        while True:
            try:
                with self.death_penalty_class(
                    self.job_monitoring_interval, HorseMonitorTimeoutException
                ):
                    self.wait_for_horse()
                break
            except HorseMonitorTimeoutException:
                with self.noting():
                    self.maintain_heartbeats(job, execution)

    def wait_for_horse(self) -> tuple[int | None, int | None, Any]:
        """Block until the horse ended."""
        assert self._attempt
        return self._attempt.watch.wait()

    def kill_horse(self, sig: signal.Signals = signal.SIGKILL) -> None:
        """Kill the horse, and its group only where it leads one."""
        del sig
        if self._attempt:
            self._attempt.watch.kill("the worker ends")
