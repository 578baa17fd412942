"""One reader of the list that many in its process share: it lists, then follows, at its own pace."""

from __future__ import annotations

import time
from typing import Self

from broker.errors import BrokerError, Resync, Unavailable
from broker.readers.shared import Inbox, SharedList
from broker.rules.replay import Change
from broker.store.watch import Cursor, Snapshot


class Reader:
    """Follows the list: `snapshot`, then `changes`. For one thread, but for `close`. A context manager."""

    def __init__(self, shared: SharedList, inbox: Inbox, position: str) -> None:
        self._list = shared
        self._inbox = inbox
        self._cursor: Cursor = {}
        self._position = position

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
        """Where it stands: what it was told adds up to the state there. `Watcher.resume` takes it, too.

        One that came back after a position knows it once `changes` was called.
        """
        return dict(self._cursor)

    @property
    def position(self) -> str:
        """The same as a short text that `Readers.open(after=...)` takes; empty as long as it has not listed."""
        return self._position

    @property
    def is_listed(self) -> bool:
        """Whether `snapshot` answers at once: everything was listed for the first time."""
        return self._list.is_listed

    @property
    def trouble(self) -> BrokerError | None:
        """What the reading meets now, if anything: as long as it lasts nobody can tell what happens."""
        return self._list.trouble

    def snapshot(self) -> Snapshot:
        """The list as it was told so far, at one position of each log; changes follow. It asks nothing of Redis.

        Only what the reader asks for, where it asks. An origin that first spoke within the last second may come with
        the changes. Waits until all was listed for the first time; raises Unavailable or Damaged where that meets
        trouble.
        """
        while True:
            with self._list.lock:
                while not self._list.is_listed and self._list.trouble is None and not self.closed:
                    self._inbox.woken.wait()
            if found := self.snapshot_if_listed():
                return found

    def snapshot_if_listed(self) -> Snapshot | None:
        """The same at once; None where not everything was listed yet, and nothing stands in its way."""
        with self._list.lock:
            self._inbox.look()
            if not self._list.is_listed:
                self._list.raise_trouble()
                if self.closed:
                    raise Unavailable(f"{self.name} was closed before anything was listed")
                return None
            self._inbox.ring.begin()
            self._cursor, self._position = self._list.cursor, self._list.position
            records = dict(self._list.records)
        wanted = self._inbox.wanted
        if wanted is not None:
            records = {key: record for key, record in records.items() if wanted.fits(key, record)}
        return Snapshot(records, self.cursor)

    def changes(self, wait_ms: int) -> list[Change]:
        """What happened since the last call, the newest of each job, waiting up to `wait_ms`; [] if nothing did.

        A reader that asks for some jobs is told of those that fit, and of those that do not fit any more. Raises
        Resync where it fell behind, or took no snapshot yet: until it takes one, nothing is told. Raises Unavailable
        or Damaged where the time is over and nobody can tell whether anything happened; nothing is lost by either.
        Once closed it returns [], always.
        """
        deadline = time.monotonic() + wait_ms / 1000
        with self._list.lock:
            self._inbox.look()
            while not self.closed:
                if self._inbox.ring.is_lost:
                    raise Resync(f"{self.name} fell behind, or has not listed yet: take a snapshot")
                self._cursor, self._position = self._list.cursor, self._list.position
                if taken := self._inbox.ring.take():
                    self._inbox.look()
                    return taken
                left = deadline - time.monotonic()
                if left <= 0:
                    self._list.raise_trouble()
                    break
                self._inbox.woken.wait(left)
        return []

    def close(self) -> None:
        """From any thread: end it, a blocked `changes` at once. Closing twice does nothing."""
        self._list.leave(self._inbox)
