"""Readers: many that follow the list in one process, on one connection.

One thread reads the logs, as one watcher, and hands each change to every reader's ring. It never waits for a reader:
one that is slow is coalesced, one that is slower still is told to list again, which costs Redis nothing, for the list
is held here. What a reader does with a change is no business of this module.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Self

from broker.errors import BrokerError
from broker.readers.reader import Reader
from broker.readers.shared import WARN_SECONDS, Inbox, SharedList
from broker.rules.filter import Filter
from broker.rules.history import HISTORY_MAX, Step
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.rules.ring import SIZE
from broker.store.follow import RELIST_SECONDS
from broker.store.store import Store
from broker.store.watch import Watcher

__all__ = ["Reader", "Readers"]

#: How long one call waits for a change, in ms: longer than the watcher takes to look at every log once.
WAIT_MS = 2_000
#: A list that has not held all that is logged for longer is behind the logs, in seconds: below 3 in health.
BEHIND_SECONDS_MAX = 10.0
#: The pause after a call that failed, in seconds.
PAUSE_SECONDS = 0.25

_log = logging.getLogger(__package__)


class Readers:
    """Opens readers of `origins` (None: of all). Thread-safe; a context manager. Make it after forking.

    Each reader may be `ring_size` jobs behind, and come back after `history_size` changes. They share one list, of
    which each origin is listed anew after `relist_seconds`. `told` is called in the reading thread with each change
    and the record that was known before it, after the readers; what it raises is logged.
    """

    def __init__(
        self,
        store: Store,
        origins: Sequence[str] | None = None,
        *,
        told: Callable[[Change, Record | None], None] | None = None,
        ring_size: int = SIZE,
        history_size: int = HISTORY_MAX,
        relist_seconds: float = RELIST_SECONDS,
    ) -> None:
        self._watcher = Watcher(store, origins, relist_seconds=relist_seconds)
        self._told = told
        self._complained_at = -WARN_SECONDS
        self._ring_size = ring_size
        self._numbers = count(1)
        self._list = SharedList(history_size)
        self._current_at = -math.inf
        self._turned_at = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker-readers", daemon=True)
        self._thread.start()

    @property
    def drift(self) -> int:
        """See `Watcher.drift`."""
        return self._watcher.drift

    @property
    def records(self) -> dict[Key, Record]:
        """All that was told so far, at one position of each log. What moves without an entry (last_seen) is older."""
        with self._list.lock:
            return dict(self._list.records)

    @property
    def position(self) -> str:
        """Where the list stands, as a short text that `open(after=...)` takes: at most 40 of `[0-9a-f.]`."""
        with self._list.lock:
            return self._list.position

    @property
    def is_listed(self) -> bool:
        """Whether everything was listed for the first time."""
        return self._list.is_listed

    @property
    def is_behind(self) -> bool:
        """Whether the logs hold more than was told, as far as the last look at them knows."""
        return self._watcher.is_behind

    @property
    def trouble(self) -> BrokerError | None:
        """What the reading meets now, if anything: Unavailable, or Damaged where some log cannot be read."""
        return self._list.trouble

    @property
    def age_seconds(self) -> float:
        """How long ago all that was logged was known: below 3 in health, infinite before the first list."""
        return time.monotonic() - self._current_at

    @property
    def turn_seconds(self) -> float:
        """How long ago the reading began its last turn: far below 30, also while Redis is away."""
        return time.monotonic() - self._turned_at

    @property
    def closed(self) -> bool:
        """Whether all has ended."""
        return self._list.is_closed

    def open(
        self,
        name: str = "",
        *,
        wanted: Filter | None = None,
        after: str | None = None,
        bell: Callable[[], None] | None = None,
    ) -> Reader:
        """One more reader; `name` is how warnings call it. After `close` one that has ended already.

        `wanted`: the jobs that it asks for. It is told of a job that fits before a change or after it: also of one
        that is removed, or goes out of the filter.

        `after`: a position that was handed out here, by `position` or by a reader that asked for the same jobs. The
        changes since then come first, and no snapshot is needed. Raises Resync where they are not kept any more.

        `bell`: called whenever something waits that the reader has not looked for yet, and when it is closed, also
        where everything was listed first or that meets trouble. It must not block: it is called by whoever brings
        the news, most often the reading thread.
        """
        name = name or f"reader {next(self._numbers)}"
        inbox = Inbox(name, self._list.lock, self._ring_size, wanted, bell)
        self._list.join(inbox, after)
        return Reader(self._list, inbox, after or "")

    def close(self) -> None:
        """From any thread: end every reader, and the reading; returns at once. Closing twice does nothing."""
        self._stop.set()
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
                self._turned_at = time.monotonic()
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
        self._list.meet(error, is_listed=not self._watcher.is_behind)

    def _tell(self, changes: list[Change]) -> None:
        # Of a log that cannot be read nobody hears while the others are busy, nor that it can be again.
        damage, trouble = self._watcher.damage, self._list.trouble
        is_over = damage is None and trouble is not None
        if is_over:
            _log.warning("readers: it works again")
        is_whole, known_at = not self._watcher.is_behind, time.monotonic()
        steps = self._list.follow(
            changes, self._watcher.cursor, is_listed=is_whole, is_over=is_over
        )
        if is_whole and damage is None:
            self._current_at = known_at  # not before: an age of nothing would go with a list of old
        if damage is not None and damage is not trouble:
            self._meet(damage)  # after what was read: either wakes who waits for the first list
        if self._told is not None:
            for step in steps:
                self._say(self._told, step)

    def _say(self, told: Callable[[Change, Record | None], None], step: Step) -> None:
        try:
            told(*step)
        except Exception as error:  # noqa: BLE001 - whatever it met, the readers are not to suffer
            here = time.monotonic()
            if here - self._complained_at >= WARN_SECONDS:
                self._complained_at = here
                _log.warning(
                    "who was told of %s failed: %r", step.change.key, error, exc_info=error
                )
