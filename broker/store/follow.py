"""One origin as a reader follows it: the records held, the place they are true at, and how both move on.

What is held is always the state at one position of the log: the place is taken before the scan, and what happened
during the scan is then read from the log, where an older entry never overwrites what the scan found newer.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

from broker.errors import Gone, Unavailable
from broker.rules.key import Key
from broker.rules.record import Record
from broker.rules.replay import Change, absorb, differences, rev_order
from broker.store.log import BEGIN, CHUNK_MAX, Log, Place
from broker.store.scan import scan
from broker.store.store import Store

#: How often a listing is begun anew when the log was cut or replaced under it.
LISTINGS_MAX = 5
#: What is held is compared with a new list after so many seconds, a tenth more or less.
RELIST_SECONDS = 300.0


class Stopped(Exception):
    """A listing was given up because nobody waits for it any more."""


def _is_before(one: Place, other: Place) -> bool:
    return rev_order(one.rev) < rev_order(other.rev)


def never() -> bool:
    """Nobody stops this."""
    return False


class Follower:
    """Holds one origin's records. `place` is None until the first listing, and after a loss until the next one."""

    def __init__(
        self,
        store: Store,
        origin: str,
        relist_seconds: float = RELIST_SECONDS,
        *,
        is_new: bool = False,
    ) -> None:
        self.origin = origin
        #: Whether it appeared under the eyes of the reader, which has missed nothing of it yet.
        self.is_new = is_new
        self.log = Log(store, origin)
        self.records: dict[Key, Record] = {}
        #: Those that have not ended.
        self.live: dict[Key, Record] = {}
        self.place: Place | None = None
        #: Whether `records` is all that the reader's user holds: only then can a loss be made good by listing anew.
        self.is_whole = True
        #: Whether the last `step` met damage.
        self.is_damaged = False
        #: When what is held is next to be compared with a new list, by the monotonic clock.
        self.relist_at = 0.0
        self._store = store
        self._relist_seconds = relist_seconds

    def resume(self, place: Place, records: Mapping[Key, Record] | None) -> None:
        """Stand at a place that was handed out before; raises Gone where the log no longer holds what followed it."""
        self.log.read_on(place, 1)
        self.hold(dict(records or {}), place)
        self.is_whole = records is not None

    def look(self, is_stopped: Callable[[], bool] = never) -> tuple[dict[Key, Record], Place]:
        """What is true now, at one position of the log; what is held stays as it is."""
        for _ in range(LISTINGS_MAX):
            place = self.log.position().place
            found: dict[Key, Record] = {}
            for page in scan(self._store, self.origin):
                if is_stopped():
                    raise Stopped
                found |= page
            try:
                return found, self._replay(found, place)
            except Gone:
                continue
        raise Unavailable(f"the log of {self.origin} is cut faster than it can be listed")

    def hold(self, records: dict[Key, Record], place: Place) -> None:
        """Hold these from now on: all that there is at `place`."""
        self.records, self.place, self.is_whole = records, place, True
        self.live = {key: record for key, record in records.items() if not record.ended}
        self.relist_in(self._relist_seconds)

    @property
    def can_relist(self) -> bool:
        """Whether there is anything to compare a new list with."""
        return self.place is not None and self.is_whole

    def relist_in(self, seconds: float) -> None:
        """Put the next comparison off for about so long: what was listed together is not listed together again."""
        self.relist_at = time.monotonic() + seconds * random.uniform(0.9, 1.1)

    def step(self, is_stopped: Callable[[], bool] = never) -> list[Change]:
        """What is new, at most a chunk; all that differs, where the origin had to be listed (anew)."""
        if self.place is None and self.is_new:
            self._begin()
        if self.place is not None:
            try:
                return self._read_on(self.place)
            except Gone:
                if not self.is_whole:
                    raise
                self.place = None
        return self.list_anew(is_stopped)

    def _begin(self) -> None:
        """Stand where the log begins, if that is still there.

        Somebody may have read the records by themselves, and counts on being told what is removed since. A listing
        never held what is gone by now, and cannot tell.
        """
        epoch, floor, _ = self.log.position()
        self.is_new = False
        if epoch and floor == BEGIN:
            self.hold({}, Place(epoch, floor))

    def list_anew(self, is_stopped: Callable[[], bool] = never) -> list[Change]:
        """Replace what is held by what is true now, and tell the differences."""
        found, place = self.look(is_stopped)
        told = differences(self.records, found, place.rev)
        self.hold(found, place)
        return told

    def relist(self, told: list[Change], is_stopped: Callable[[], bool] = never) -> list[Change]:
        """List anew, and add what differs to `told`; what of it the log gives no reason for is returned: the drift.

        What is held is first read on to where the listing stands, so that both are compared at one position.
        After a loss (Gone) there is no drift to speak of: [].
        """
        # Where this one fails, the others come first.
        self.relist_in(self._relist_seconds / 10)
        found, place = self.look(is_stopped)
        try:
            stood = None  # a hand may have deleted the very entry that is read on to
            while self.place and self.place != stood and _is_before(self.place, place):
                stood = self.place
                told += self._read_on(stood, place.rev)
            is_comparable = self.place == place
        except Gone:
            is_comparable = False
        differing = differences(self.records, found, place.rev)
        told += differing
        self.hold(found, place)
        return differing if is_comparable else []

    def _read_on(self, place: Place, until: str = "+") -> list[Change]:
        chunk = self.log.read_on(place, CHUNK_MAX, until)
        told: list[Change] = []
        for entry in chunk.entries:
            told += absorb(self.records, self.origin, entry)
        for change in told:
            if change.record is None or change.record.ended:
                self.live.pop(change.key, None)
            else:
                self.live[change.key] = change.record
        self.place = chunk.place
        return told

    def _replay(self, found: dict[Key, Record], place: Place) -> Place:
        """Bring what a scan found to the log's end as it was after the scan."""
        end = self.log.position().rev
        while True:
            chunk = self.log.read_on(place, CHUNK_MAX, end)
            for entry in chunk.entries:
                absorb(found, self.origin, entry)
            place = chunk.place
            if not chunk.is_full:
                return place
