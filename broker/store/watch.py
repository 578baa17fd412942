"""Watching: each job's newest state, of all origins at once, in the order of each origin's log.

A watcher owns nothing in Redis: no group, no key. One that is slow or dies costs nobody anything.

It holds what it told. A job that ended stays in `records` for as long as it is listed (until it is removed or
pruned), because a list that drops it earlier disagrees with `broker jobs`, with the log's fold, and with the next
relist, which would take it for drift. Whoever counts load reads `live`, which drops a job with its terminal entry.

And it does not trust itself: from time to time it compares what it holds with a new list, one origin a call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from broker.errors import BrokerError, Damaged, Invalid
from broker.rules.key import Key, check_name
from broker.rules.record import Record
from broker.rules.replay import Change, rev_order
from broker.store.doorbell import Doorbell
from broker.store.follow import RELIST_SECONDS, Follower, Stopped, never
from broker.store.log import CHUNK_MAX, REV, Place
from broker.store.store import Store
from broker.store.view import View

__all__ = ["Change", "Cursor", "Place", "Records", "Snapshot", "Watcher", "read_cursor"]

#: How often new origins are looked for, and every log is looked at without a ring: one that was lost never rings.
LOOK_SECONDS = 1.0

#: Where a reader stands: origin -> (epoch, rev). `json.dumps` takes it, `read_cursor` reads it back.
Cursor = dict[str, Place]

_log = logging.getLogger(__name__)


class Snapshot(NamedTuple):
    """The state of each origin at one position of its log, and that position."""

    records: dict[Key, Record]
    cursor: Cursor


class Records(Mapping[Key, Record]):
    """The records of several origins as one mapping; follows what is below it."""

    def __init__(self, parts: Mapping[str, Follower], which: str) -> None:
        self._parts = parts
        self._which = which

    def _dicts(self) -> list[dict[Key, Record]]:
        return [getattr(part, self._which) for part in self._parts.values()]

    def __getitem__(self, key: Key) -> Record:
        found: dict[Key, Record] = getattr(self._parts[key.origin], self._which)
        return found[key]

    def __iter__(self) -> Iterator[Key]:
        for part in self._dicts():
            yield from part

    def __len__(self) -> int:
        return sum(map(len, self._dicts()))


class Watcher:
    """Follows the logs of `origins`; of all, new ones as they appear, where None is given.

    For one thread, but for `close`. Without `snapshot` or `resume` before it, `changes` begins by telling all that is
    there. Each origin is listed anew after `relist_seconds`, a tenth more or less.
    """

    def __init__(
        self,
        store: Store,
        origins: Sequence[str] | None = None,
        *,
        relist_seconds: float = RELIST_SECONDS,
    ) -> None:
        self._store = store
        self._view = View(store)
        self._named = None if origins is None else [check_name("origin", name) for name in origins]
        self._followers: dict[str, Follower] = {}
        self._untold: list[Change] = []
        self._cursor: Cursor = {}
        self._look_at = 0.0
        self._has_looked = False
        self._relist_seconds = relist_seconds
        self._bell = Doorbell(store.client)
        self._is_closed = False
        #: How many jobs a new list found to differ for no reason that the log gives: 0 is expected.
        self.drift = 0
        #: Whether the last `changes` left something unread; what it gave is then not yet the newest.
        self.is_behind = True
        #: What the last look at all logs met that cannot be read, if anything: the others are told all the same, and
        #: `changes` raises it only where they have nothing to tell.
        self.damage: Damaged | None = None
        #: The current state, as far as it was told.
        self.records: Mapping[Key, Record] = Records(self._followers, "records")
        #: Those of `records` that have not ended, guesses included.
        self.live: Mapping[Key, Record] = Records(self._followers, "live")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def cursor(self) -> Cursor:
        """Where the watcher stands: what it told adds up to the state there, also where it was closed in mid-call."""
        return dict(self._cursor)

    def _stand(self) -> None:
        """All that was read is told from now on."""
        self._untold = []
        followers = self._followers.items()
        self._cursor = {origin: follower.place for origin, follower in followers if follower.place}

    def snapshot(self) -> Snapshot:
        """List every origin. Later changes follow upon it. Raises Unavailable, Damaged."""
        self._discover()
        found = [(follower, *follower.look()) for follower in self._followers.values()]
        # All or nothing: after a failure the watcher stands where it stood, and `changes` goes on from there.
        for follower, records, place in found:
            follower.hold(records, place)
        self._stand()
        return Snapshot(dict(self.records), self.cursor)

    def resume(self, cursor: Cursor, records: Mapping[Key, Record] | None = None) -> None:
        """Go on from a cursor that was handed out before. Raises Gone where a log no longer holds what followed.

        `records` is what the caller holds since then. Without it a later loss cannot be made good here, since nobody
        here knows what vanished: `changes` then raises Gone, and the caller takes a snapshot. Of an origin that only
        `records` names, `changes` begins by telling what differs from a new list.
        """
        held: dict[str, dict[Key, Record]] = {}
        for key, record in (records or {}).items():
            held.setdefault(key.origin, {})[key] = record
        followers = {}
        for origin in cursor.keys() | held.keys():
            if self._named is not None and origin not in self._named:
                continue
            followers[origin] = follower = Follower(self._store, origin, self._relist_seconds)
            if place := cursor.get(origin):
                follower.resume(place, None if records is None else held.get(origin, {}))
            else:
                follower.records = held[origin]
        self._followers.clear()
        self._followers.update(followers)
        self._stand()

    def changes(self, wait_ms: int) -> list[Change]:
        """What happened since the last call, waiting up to `wait_ms` for the first of it; [] if nothing did.

        Where a log was cut or replaced, its origin is listed anew and the differences are told as changes,
        `synthesized`. Raises Unavailable and Damaged; nothing is lost by either: the next call goes on. Once closed
        it returns [], always.
        """
        deadline = time.monotonic() + wait_ms / 1000
        rung: Collection[str] | None = None if wait_ms <= 0 else ()
        while not self._is_closed:
            try:
                self._relist_next()
                self._read(rung)
            except Stopped:
                break
            except BrokerError:
                if not self._untold:
                    raise
            left = deadline - time.monotonic()
            if (self._untold or left <= 0) and not self._is_closed:
                told = self._untold
                self._stand()
                return told
            rung = self._wait(left)
        return []

    def relist(self, origin: str) -> int:
        """List an origin anew and return how many jobs differed for no reason that its log gives: 0 is expected.

        What differed is told by the next `changes`.
        """
        follower = self._followers.get(origin)
        if follower is None or not follower.can_relist:
            raise Invalid(f"what origin {origin!r} holds was not listed yet: take a snapshot")
        return self._compare(follower)

    def close(self) -> None:
        """From any thread: end the watching, a blocked `changes` at once. Closing twice does nothing."""
        self._is_closed = True
        self._bell.wake()

    def _wait(self, seconds: float) -> Collection[str] | None:
        """The origins that rang; None: look at each."""
        followers = self._followers.values()
        # A log that is none cannot ring: the look names it, once a second.
        logs = {one.log.key: one for one in followers if one.place and not one.is_damaged}
        dues = [follower.relist_at for follower in followers if follower.can_relist]
        seconds = min(seconds, max(0.0, min([self._look_at, *dues]) - time.monotonic()))
        places = {key: follower.place.rev for key, follower in logs.items() if follower.place}
        try:
            rung = self._bell.wait(places, round(seconds * 1000))
        except Damaged:
            return None  # which one it is, the look finds: it must not keep the others silent
        return None if rung is None else {logs[key].origin for key in rung}

    def _read(self, rung: Collection[str] | None) -> None:
        """Read on where it rang, and everywhere once a second; the longest unread first, about one chunk in all."""
        was_behind, self.is_behind = self.is_behind, True
        damage: Damaged | None = None
        if is_due := time.monotonic() >= self._look_at:
            try:
                self._discover()
            except Damaged as met:
                damage = met
            self._look_at = time.monotonic() + LOOK_SECONDS
        looks = is_due or rung is None
        for origin, follower in list(self._followers.items()):
            if not (looks or origin in (rung or ()) or follower.place is None):
                continue
            if self._is_closed or len(self._untold) >= CHUNK_MAX:
                break
            self._followers[origin] = self._followers.pop(origin)  # to the end of the row
            try:
                self._untold += follower.step(lambda: self._is_closed)
                follower.is_damaged = False
            except Damaged as met:
                follower.is_damaged = True
                damage = met
        else:
            # Only a look at all tells that nothing is left of what was left before.
            self.is_behind = len(self._untold) >= CHUNK_MAX or (was_behind and not looks)
            if looks:
                self.damage = damage
        if damage:
            self.damage = damage
            raise damage

    def _relist_next(self) -> None:
        """Compare the origin whose turn it is with a new list. Who is behind catches up first."""
        if self.is_behind:
            return
        comparable = [follower for follower in self._followers.values() if follower.can_relist]
        first = min(comparable, key=lambda follower: follower.relist_at, default=None)
        if first is not None and first.relist_at <= time.monotonic():
            self._compare(first, lambda: self._is_closed)

    def _compare(self, follower: Follower, is_stopped: Callable[[], bool] = never) -> int:
        drift = follower.relist(self._untold, is_stopped)
        if drift:
            self.drift += len(drift)
            some = ", ".join(str(change.key) for change in drift[:3])
            _log.warning("%d jobs of %s were held wrongly: %s", len(drift), follower.origin, some)
        return len(drift)

    def _discover(self) -> None:
        for origin in self._view.origins() if self._named is None else self._named:
            if origin not in self._followers:
                self._followers[origin] = Follower(
                    self._store, origin, self._relist_seconds, is_new=self._has_looked
                )
        self._has_looked = True


def read_cursor(found: Any) -> Cursor:
    """A cursor that came back from outside, as JSON made it; raises Invalid where it is none."""
    cursor: Cursor = {}
    try:
        for origin, (epoch, rev) in found.items():
            if type(epoch) is not str or not REV.match(rev) or max(rev_order(rev)) >= 2**64:
                raise ValueError
            cursor[check_name("origin", origin)] = Place(epoch, rev)
    except (AttributeError, TypeError, ValueError) as wrong:
        raise Invalid(f"{found!r:.200} is no cursor of a watcher") from wrong
    return cursor
