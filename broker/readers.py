"""Readers: many that follow the list in one process, on one connection.

One thread reads the logs, as one watcher, and hands each change to every reader's ring. It never waits for a reader:
one that is slow is coalesced, one that is slower still is told to list again, which costs Redis nothing, for the list
is held here. What a reader does with a change is no business of this module.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Self

from broker.errors import BrokerError, Resync, Unavailable
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.rules.ring import SIZE, Ring
from broker.store.follow import RELIST_SECONDS
from broker.store.store import Store
from broker.store.watch import Cursor, Snapshot, Watcher

#: How long one call waits for a change, in ms: longer than the watcher takes to look at every log once.
WAIT_MS = 2_000
#: The pause after a call that failed, in seconds.
PAUSE_SECONDS = 0.25
#: A reader that falls behind, or fell, is warned of so often, in seconds.
WARN_SECONDS = 60.0

_log = logging.getLogger(__name__)


class _Inbox:
    """What waits for one reader, and the bell beside it. All of it is under the lock of the list."""

    def __init__(self, name: str, lock: threading.Lock, size: int) -> None:
        self.name = name
        self.ring = Ring(size)
        self.news = threading.Condition(lock)
        self.is_closed = False
        self._warned_at: dict[str, float] = {}

    def offer(self, changes: list[Change]) -> None:
        """Here each change meets a reader: the place to leave out what it does not ask for."""
        if not changes or self.ring.is_lost:
            return
        if not self.ring.put(changes):
            self._warn("%s fell behind by more than can be kept: it must list again", self.name)
        elif self.ring.is_filling:
            self._warn("%s falls behind: %d jobs wait for it", self.name, len(self.ring))
        self.news.notify()

    def _warn(self, text: str, *args: object) -> None:
        here = time.monotonic()
        if here - self._warned_at.get(text, -WARN_SECONDS) >= WARN_SECONDS:
            self._warned_at[text] = here
            _log.warning(text, *args)

    def end(self) -> None:
        self.is_closed = True
        self.news.notify()


class _List:
    """What all readers share. All of it is under the lock, which nobody holds while calling Redis."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inboxes: set[_Inbox] = set()
        #: What was told to them: the state at `cursor`.
        self.records: dict[Key, Record] = {}
        self.cursor: Cursor = {}
        self.is_listed = False
        self.is_closed = False
        #: What the reading meets now, if anything.
        self.trouble: BrokerError | None = None

    def follow(self, changes: list[Change], cursor: Cursor) -> None:
        for change in changes:
            if change.record is None:
                self.records.pop(change.key, None)
            else:
                self.records[change.key] = change.record
        self.cursor = cursor
        for inbox in self.inboxes:
            inbox.offer(changes)

    def look_whether(self, is_listed: bool) -> None:
        """Those who wait for the first list are woken by it, and by what stands in its way."""
        if not self.is_listed:
            self.is_listed = is_listed
            for inbox in self.inboxes:
                inbox.news.notify()

    def raise_trouble(self) -> None:
        if self.trouble is not None:
            raise type(self.trouble)(str(self.trouble))

    def end(self) -> None:
        self.is_closed = True
        for inbox in self.inboxes:
            inbox.end()
        self.inboxes.clear()


class Readers:
    """Opens readers of `origins` (None: of all). Thread-safe; a context manager. Make it after forking.

    Each reader may be `ring_size` jobs behind. They share one list, of which each origin is listed anew after
    `relist_seconds`.
    """

    def __init__(
        self,
        store: Store,
        origins: Sequence[str] | None = None,
        *,
        ring_size: int = SIZE,
        relist_seconds: float = RELIST_SECONDS,
    ) -> None:
        self._watcher = Watcher(store, origins, relist_seconds=relist_seconds)
        self._ring_size = ring_size
        self._numbers = count(1)
        self._list = _List()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-readers", daemon=True)
        self._thread.start()

    @property
    def drift(self) -> int:
        """See `Watcher.drift`."""
        return self._watcher.drift

    def open(self, name: str = "") -> Reader:
        """One more reader; `name` is how warnings call it. After `close` one that has ended already."""
        inbox = _Inbox(name or f"reader {next(self._numbers)}", self._list.lock, self._ring_size)
        with self._list.lock:
            if self._list.is_closed:
                inbox.end()
            else:
                self._list.inboxes.add(inbox)
        return Reader(self._list, inbox)

    def close(self) -> None:
        """From any thread: end every reader, and the reading; returns at once. Closing twice does nothing."""
        self._stop.set()
        with self._list.lock:
            self._list.end()
        self._watcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        except BaseException:
            self.close()  # nobody may wait for what never comes
            raise

    def _step(self) -> None:
        try:
            changes = self._watcher.changes(WAIT_MS if self._list.is_listed else 0)
        except BrokerError as error:
            self._meet(error)
            self._stop.wait(PAUSE_SECONDS)
        else:
            self._tell(changes)

    def _meet(self, error: BrokerError) -> None:
        if self._list.trouble is None:
            _log.warning("readers: %s; trying on", error)
        with self._list.lock:
            self._list.trouble = error
            self._list.look_whether(is_listed=not self._watcher.is_behind)

    def _tell(self, changes: list[Change]) -> None:
        trouble = self._list.trouble
        # A damaged log is met once a second: only a quiet call says that there is none any more.
        is_over = trouble is not None and (not changes or isinstance(trouble, Unavailable))
        if is_over:
            _log.warning("readers: it works again")
        with self._list.lock:
            if is_over:
                self._list.trouble = None
            self._list.follow(changes, self._watcher.cursor)
            self._list.look_whether(is_listed=not self._watcher.is_behind)


class Reader:
    """Follows the list: `snapshot`, then `changes`. For one thread, but for `close`. A context manager."""

    def __init__(self, shared: _List, inbox: _Inbox) -> None:
        self._list = shared
        self._inbox = inbox
        self._cursor: Cursor = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """How warnings call it."""
        return self._inbox.name

    @property
    def closed(self) -> bool:
        """Whether it has ended: nothing is told any more."""
        return self._inbox.is_closed

    @property
    def cursor(self) -> Cursor:
        """Where it stands: what it was told adds up to the state there. `Watcher.resume` takes it, too."""
        return dict(self._cursor)

    def snapshot(self) -> Snapshot:
        """The list as it was told so far, at one position of each log; changes follow. It asks nothing of Redis.

        An origin that first spoke within the last second may come with the changes. Waits until all was listed for the
        first time; raises Unavailable or Damaged where that meets trouble.
        """
        with self._list.lock:
            while not self._list.is_listed:
                self._list.raise_trouble()
                if self.closed:
                    raise Unavailable(f"{self.name} was closed before anything was listed")
                self._inbox.news.wait()
            self._inbox.ring.begin()
            self._cursor = self._list.cursor
            return Snapshot(dict(self._list.records), self.cursor)

    def changes(self, wait_ms: int) -> list[Change]:
        """What happened since the last call, the newest of each job, waiting up to `wait_ms`; [] if nothing did.

        Raises Resync where it fell behind, or took no snapshot yet: until it takes one, nothing is told. Raises
        Unavailable or Damaged where the time is over and nobody can tell whether anything happened; nothing is lost by
        either. Once closed it returns [], always.
        """
        deadline = time.monotonic() + wait_ms / 1000
        with self._list.lock:
            while not self.closed:
                if self._inbox.ring.is_lost:
                    raise Resync(f"{self.name} fell behind, or has not listed yet: take a snapshot")
                self._cursor = self._list.cursor
                if taken := self._inbox.ring.take():
                    return taken
                left = deadline - time.monotonic()
                if left <= 0:
                    self._list.raise_trouble()
                    break
                self._inbox.news.wait(left)
        return []

    def close(self) -> None:
        """From any thread: end it, a blocked `changes` at once. Closing twice does nothing."""
        with self._list.lock:
            self._list.inboxes.discard(self._inbox)
            self._inbox.end()
