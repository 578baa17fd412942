"""Pulse: a worker's beats, and with them whatever must happen in time while a job runs.

It runs beside the job: in a thread of the worker's parent process, which never runs engine code. Its rule against
hung horses: it works only while it holds `still`, and the parent forks only while *it* holds `still`. So no lock of any
library that this thread uses can be taken at the moment of a fork, and none is carried locked into the horse.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from broker import Broker, BrokerError, Holder, Key, WorkerInfo
from workers.line import Line, Phase, Wish
from workers.outage import Outage
from workers.system import kill_group, undisturbed

log = logging.getLogger("workers")

#: How often a horse is looked after where the system can only look by reaping.
REAP_SECONDS = 0.05
#: What cannot be done where Redis takes no beats.
_BEAT = "beat"


class Watch:
    """A job under way, as the pulse sees it: its deadlines, and the horse to kill.

    `reaping` guards the horse's pid: the parent reaps it only under that lock, so that a kill can never hit a process
    that was given the same number later.
    """

    def __init__(
        self,
        holder: Holder,
        line: Line,
        *,
        timeout_ms: int,
        start_ms: int,
        stop_ms: int,
        killable: bool = True,
    ) -> None:
        self.holder = holder  # on the pulse's own connection
        self.line = line
        self.reaping = threading.RLock()
        self.pid = 0  #: of the horse while it is not reaped
        self.hung = False  #: killed because nothing ran in it
        self.over = False  #: it ended: its deadlines are void
        self.status: int | None = None  #: how it ended, as wait(2) says it
        self._stop_seconds = stop_ms / 1000
        self._start_seconds = start_ms / 1000
        self._killable = killable
        self._hung_at = self._kill_at = float("inf")
        self._looked_at = time.monotonic()
        self._timeout_at = time.monotonic() + timeout_ms / 1000 if timeout_ms else float("inf")

    def forked(self, pid: int) -> None:
        """The horse lives. Only now it can hang: the fork may have waited for a beat that Redis did not answer."""
        self._looked_at = time.monotonic()
        self._hung_at = self._looked_at + self._start_seconds
        self.pid = pid

    def next_at(self) -> float:
        """When the next deadline is due, by the monotonic clock."""
        if self.over or not self._killable:
            return float("inf")
        hung_at = self._hung_at if self.line.phase == Phase.FORKED else float("inf")
        timeout_at = self._timeout_at if self.line.wish == Wish.RUN else float("inf")
        return min(self._kill_at, hung_at, timeout_at)

    def ask(self, wish: Wish) -> None:
        """Ask the horse to end; the kill follows after the grace."""
        if self.line.wish == Wish.RUN:
            self.line.ask(wish)
            self._kill_at = time.monotonic() + self._stop_seconds
            log.info("job %s: asked to end (%s)", self.holder.key, wish.name.lower())

    def step(self) -> None:
        """Do what is due."""
        if self.over or not self._killable:
            return
        now = time.monotonic()
        if now >= self._timeout_at:
            self.ask(Wish.TIMEOUT)
        stood_still = 0 < self._start_seconds / 2 < now - self._looked_at
        self._looked_at = now
        if now >= self._hung_at and self.line.phase == Phase.FORKED:
            if stood_still:  # a frozen machine: the horse stood still with us
                self._hung_at = now + self._start_seconds
            else:
                self._hung_at, self.hung = float("inf"), True
                self.kill("it did not begin in time")
        if now >= self._kill_at:
            self._kill_at = now + self._stop_seconds  # again, should it outlive this one
            self.kill("it did not end in time")

    def kill(self, why: str) -> None:
        """Kill the horse and all of its group, if it is still there."""
        with self.reaping:
            if self.pid:
                log.warning("job %s: killing its process %d: %s", self.holder.key, self.pid, why)
                kill_group(self.pid)

    def wait(self) -> tuple[int | None, int | None, Any]:
        """Block until the horse ended, and reap it; what it left behind in its group ends with it."""
        pid = self.pid
        if not pid:
            return None, self.status, None
        if hasattr(os, "waitid"):  # look without reaping, so that its number stays taken
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            with self.reaping:
                kill_group(pid)
        while not (usage := self._reap(pid)) and self.pid:
            time.sleep(REAP_SECONDS)
        return pid, self.status, usage

    def _reap(self, pid: int) -> Any:
        """Reap it if it ended, and forget its number: both or none, whatever signal comes. Its usage, if it did."""
        with undisturbed(), self.reaping:
            try:
                ended, status, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                self.pid = 0
                return None
            if not ended:
                return None
            self.pid, self.status = 0, status
            return usage


class Pulse:
    """The beats of one worker. Give it a `Broker` of its own: connections are not shared with the job's side.

    `outage` is the process's one.
    """

    def __init__(self, broker: Broker, info: WorkerInfo, outage: Outage) -> None:
        self.broker = broker
        self.info = info
        self._seconds = broker.config.budgets.beat_ms / 1000
        self._watch: Watch | None = None
        self._still = threading.Lock()
        self._wake = threading.Event()
        self._ended = False
        self._outage = outage
        self._thread: threading.Thread | None = None

    def new_line(self) -> Line:
        """The line of a new job."""
        return Line()

    def check(self) -> None:
        """Beat once, here: what is wrong with Redis shows before anything is taken. Raises Unavailable."""
        self.broker.beat(self.info)
        nobody = Key.of(
            self.info.node, self.info.engine, "", "no-such-job"
        )  # its beat changes nothing
        Holder(
            self.broker, nobody, created_at=1, attempt=1, node=self.info.node, worker=self.info.name
        ).beat()

    def start(self) -> None:
        """Check, then go on in a thread."""
        self.check()
        self._thread = threading.Thread(target=self.run, name="pulse", daemon=True)
        with undisturbed():  # it shall take no signal while the main thread must not be disturbed
            self._thread.start()

    def watch(self, watch: Watch | None) -> None:
        """A job begins, or ended."""
        self._watch = watch
        self.info = replace(self.info, job=str(watch.holder.key) if watch else "")
        self._wake.set()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """While this is held the pulse does nothing at all: fork here."""
        with self._still:
            yield

    def stop(self) -> None:
        """End the thread; returns when it is over, or stuck in a call that Redis does not answer."""
        self.end()
        if self._thread:
            self._thread.join(timeout=2.0)

    def end(self) -> None:
        """Let `run` return soon."""
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        """Beat and look at the deadlines until stopped."""
        beat_at = time.monotonic()
        while not self._ended:
            with self._still:
                if time.monotonic() >= beat_at:
                    beat_at = time.monotonic() + self._seconds
                    self._guarded(self._beat)
                watch = self._watch
                if watch:
                    self._guarded(watch.step)
                next_at = min(beat_at, watch.next_at()) if watch else beat_at
            self._wake.wait(max(0.0, next_at - time.monotonic()))
            self._wake.clear()

    def _beat(self) -> None:
        self.broker.beat(self.info)
        self._beat_for_job()
        self._outage.taken(_BEAT)

    def _beat_for_job(self) -> None:
        watch = self._watch
        if watch is None or watch.line.phase == Phase.SAID:
            return
        answer = watch.holder.beat()
        if not answer.valid:
            watch.ask(Wish.FENCE)
        elif answer.desired != "run":
            watch.ask(Wish.CANCEL)
        if answer.valid and answer.guessed:
            outcome = watch.holder.reassert()
            log.info("job %s: a guess stood against it: %s", watch.holder.key, outcome.rule)

    def _guarded(self, act: Callable[[], None]) -> None:
        """A failed beat must not end the beats."""
        begun = time.monotonic()
        try:
            act()
        except BrokerError as failed:
            self._outage.met(_BEAT, begun, failed)
        except Exception:
            log.exception("worker %s: a beat failed", self.info.name)
