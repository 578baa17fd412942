"""The list that all readers of one process share: what was told to them, what they missed, and what waits for each.

All of it is under one lock, which nobody holds while calling Redis, nor while ringing a bell of somebody else's.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from broker.errors import BrokerError, Resync
from broker.rules.filter import Filter, concerned
from broker.rules.history import HISTORY_MAX, History, Step
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change
from broker.rules.ring import Ring
from broker.store.watch import Cursor

#: A reader that falls behind, or fell, is warned of so often, in seconds.
WARN_SECONDS = 60.0

_POSITION = re.compile(r"([0-9a-f]{16})\.([0-9]{1,15})")

_log = logging.getLogger(__package__)


class Inbox:
    """What waits for one reader, and the bell beside it."""

    def __init__(
        self,
        name: str,
        lock: threading.Lock,
        size: int,
        wanted: Filter | None = None,
        bell: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.ring = Ring(size)
        self.is_closed = False
        #: Whoever blocks in a reader sleeps on it.
        self.woken = threading.Condition(lock)
        self._bell = bell
        self._is_rung = False
        self._warned_at: dict[str, float] = {}

    def offer(self, asked: Mapping[Key, Change], newest: Mapping[Key, Change]) -> bool:
        """Put in what the reader asks for of the `newest`: whether its bell is to be rung."""
        if self.ring.is_lost or not (mine := self.ring.missed(asked, newest)):
            return False
        if not self.ring.put(mine):
            self._warn("%s fell behind by more than can be kept: it must list again", self.name)
        elif self.ring.is_filling:
            self._warn("%s falls behind: %d jobs wait for it", self.name, len(self.ring))
        return self.wake()

    def wake(self) -> bool:
        """There is something to look at: whether the bell is to be rung, which it is once until the reader looks."""
        self.woken.notify()
        was_rung, self._is_rung = self._is_rung, True
        return not was_rung

    def look(self) -> None:
        """The reader looks: what comes from here on rings anew."""
        self._is_rung = False

    def end(self) -> bool:
        """Nothing is told any more: whether the bell is to be rung."""
        was_closed, self.is_closed = self.is_closed, True
        self.woken.notify()
        return not was_closed

    def ring_bell(self) -> None:
        """Outside of the lock, for the bell is somebody else's."""
        if self._bell is None:
            return
        try:
            self._bell()
        except Exception as error:  # noqa: BLE001 - whatever it met, the other readers are not to suffer
            self._warn("the bell of %s failed: %r", self.name, error)

    def _warn(self, text: str, *args: object) -> None:
        here = time.monotonic()
        if here - self._warned_at.get(text, -WARN_SECONDS) >= WARN_SECONDS:
            self._warned_at[text] = here
            _log.warning(text, *args)


class SharedList:
    """What all readers of one `Readers` share."""

    def __init__(self, history_size: int = HISTORY_MAX) -> None:
        self.lock = threading.Lock()
        self.inboxes: set[Inbox] = set()
        #: What was told to them: the state at `cursor`.
        self.records: dict[Key, Record] = {}
        self.cursor: Cursor = {}
        self.is_listed = False
        self.is_closed = False
        #: What the reading meets now, if anything.
        self.trouble: BrokerError | None = None
        self._history = History(history_size)
        # A position of another list, of this process or one before it, must not be taken for one of this one.
        self._nonce = secrets.token_hex(8)

    @property
    def position(self) -> str:
        """Where the list stands; under the lock."""
        return f"{self._nonce}.{self._history.number}"

    def join(self, inbox: Inbox, after: str | None) -> None:
        """One more reader, which knows all up to the position `after`, or nothing. Raises Resync."""
        with self.lock:
            if self.is_closed:
                is_rung = inbox.end()
            else:
                is_rung = after is not None and self._resume(inbox, after)
                self.inboxes.add(inbox)
        if is_rung:
            inbox.ring_bell()

    def _resume(self, inbox: Inbox, after: str) -> bool:
        found = _POSITION.fullmatch(after)
        held = found is not None and found[1] == self._nonce
        steps = self._history.since(int(found[2])) if found is not None and held else None
        if steps is None:
            raise Resync(
                f"the position {after!r:.60} is not held here, or not any more: list again"
            )
        inbox.ring.begin()
        is_rung = inbox.offer(concerned(inbox.wanted, steps), {})
        if inbox.ring.is_lost:
            raise Resync(f"more changed since {after} than can be kept for one reader: list again")
        return is_rung

    def leave(self, inbox: Inbox) -> None:
        """This reader ends."""
        with self.lock:
            self.inboxes.discard(inbox)
            is_rung = inbox.end()
        if is_rung:
            inbox.ring_bell()

    def follow(
        self, changes: list[Change], cursor: Cursor, *, is_listed: bool, is_over: bool = False
    ) -> list[Step]:
        """Tell these to all who ask for them. `is_listed`: whether everything was listed by now.

        `is_over`: whether the trouble is. Who sees that it is sees what was missed, too.
        """
        with self.lock:
            if is_over:
                self.trouble = None
            steps = [Step(change, self._absorb(change)) for change in changes]
            self._history.add(steps)
            self.cursor = cursor
            rung = self._offer(steps) if steps else []
            rung += self._note_listed(is_listed)
        ring_bells(rung)
        return steps

    def _absorb(self, change: Change) -> Record | None:
        before = self.records.get(change.key)
        if change.record is not None:
            self.records[change.key] = change.record
        elif before is not None:
            del self.records[change.key]
        return before

    def _offer(self, steps: list[Step]) -> list[Inbox]:
        # Many readers ask the same: each question is answered once.
        newest = concerned(None, steps)
        asked: dict[Filter | None, dict[Key, Change]] = {None: newest}
        for wanted in {inbox.wanted for inbox in self.inboxes} - {None}:
            asked[wanted] = concerned(wanted, steps)
        return [inbox for inbox in self.inboxes if inbox.offer(asked[inbox.wanted], newest)]

    def meet(self, error: BrokerError, *, is_listed: bool) -> None:
        """The reading met trouble."""
        with self.lock:
            self.trouble = error
            rung = self._note_listed(is_listed)
        ring_bells(rung)

    def _note_listed(self, is_listed: bool) -> list[Inbox]:
        """Wake those who wait for the first list: once it is there, or where trouble stands in its way."""
        if self.is_listed:
            return []
        self.is_listed = is_listed
        if not is_listed and self.trouble is None:
            return []
        return [inbox for inbox in self.inboxes if inbox.wake()]

    def raise_trouble(self) -> None:
        """Say what the reading meets, if anything."""
        if self.trouble is not None:
            raise type(self.trouble)(str(self.trouble))

    def end(self) -> None:
        """All readers end."""
        with self.lock:
            self.is_closed = True
            rung = [inbox for inbox in self.inboxes if inbox.end()]
            self.inboxes.clear()
        ring_bells(rung)


def ring_bells(inboxes: Iterable[Inbox]) -> None:
    """Outside of the lock."""
    for inbox in inboxes:
        inbox.ring_bell()
