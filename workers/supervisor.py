"""Supervisor: what `broker worker` starts. One process for each slot, started anew when it dies.

A slot is a fresh interpreter, not a fork of this process: modules of engines may start threads when they are imported,
and a supervisor that has run for weeks must be able to start a slot as cleanly as on its first day. Slots die with
their supervisor (PR_SET_PDEATHSIG on Linux): nobody would start them anew, and none is ever left behind.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workers.engine import EngineSpec
from workers.main import EXIT_MISCONFIGURED, arguments

log = logging.getLogger("workers")

#: The pause before a dead slot is started anew: doubled at each death, from the first value to the second; one that
#: lived for so long starts at the first again. In seconds.
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX, HEALTHY_SECONDS = 0.5, 30.0, 60.0
_ENTRY = Path(__file__).with_name("__main__.py")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


@dataclass(slots=True)
class _Slot:
    """One slot of one engine, and the process that serves it now."""

    node: str
    engine: str
    number: int
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0  #: when to start it (anew), by the monotonic clock
    deaths: int = 0  #: in a row
    given_up: bool = False

    @property
    def name(self) -> str:
        return f"{self.node}/{self.engine}[{self.number}]"


class Supervisor:
    """Keeps the slots of one node running. `slots` is for each engine; without it each has its own number.

    `url` goes to the slots by the environment, `imports` are the modules that define engines.
    """

    def __init__(
        self,
        node: str,
        engines: Sequence[EngineSpec],
        *,
        slots: int | None = None,
        imports: Sequence[str] = (),
        inline: bool = False,
        url: str | None = None,
        namespace: str = "broker",
    ) -> None:
        self._node = node
        self._imports = imports
        self._inline = inline
        self._url = url
        self._namespace = namespace
        self._slots = [
            _Slot(node, spec.name, number)
            for spec in engines
            for number in range(slots or spec.slots)
        ]
        self._stops = 0  #: signals to stop so far
        self._forwarded = 0

    def run(self) -> int:
        """Run until told to stop, and until every job in hand is finished. 0, or 1 where no slot could be kept."""
        if self._inline:
            log.warning(
                "inline: jobs run without a process of their own: they cannot be killed, nor have a timeout"
            )
        with _woken(self._on_signal) as wake:
            try:
                while self._step():
                    select.select([wake], [], [], self._pause())
                    _drain(wake)
            finally:
                self._kill()
        return 1 if self._slots and all(slot.given_up for slot in self._slots) else 0

    def _on_signal(self, signum: int, frame: object) -> None:
        del frame
        if signum != signal.SIGCHLD:
            self._stops += 1

    def _step(self) -> bool:
        """Look after every slot; False when there is nothing left to look after."""
        if self._stops > self._forwarded:
            self._forward()
        now = time.monotonic()
        for slot in self._slots:
            if slot.process and slot.process.poll() is not None:
                self._bury(slot, slot.process.returncode, now)
            if not slot.process and not slot.given_up and not self._stops and now >= slot.start_at:
                self._start(slot, now)
        if self._stops:
            return any(slot.process for slot in self._slots)
        return not all(slot.given_up for slot in self._slots)

    def _start(self, slot: _Slot, now: float) -> None:
        told = arguments(
            namespace=self._namespace,
            node=self._node,
            engine=slot.engine,
            slot=slot.number,
            imports=self._imports,
            inline=self._inline,
        )
        environment = os.environ | ({"REDIS_URL": self._url} if self._url else {})
        command = [sys.executable, "-P", str(_ENTRY), *told]
        # A group of its own: Ctrl-C in a terminal reaches us alone, and we pass it on once.
        slot.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, process_group=0
        )
        slot.started_at = now
        log.info("slot %s: process %d started", slot.name, slot.process.pid)

    def _bury(self, slot: _Slot, code: int, now: float) -> None:
        slot.process = None
        if self._stops:
            log.info("slot %s: ended", slot.name)
            return
        if code == EXIT_MISCONFIGURED:
            slot.given_up = True
            log.error("slot %s: given up: it says that it is misconfigured", slot.name)
            return
        slot.deaths = 1 if now - slot.started_at >= HEALTHY_SECONDS else slot.deaths + 1
        pause = min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2 ** (slot.deaths - 1))
        slot.start_at = now + pause
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        log.warning("slot %s: its process died (%s): again in %.1f s", slot.name, how, pause)

    def _forward(self) -> None:
        """Tell every slot to stop: once to finish its job, a second time to end it."""
        self._forwarded = self._stops
        again = "told again, so that the jobs in hand are ended"
        log.info("stopping: %s", again if self._stops > 1 else "waiting for the jobs in hand")
        for slot in self._slots:
            if slot.process:
                slot.process.send_signal(signal.SIGTERM)

    def _pause(self) -> float:
        """How long nothing is due: no slot is started any more once it stops, and an end comes with its signal."""
        due = [slot.start_at for slot in self._slots if not slot.process and not slot.given_up]
        return max(0.0, min(due) - time.monotonic()) if due and not self._stops else 60.0

    def _kill(self) -> None:
        """On the way out by an error of our own: nothing is left behind."""
        for slot in self._slots:
            if slot.process:
                slot.process.kill()
                slot.process.wait()


@contextmanager
def _woken(handler: object) -> Iterator[int]:
    """A descriptor that becomes readable with each signal, so that a wait ends at once and misses none."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, handler) for number in _SIGNALS}  # type: ignore[arg-type]
    try:
        yield reader
    finally:
        for number, old in handlers.items():
            signal.signal(number, old)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _drain(reader: int) -> None:
    try:
        while os.read(reader, 512):
            pass
    except BlockingIOError:
        return
