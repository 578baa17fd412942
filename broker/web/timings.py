"""What this process itself sees and counts for Prometheus: how long jobs wait and run, and what is asked of it.

Redis keeps none of this. Each `serve` process sees all jobs from its own start on: do not sum over processes.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from broker.rules.record import Record
from broker.rules.replay import Change
from broker.rules.stopwatch import WAIT, Stopwatch

#: So many names of a kind have a label of their own; all others share one.
NAMES_MAX = 100
OTHER = "other"

#: In seconds: from a start at once to a day.
BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3_600, 14_400, 86_400)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

# When each count began tells nothing that `process_start_time_seconds` does not.
disable_created_metrics()  # type: ignore[no-untyped-call]

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class Names:
    """The names that have a label of their own: the first that come, for as long as they are there. Thread-safe."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._kept: set[str] = set()
        self._lock = threading.Lock()

    def label(self, name: str) -> str:
        """Its own, or the shared one; for good."""
        with self._lock:
            if name not in self._kept and len(self._kept) < self._names_max:
                self._kept.add(name)
            return name if name in self._kept else OTHER

    def keep(self, names: Iterable[str]) -> Mapping[str, str]:
        """The labels of all these; who is not among them makes room."""
        with self._lock:
            present = set(names)
            self._kept &= present
            free = self._names_max - len(self._kept)
            self._kept.update(sorted(present - self._kept)[:free])
            return {name: name if name in self._kept else OTHER for name in present}


class Timings:
    """Is shown each change, and counts what is asked. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._watch = Stopwatch()
        self._engines = Names()
        self._wait = Histogram(
            "broker_job_wait_seconds",
            "How long jobs waited until they started, since they might have.",
            ["engine"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._run = Histogram(
            "broker_job_run_seconds",
            "How long jobs ran, each try for itself.",
            ["engine", "end"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._asked = Counter(
            "broker_http_requests",
            "Requests that were answered.",
            ["method", "status"],
            registry=self.registry,
        )

    def follow(self, change: Change, before: Record | None) -> None:
        """One change, and the record before it."""
        for span in self._watch.follow(change, before):
            engine, seconds = self._engines.label(span.engine), span.ms / 1000
            if span.kind == WAIT:
                self._wait.labels(engine).observe(seconds)
            else:
                self._run.labels(engine, span.end).observe(seconds)

    def counted(self, app: App) -> App:
        """The application, with its answers counted."""

        async def counting(scope: Scope, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            method = scope["method"] if scope["method"] in _METHODS else OTHER

            async def sending(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start":
                    self._asked.labels(method, str(message["status"])).inc()
                await send(message)

            await app(scope, receive, sending)

        return counting
