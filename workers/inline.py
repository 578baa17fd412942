"""InlineWorker: `--inline`, for debuggers and for systems on which forking is not safe.

The job runs in the worker's own process, so that nobody can kill it: cancel only sets the flag, and a job with a
timeout is refused. The beats come from a small child process, because a thread beside an engine that holds the
interpreter's lock would fall silent; the child dies with the worker, so that a beat always means a living worker.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from contextlib import suppress
from typing import IO, Any

from rq.executions import Execution
from rq.job import Job
from rq.queue import Queue

from broker import Holder, Key
from workers.line import Line
from workers.pulse import Pulse, Watch
from workers.run import FAILED, Word
from workers.system import die_with_parent
from workers.worker import Worker

log = logging.getLogger("workers")


class InlineWorker(Worker):
    """Runs each job in its own process."""

    def _make_pulse(self) -> Pulse:
        return InlinePulse(self.post.broker_of_beats(), self._info(), self.outage)

    def fork_work_horse(self, job: Job, queue: Queue) -> None:
        """No fork: the job runs here and now."""
        del queue
        assert self._attempt
        if self._attempt.timeout_ms:
            error = "an inline worker cannot enforce a timeout: submit without one, or run without --inline"
            self._attempt.say(Word(FAILED, error=error, reason="inline", retryable=True))
            return
        try:
            job.perform()
        except Exception:
            log.exception("worker %s: job %s failed to run", self.name, self._attempt.key)

    def monitor_work_horse(self, job: Job, queue: Queue, execution: Execution) -> None:
        """It is over already."""


class InlinePulse(Pulse):
    """The worker's end of a pulse that beats in a child process."""

    _child = 0
    _pipe: IO[str]

    def new_line(self) -> Line:
        """One line for all jobs: the child, made before them, must see it."""
        self._line.reset()
        return self._line

    def start(self) -> None:
        """Beat once, here, so that what is wrong shows; then fork the child."""
        self.check()
        self.broker.close()  # the child opens connections of its own
        self._line = Line()
        reader, writer = os.pipe()
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            status = 1
            try:
                die_with_parent(parent)
                os.close(writer)
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
                self._serve(os.fdopen(reader))
                status = 0
            finally:
                os._exit(status)
        os.close(reader)
        self._pipe = os.fdopen(writer, "w", buffering=1)

    def watch(self, watch: Watch | None) -> None:
        """Tell the child which job is under way."""
        job = None
        if watch:
            holder = watch.holder
            job = [str(holder.key), holder.created_at, holder.attempt, holder.nonce]
        with suppress(OSError):  # a dead child shows by the missing beats
            self._pipe.write(json.dumps(job) + "\n")

    def stop(self) -> None:
        with suppress(OSError):
            self._pipe.close()
        with suppress(ChildProcessError):
            os.waitpid(self._child, 0)

    def _serve(self, orders: IO[str]) -> None:
        """In the child: beat until the worker closes the pipe."""
        threading.Thread(target=self._obey, args=(orders,), daemon=True).start()
        self.run()

    def _obey(self, orders: IO[str]) -> None:
        for line in orders:
            super().watch(self._watch_of(json.loads(line)))
        super().end()

    def _watch_of(self, job: Any) -> Watch | None:
        if job is None:
            return None
        key, created_at, attempt, nonce = job
        holder = Holder(
            self.broker,
            Key.parse(key),
            created_at=created_at,
            attempt=attempt,
            node=self.info.node,
            worker=self.info.name,
            nonce=nonce,
        )
        return Watch(holder, self._line, timeout_ms=0, start_ms=0, stop_ms=0, killable=False)
