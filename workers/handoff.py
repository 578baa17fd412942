"""Handoff: an RQ job as our workers read it. Data only: nothing that Redis holds is imported, called or fetched.

Whoever can write to Redis can write an RQ job, and RQ would call any function that it names, and its callbacks and
webhooks too, in workers and in maintenance. This class keeps none of these fields, so that no path through RQ can meet
them; `refusal` tells that one was there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from rq.job import Job, JobStatus

from broker import FUNCTION, Invalid, Key, queue_name, rq_job_id
from workers import run

#: A hand-off is a key and two numbers: more is not read.
DATA_BYTES_MAX = 16 * 1024

#: What a hand-off never carries, and RQ would act on.
_FORBIDDEN = (
    b"success_callback_name",
    b"failure_callback_name",
    b"stopped_callback_name",
    b"webhooks",
    b"dependency_id",
    b"dependency_ids",
    b"retries_left",
    b"number_of_retries",
    b"retry_intervals",
    b"repeats_left",
    b"repeat_intervals",
    b"group_id",
    b"rate_limit_key",
)


class Names(NamedTuple):
    """What a hand-off names: one attempt of one job."""

    key: Key
    created_at: int
    attempt: int


class Handoff(Job):
    """One hand-off, read without trust. `refusal` is empty where it is one of ours."""

    refusal: str = ""
    names: Names | None = None

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Read what a hand-off has; never raises, keeps nothing else."""
        self.timeout, self.result_ttl, self.failure_ttl = -1, 0, 0
        self._status = JobStatus.QUEUED
        try:
            self.origin = raw_data.get(b"origin", b"").decode()
            function, instance, args, options = json.loads(_unpack(raw_data.get(b"data", b"")))
            self.refusal = _refusal(raw_data, function, instance, options)
            key, created_at, attempt = args
            if not (type(created_at) is type(attempt) is int):
                raise TypeError("numbers are not numbers")
            self.names = Names(Key.parse(key), created_at, attempt)
        except (
            ValueError,
            TypeError,
            AttributeError,
            zlib.error,
            RecursionError,
            Invalid,
        ) as wrong:
            self.refusal = self.refusal or f"it cannot be read ({type(wrong).__name__})"
        if status := raw_data.get(b"status", b""):
            self._status = _STATUS.get(status, JobStatus.QUEUED)
        names = self.names
        self._func_name = FUNCTION
        self._instance = None
        self._args = (str(names.key), names.created_at, names.attempt) if names else ("", 0, 0)
        self._kwargs = {}
        self.description = str(names.key) if names else ""

    @property
    def func(self) -> Any:
        """The one function: never looked up by its name."""
        return run.run

    def misplaced(self, namespace: str, node: str, engine: str) -> str:
        """Why it does not belong to this queue, empty where it does: its id and queue follow from what it names."""
        if self.names is None:
            return "it names no job"
        key, created_at, attempt = self.names
        if self.id != rq_job_id(namespace, key, created_at, attempt):
            return "its id is not that of the attempt it names"
        if key.engine != engine or self.origin != queue_name(namespace, node, engine):
            return "it was meant for another queue"
        return ""


_STATUS = {status.value.encode(): status for status in JobStatus}


def _unpack(data: bytes) -> bytes:
    """Undo RQ's compression, without giving memory to whoever wants it all."""
    return zlib.decompressobj().decompress(data, DATA_BYTES_MAX)


def _refusal(raw: Mapping[bytes, bytes], function: Any, instance: Any, options: Any) -> str:
    if function != FUNCTION:
        return f"its function is {str(function)[:100]!r}"
    if instance is not None or options:
        return "it carries an instance or options"
    for name in _FORBIDDEN:
        if raw.get(name):
            return f"it carries {name.decode()}"
    return ""
