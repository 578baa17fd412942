"""Waiting for a job's end: its record decides, the log only rings.

Whatever happens to the log (cut, lost, of a wrong type), to the connection or to Redis meanwhile, the record is looked
at again within a second, or when Redis is back; so nothing makes it hang, and nothing but the job's end, its removal or
its loss ends it early.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import NamedTuple

from broker.errors import Damaged, NotFound, TimedOut, Unavailable
from broker.patience import patiently
from broker.rules.entry import Entry
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.state import REMOVE
from broker.store.log import Log
from broker.store.store import Store
from broker.store.view import View

#: The record is looked at at least so often, in milliseconds: no lost wake-up can make it hang.
LOOK_MS = 1_000
#: How long Redis may be away, in seconds: as long as a worker tries to tell it an end.
AWAY_SECONDS_MAX = 60.0


class _Look(NamedTuple):
    """The record, and where the log stood just before: what happens after it rings again. Empty: it cannot ring."""

    rev: str
    record: Record | None


def wait_for_end(store: Store, view: View, key: Key, timeout: float | None) -> Record | None:
    """Block until the job ends; its record then, None where it was removed before. See `Catalog.wait`."""
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    log = Log(store, key.origin)
    seen = _look(log, view, key)
    if seen.record is None:
        raise NotFound(f"no job {key} is known")
    created_at = seen.record.created_at
    while not seen.record.ended:
        before = seen
        if (left := deadline - time.monotonic()) <= 0:
            raise TimedOut(f"{key} is still {seen.record.state} after {timeout} s")
        _sleep(log, seen.rev, math.ceil(min(1000 * left, LOOK_MS)))
        left = deadline - time.monotonic()
        seen = patiently(lambda: _look(log, view, key), min(max(left, 0), AWAY_SECONDS_MAX))
        if seen.record is None or seen.record.created_at != created_at:
            told = partial(_last_word, log, view, key, created_at, before.rev)
            return patiently(told, AWAY_SECONDS_MAX)
    return seen.record


def _look(log: Log, view: View, key: Key) -> _Look:
    try:
        rev = log.position().rev
    except Damaged:
        rev = ""
    return _Look(rev, view.get(key))


def _sleep(log: Log, rev: str, wait_ms: int) -> None:
    """Until the log rings. One that cannot is slept beside: looking again and again at once would help nobody."""
    try:
        if rev:
            log.wait(rev, wait_ms)
            return
    except (Damaged, Unavailable):
        pass
    Event().wait(wait_ms / 1000)


def _last_word(log: Log, view: View, key: Key, created_at: int, rev: str) -> Record | None:
    """What became of a job whose record is not there any more: its end, if the log tells of one after `rev`.

    None where it was removed without; raises NotFound where neither is so.
    """
    for entry in _entries(log, rev):
        record = entry.record
        if record is None or entry.job != key.job or record.created_at != created_at:
            continue
        if record.ended and record.desired != REMOVE:
            return record
    if max(view.tombstone(key), view.horizon(key.origin)) >= created_at:
        return None
    if view.get(key) is not None:
        raise NotFound(f"{key} was replaced by another job of its name before it ended")
    raise NotFound(f"{key} is not there any more, and was not removed: Redis lost it")


def _entries(log: Log, rev: str) -> Iterator[Entry]:
    """What the log holds after `rev`; nothing where it cannot be read."""
    try:
        while rev and (page := log.read(rev)):
            yield from page
            rev = page[-1].rev
    except Damaged:
        return
