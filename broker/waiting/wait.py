"""Waiting for a job's end: the record decides, the log only wakes the waiter.

Whatever happens meanwhile to the log (trimmed, lost, of a wrong type), to the connection or to Redis, the record is
read again within a second, or once Redis is back. So no wait hangs, and only the job's end, its removal or its loss
ends one before its deadline.

`over` says what a record means for a wait; it serves the one that blocks and the many that are awaited (`waits.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from threading import Event

from broker.errors import Damaged, NotFound, TimedOut, Unavailable
from broker.rules.entry import Entry
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import rev_order
from broker.rules.state import REMOVE
from broker.store.log import Log
from broker.store.store import Store
from broker.store.view import View
from broker.waiting.patience import patiently

#: The record is looked at again at least so often, in milliseconds: no lost wake-up can make it hang.
LOOK_MS = 1_000
#: How long Redis may be away, in seconds: as long as a worker tries to tell it an end.
AWAY_SECONDS_MAX = 60.0

#: What a wait comes to: the record of the job that ended, None where it was removed, or what is to be raised.
Answer = Record | Exception | None


class Wait:
    """A job whose end is waited for, and what was seen of it last."""

    def __init__(self, key: Key, timeout: float | None) -> None:
        self.key = key
        self.record: Record | None = None
        #: The log's newest rev just before that read: later entries wake the waiter. Empty: the log cannot be read.
        self.rev = ""
        self._timeout = timeout
        self.deadline = math.inf if timeout is None else time.monotonic() + timeout

    @property
    def left(self) -> float:
        """How long it may still last, in seconds."""
        return max(0.0, self.deadline - time.monotonic())

    def timed_out(self) -> TimedOut:
        """What is raised at its deadline."""
        state = self.record.state if self.record else "not known"
        return TimedOut(f"{self.key} is still {state} after {self._timeout} s")


def wait_for_end(store: Store, view: View, key: Key, timeout: float | None) -> Record | None:
    """Block until the job ends; its record then, None where it was removed before. See `Catalog.wait`."""
    wait = Wait(key, timeout)
    log = Log(store, key.origin)
    told = list(over(store, view, [wait]))
    while not told:
        if not wait.left:
            raise wait.timed_out()
        _sleep(log, wait.rev, math.ceil(min(1000 * wait.left, LOOK_MS)))
        patience = min(wait.left, AWAY_SECONDS_MAX)
        told = patiently(lambda: list(over(store, view, [wait])), patience)
    [(_, answer)] = told
    if isinstance(answer, Exception):
        raise answer
    return answer


def _sleep(log: Log, rev: str, wait_ms: int) -> None:
    """Until the log rings. One that cannot is slept beside: looking again and again at once would help nobody."""
    try:
        if rev:
            log.wait(rev, wait_ms)
            return
    except (Damaged, Unavailable):
        pass
    Event().wait(wait_ms / 1000)


def over(store: Store, view: View, waits: Collection[Wait]) -> Iterator[tuple[Wait, Answer]]:
    """Look at each job once: those waits that are over, each with its answer.

    Raises Unavailable; what was not told by then is found by the next look.
    """
    revs = {origin: _rev(store, origin) for origin in {wait.key.origin for wait in waits}}
    vanished: dict[str, list[Wait]] = {}
    for wait, found in _records(view, waits):
        before = wait.record
        if isinstance(found, Damaged):
            yield wait, found
        elif before is None and found is None:
            yield wait, NotFound(f"no job {wait.key} is known")
        elif before is not None and (found is None or found.created_at != before.created_at):
            vanished.setdefault(wait.key.origin, []).append(wait)
        else:
            wait.record, wait.rev = found, revs[wait.key.origin]
            if found is not None and found.ended:
                yield wait, found
    for origin, gone in vanished.items():
        try:
            yield from _last_words(Log(store, origin), view, gone)
        except Damaged as met:
            yield from ((wait, met) for wait in gone)


def _rev(store: Store, origin: str) -> str:
    try:
        return Log(store, origin).position().rev
    except Damaged:
        return ""


def _records(view: View, waits: Collection[Wait]) -> Iterator[tuple[Wait, Record | Damaged | None]]:
    try:
        yield from zip(waits, view.get_many([wait.key for wait in waits]), strict=True)
        return
    except Damaged:
        pass
    for wait in waits:  # one of them cannot be read: the others can
        try:
            yield wait, view.get(wait.key)
        except Damaged as met:
            yield wait, met


def _last_words(log: Log, view: View, gone: list[Wait]) -> Iterator[tuple[Wait, Answer]]:
    """What became of jobs whose records are not there any more: their ends, if the log tells of any since."""
    heard = _heard(log, gone)
    horizon = view.horizon(log.origin)
    for wait in gone:
        if wait in heard:
            yield wait, heard[wait]
        elif max(view.tombstone(wait.key), horizon) >= _generation(wait):
            yield wait, None
        elif view.get(wait.key) is not None:
            name = f"{wait.key} was replaced by another job of its name before it ended"
            yield wait, NotFound(name)
        else:
            yield (
                wait,
                NotFound(f"{wait.key} is not there any more, and was not removed: Redis lost it"),
            )


def _heard(log: Log, gone: list[Wait]) -> dict[Wait, Record]:
    """The first end of each that the log tells, if it was no removal."""
    waits: dict[str, list[Wait]] = {}
    for wait in gone:
        waits.setdefault(wait.key.job, []).append(wait)
    heard: dict[Wait, Record] = {}
    since = min((wait.rev for wait in gone if wait.rev), key=rev_order, default="")
    for entry in _entries(log, since):
        record = entry.record
        if record is None or not record.ended or record.desired == REMOVE:
            continue
        for wait in waits.get(entry.job, ()):
            if record.created_at == _generation(wait) and rev_order(entry.rev) > rev_order(
                wait.rev
            ):
                heard.setdefault(wait, record)
    return heard


def _generation(wait: Wait) -> int:
    return wait.record.created_at if wait.record else 0


def _entries(log: Log, rev: str) -> Iterator[Entry]:
    """What the log holds after `rev`; nothing where it cannot be read."""
    try:
        while rev and (page := log.read(rev)):
            yield from page
            rev = page[-1].rev
    except Damaged:
        return
