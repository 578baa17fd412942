"""The worker supervisors that `broker up` starts: one for each demo node, none of which outlives it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from broker.errors import BrokerError
from broker.store.leash import leashed

#: A supervisor that was killed is started again after so many seconds.
AGAIN_SECONDS = 1.0
#: How long the jobs in hand may go on after the order to end, and how long the end may then take.
FINISH_SECONDS = 8.0
END_SECONDS = 5.0
_LOOK_SECONDS = 0.05

log = logging.getLogger(__name__)


class Ended(BrokerError):
    """A child that `up` cannot do without ended by itself."""


@dataclass(slots=True)
class _Child:
    """The supervisor of one node."""

    node: str
    process: subprocess.Popen[bytes]
    again_at: float = 0.0


class Children:
    """Worker supervisors, one for each of `nodes`. Start, look after and stop them from one and the same thread."""

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        url: str,
        slots: int | None,
        engines: Sequence[str],
        imports: Sequence[str],
    ) -> None:
        self._words = [
            *(["--slots", str(slots)] if slots else []),
            *(word for engine in engines for word in ("--engine", engine)),
            *(word for module in imports for word in ("--import", module)),
        ]
        self._environment = {**os.environ, "REDIS_URL": url}
        for name in ("REDIS_URL_FILE", "BROKER_TOKEN", "BROKER_TOKEN_FILE"):
            self._environment.pop(name, None)  # no job needs to know how HTTP is guarded
        self._children: list[_Child] = []
        self._nodes = nodes

    def start(self) -> None:
        """Start every supervisor."""
        for node in self._nodes:
            self._children.append(_Child(node, self._spawn(node)))

    def look(self) -> None:
        """Start a killed one again; one that was told to end is left alone. Raises Ended where one gave up."""
        now = time.monotonic()
        for child in self._children:
            code = child.process.poll()
            if not code:
                continue
            if code > 0:
                raise Ended(f"the workers of {child.node} gave up (exit code {code})")
            if not child.again_at:
                log.warning("the workers of %s were killed (signal %d): again", child.node, -code)
                child.again_at = now + AGAIN_SECONDS
            elif now >= child.again_at:
                child.process, child.again_at = self._spawn(child.node), 0.0

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        """End them: jobs in hand first finish, for a while; not if `is_urgent`."""
        self._signal(signal.SIGTERM)
        self._wait(FINISH_SECONDS, is_urgent)
        late = [child.node for child in self._children if child.process.poll() is None]
        if late and not is_urgent():
            waited = f"{', '.join(late)} did not end within {FINISH_SECONDS:g} s"
            log.warning("%s: the jobs still in hand are ended now", waited)
        self._signal(signal.SIGTERM)  # the second one means: at once
        self._wait(END_SECONDS, lambda: False)
        self._signal(signal.SIGKILL)
        for child in self._children:
            child.process.wait()

    def _spawn(self, node: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "broker.cli", "worker", "--node", node, *self._words]
        # Its own workers die with it, and it dies with us. Ctrl-C in a terminal reaches us alone: we end them in order.
        return subprocess.Popen(
            leashed(command, signal.SIGKILL),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                child.process.send_signal(number)

    def _wait(self, seconds: float, is_urgent: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        for child in self._children:
            while time.monotonic() < deadline and not is_urgent():
                with suppress(subprocess.TimeoutExpired):
                    child.process.wait(_LOOK_SECONDS)
                    break
