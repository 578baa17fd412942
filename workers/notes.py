"""What RQ notes of a worker: its state, its beats, its executions, its registries. Kept for `rq info`, and no more.

What is true stands in the jobs' records, so a note that cannot be written is told in the log and harms nothing.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import rq
from rq import worker_registration
from rq.exceptions import StopRequested
from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue
from rq.results import Result
from rq.utils import now
from rq.worker import WorkerStatus

from workers.outage import Outage

log = logging.getLogger("workers")

#: What cannot be done where Redis takes no notes.
_NOTE = "keep RQ's notes"
#: How long RQ's notes on an ended attempt are tried to be thrown away.
FORGET_SECONDS_MAX = 10.0


class NotingWorker(rq.Worker):
    """An RQ worker whose notes may fail."""

    @cached_property
    def outage(self) -> Outage:
        """The one story of this process."""
        return Outage(self.name)

    def subscribe(self) -> None:
        """No command channel: one thread and one connection less in every slot."""

    def prepare_execution(self, job: Job) -> Execution:
        """RQ's notes that it runs: for `rq info`, in one round trip."""
        execution = Execution(os.urandom(16).hex(), job.id, self.connection, self.name)
        with self.noting(), self.connection.pipeline() as pipe:
            ttl = self.get_heartbeat_ttl(job)
            execution = Execution.create(job, ttl, pipe, worker_name=self.name)
            self.set_state(WorkerStatus.BUSY, pipeline=pipe)
            job.prepare_for_execution(self.name, pipeline=pipe)
            pipe.lrem(self.queues[0].intermediate_queue_key, 1, job.id)
            pipe.execute()
        self.executions[execution.id] = execution
        return execution

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Around what RQ only notes: a failure is told, and changes nothing."""
        begun = time.monotonic()
        try:
            yield
            self.outage.taken(_NOTE)
        except StopRequested:
            raise
        except Exception as failed:  # noqa: BLE001 - see above
            self.outage.met(_NOTE, begun, failed)

    def forget(self, job: Job, queue: Queue) -> None:
        """Throw away all that RQ knows of the attempt."""
        deadline = time.monotonic() + FORGET_SECONDS_MAX
        executions = list(self.executions.values())
        while True:
            begun = time.monotonic()
            try:
                with self.connection.pipeline() as pipe:
                    # All of them: whoever died between the move and its first note left one too.
                    pipe.lrem(queue.intermediate_queue_key, 0, job.id)
                    for execution in executions:
                        execution.delete(job, pipe)
                    result = Result.get_key(job.id)  # type: ignore[no-untyped-call]
                    looked_at = queue.intermediate_queue.get_first_seen_key(job.id)
                    pipe.delete(
                        job.key, job.dependents_key, job.dependencies_key, result, looked_at
                    )
                    pipe.execute()
                self.executions.clear()
                self.outage.taken(_NOTE)
                return
            except Exception as failed:  # noqa: BLE001 - only notes
                self.outage.met(_NOTE, begun, failed)
                if time.monotonic() > deadline or self._stop_requested:
                    log.info("worker %s: RQ's notes on %r stay: %s", self.name, job.id, failed)
                    return
                time.sleep(0.5)

    def handle_job_failure(
        self,
        job: Job,
        queue: Queue,
        started_job_registry: Any = None,
        exc_string: str = "",
        execution: Execution | None = None,
    ) -> None:
        """RQ's maintenance found a hand-off that some worker took and never began: it will be handed over again."""
        del started_job_registry, exc_string, execution
        self.forget(job, queue)

    def set_state(self, state: str, pipeline: Any = None) -> None:
        if pipeline is None and state == self.get_state():
            return
        with self.noting():
            super().set_state(state, pipeline)

    def register_birth(self) -> None:
        super().register_birth()  # type: ignore[no-untyped-call]
        self.heartbeat()

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Say all that RQ knows of us, not only when: a Redis that was flushed learns it anew."""
        if pipeline is not None:
            self._enlist(pipeline)
            super().heartbeat(timeout, pipeline)
            return
        with self.noting(), self.connection.pipeline(transaction=False) as pipe:
            self._enlist(pipe)
            super().heartbeat(timeout, pipe)
            pipe.execute()

    def _enlist(self, pipe: Any) -> None:
        """Register the queue too: `rq info` lists workers by queue, and RQ registers one at its first job only."""
        pipe.sadd(Queue.redis_queues_keys, *(queue.key for queue in self.queues))
        worker_registration.register(self, pipe)
        told = self.serialize()
        pipe.hset(self.key, mapping=told | {"state": self.get_state()})

    def check_for_suspension(self, burst: bool) -> None:
        with self.noting():
            super().check_for_suspension(burst)

    def run_maintenance_tasks(self) -> None:
        with self.noting():
            super().run_maintenance_tasks()  # type: ignore[no-untyped-call]
        self.last_cleaned_at = now()  # type: ignore[assignment]
