"""What a dispatcher holds while nothing casts doubt on it: its view of the jobs, its appointments, its term.

It follows the logs as any watcher does, also while another one leads, so that a takeover needs no listing. One that
is given up (a call failed, a later leader wrote) is thrown away whole, and the next one begins by listing: so no
doubt outlives the office in which it arose.
"""

from __future__ import annotations

from collections import deque

from broker.errors import Damaged
from broker.roles.complaints import Complaints
from broker.roles.load import Load
from broker.rules.key import Key
from broker.store.store import Store
from broker.store.watch import Change, Watcher

#: How many chunks of changes are read in one go.
CHUNKS_MAX = 20


class Office:
    """What one dispatcher knows and has in hand. It follows the logs also while another one leads."""

    def __init__(self, store: Store) -> None:
        #: The term under which it leads, 0 until it does.
        self.term = 0
        self.complain = Complaints().tell
        self.load = Load()
        #: Placed jobs to hand over again.
        self.again: deque[Key] = deque()
        self._watcher = Watcher(store)
        self._rung: list[Change] = []

    def follow(self, now: int) -> bool:
        """Bring the load view up to the logs; False where more is to be read. Nothing is placed by an old view."""
        rung, self._rung = self._rung, []
        self._absorb(rung, now)
        if rung and not self._watcher.is_behind:
            return True  # what the bell brought just now: the logs need no second look
        for _ in range(CHUNKS_MAX):
            try:
                self._absorb(self._watcher.changes(0), now)
            except Damaged as error:
                self.complain(str(error))  # of one origin; the others were told before
                return True
            if not self._watcher.is_behind:
                return True
        return False

    def _absorb(self, changes: list[Change], now: int) -> None:
        for change in changes:
            self.load.follow(change, now)

    def wait(self, seconds: float) -> bool:
        """Wait until something happens to a job, `seconds` at most; False where that cannot be waited for."""
        try:
            self._rung += self._watcher.changes(round(seconds * 1000))
        except Damaged as error:
            self.complain(str(error))
            return False
        return True

    def close(self) -> None:
        """Give back the connections."""
        self._watcher.close()
