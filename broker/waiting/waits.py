"""Waits: any number of waits for the ends of jobs, on two threads and two connections.

One thread reads the records, all that are due in one call: when an entry names them, and all of them once a second.
`over` in `wait.py` says what a record means for a wait.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection

from broker.errors import Unavailable
from broker.rules.key import Key
from broker.store.store import Store
from broker.store.view import View
from broker.waiting.ringer import Ringer
from broker.waiting.wait import AWAY_SECONDS_MAX, LOOK_MS, Answer, Wait, over

#: The pause after a call that failed, in seconds.
PAUSE_SECONDS = 0.5

_log = logging.getLogger(__package__)


class Waits:
    """Thread-safe. `close` ends every wait."""

    def __init__(self, store: Store, view: View) -> None:
        self._store = store
        self._view = view
        self._lock = threading.Lock()
        self._woken = threading.Condition(self._lock)
        #: Every wait that goes on, and how its answer is told.
        self._tells: dict[Wait, Callable[[Answer], None]] = {}
        self._of: dict[Key, set[Wait]] = {}
        self._due: set[Wait] = set()
        self._look_at = 0.0
        self._not_before = 0.0
        self._away_since: float | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._tells)

    def enter(self, wait: Wait, tell: Callable[[Answer], None]) -> None:
        """`tell` is called once with its answer, in a thread of ours, unless it leaves before. Raises Unavailable."""
        with self._lock:
            if self._is_closed:
                raise Unavailable("this client is closed")
            self._tells[wait] = tell
            self._of.setdefault(wait.key, set()).add(wait)
            self._due.add(wait)
            self._woken.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="broker-waits", daemon=True)
                self._thread.start()

    def leave(self, wait: Wait) -> None:
        """Nobody waits for it any more. One that is over has left."""
        with self._lock:
            self._drop(wait)

    def close(self) -> None:
        """End them all: each is told Unavailable. Waits until the threads have ended."""
        with self._lock:
            self._is_closed = True
            self._woken.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _drop(self, wait: Wait) -> Callable[[Answer], None] | None:
        self._due.discard(wait)
        if (others := self._of.get(wait.key)) is not None:
            others.discard(wait)
            if not others:
                del self._of[wait.key]
        return self._tells.pop(wait, None)

    def _tell(self, wait: Wait, answer: Answer) -> None:
        with self._lock:
            tell = self._drop(wait)
        if tell is not None:
            tell(answer)

    def _ring(self, origin: str, keys: Collection[Key] | None) -> None:
        with self._lock:
            for key in self._of if keys is None else keys & self._of.keys():
                if key.origin == origin:
                    self._due |= self._of[key]
            if self._due:
                self._woken.notify()

    def _run(self) -> None:
        try:
            with Ringer(self._store, self._ring) as ringer:
                while due := self._next():
                    self._look(due, ringer)
        finally:
            with self._lock:
                self._is_closed = True
                left = list(self._tells)
            for wait in left:
                self._tell(wait, Unavailable("this client was closed"))

    def _next(self) -> list[Wait]:
        """Sleep until some are due; [] where it is closed."""
        with self._lock:
            while not self._is_closed:
                now = time.monotonic()
                moment = self._gather(now)
                if self._due and now >= self._not_before:
                    due, self._due = list(self._due), set()
                    return due
                moment = max(self._not_before, now if self._due else moment)
                self._woken.wait(None if moment == math.inf else moment - now)
            return []

    def _gather(self, now: float) -> float:
        """Put those in whose time has come, and give the moment of the next ones."""
        if self._look_at <= now:
            self._look_at = now + LOOK_MS / 1000
            self._due.update(self._tells)
        self._due.update(wait for wait in self._tells if wait.deadline <= now)
        moment = min((wait.deadline for wait in self._tells), default=math.inf)
        return min(moment, self._look_at) if self._tells else math.inf

    def _look(self, due: list[Wait], ringer: Ringer) -> None:
        begun = time.monotonic()
        try:
            # What follows upon this look it rings for: an origin that is new to it rings when it follows it.
            ringer.ask({wait.key.origin for wait in due})
            for wait, answer in over(self._store, self._view, due):
                self._tell(wait, answer)
        except Unavailable as error:
            self._away(due, error, begun)
        except Exception as error:  # noqa: BLE001 - it outlives whatever one look met
            _log.exception("waiting for %d jobs failed", len(due))
            for wait in due:
                self._tell(wait, error)
        else:
            self._away_since = None
            for wait in due:
                if not wait.left:
                    self._tell(wait, wait.timed_out())

    def _away(self, due: list[Wait], error: Unavailable, begun: float) -> None:
        """Redis is away: whoever began now, is at the deadline or was patient for long enough is told so."""
        if self._away_since is None:
            self._away_since = begun
        is_over = time.monotonic() - self._away_since >= AWAY_SECONDS_MAX
        with self._lock:
            self._due.update(wait for wait in due if wait in self._tells)
            self._not_before = time.monotonic() + PAUSE_SECONDS
            told = [wait for wait in self._tells if is_over or not wait.left]
        told += [wait for wait in due if wait.record is None]
        for wait in told:
            self._tell(wait, error)
