"""An origin's log: where it stands, its entries, and its trimming.

A reader's place is (epoch, rev). Reading on from it is safe only if nothing is missing behind it, so the first entry
read must be the place itself, or the place must be the floor. That one look tells trimmed, deleted, recreated and
rolled-back logs alike from a log on which nothing happened.

The entries are read first, epoch and floor after them, in one go but in no transaction: a full Redis refuses even a
reading one. What changes in between is seen. A new log has another epoch, and epochs never come back; and a floor that
moved up to the place took nothing away above it, so nothing was missing when the entries were read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import redis

from broker.errors import Damaged, Gone, Refused
from broker.rules.entry import Entry
from broker.rules.event import NUMBER_MAX
from broker.rules.replay import rev_order
from broker.store.connection import redis_errors
from broker.store.decode import read_logged, read_text
from broker.store.doorbell import Doorbell
from broker.store.store import Store

#: The most entries that one call fetches.
CHUNK_MAX = 1_000
#: The most entries that one call cuts: a few milliseconds of Redis's time.
TRIM_MAX = 200
#: Where a log begins that nobody has written to.
BEGIN = "0-0"

#: A stream entry as Redis sends it: its id, its fields and values in turn.
Raw = tuple[bytes, list[bytes]]

#: The text of a log id.
REV = re.compile(r"[0-9]{1,20}-[0-9]{1,20}\Z")

_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where a reader stands in one log: all up to `rev` is known to it. As JSON, a list of two texts."""

    epoch: str
    rev: str


class Position(NamedTuple):
    """Where a log stands: `floor` is just below its oldest entry, `rev` its newest.

    `epoch` is empty where no log is (yet), or where one was lost with what it held: then floor = rev = the last rev
    known, and the next entry begins a new epoch there.
    """

    epoch: str
    floor: str
    rev: str

    @property
    def place(self) -> Place:
        """Where a reader stands that knows all there is."""
        return Place(self.epoch, self.rev)


class Chunk(NamedTuple):
    """What followed a place, the place after it, and whether more may follow."""

    entries: list[Entry]
    place: Place
    is_full: bool


class Page(NamedTuple):
    """Those of a page of entries that were asked for, the rev of its last one, and whether more may follow."""

    entries: list[Entry]
    rev: str
    is_full: bool


class Log:
    """The log of one origin. Every method raises Unavailable, and Damaged where a key is of a wrong type."""

    def __init__(self, store: Store, origin: str) -> None:
        self.origin = origin
        self._store = store
        self._keys = store.keys.of(origin)
        # A client of its own on the same connections: redis-py's dict of each entry would only be taken apart again.
        self._client = redis.Redis(connection_pool=store.client.connection_pool)
        for command in ("XRANGE", "XREVRANGE"):
            self._client.set_response_callback(command, lambda reply, **_: reply)

    @property
    def key(self) -> str:
        """The stream's key."""
        return self._keys.log

    def position(self) -> Position:
        """Where the log stands now."""
        with redis_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.xrevrange(self._keys.log, count=1)
            last, found = self._execute(pipe)
        # The log's own word on where it ends: meta may lag behind where somebody wrote by hand.
        return found._replace(rev=last[0][0].decode()) if last else found

    def read(self, start: str = "-", count: int = CHUNK_MAX) -> list[Entry]:
        """The entries after `start`, at most `count`; `-` is the oldest.

        For looking into the log. It cannot tell what is missing before the first one: a reader that keeps a place
        calls `read_on`.
        """
        return self._decode(self._range(start, count))

    def read_back(self, until: str, start: str, count: int = CHUNK_MAX) -> list[Entry]:
        """The entries from the rev `until` back to the rev `start`, newest first; at most `count`."""
        with redis_errors():
            raw = self._client.xrevrange(self._keys.log, until, start, count=count)
        return self._decode(cast("list[Raw]", raw))

    def read_back_of(self, jobs: Collection[str], until: str, count: int = CHUNK_MAX) -> Page:
        """Of the `count` entries from the rev `until` back, newest first, those that name one of `jobs`."""
        with redis_errors():
            raw = cast("list[Raw]", self._client.xrevrange(self._keys.log, until, "-", count=count))
        wanted = {job.encode() for job in jobs}
        named = [one for one in raw if not wanted.isdisjoint(one[1][3:4])]
        return Page(self._decode(named), raw[-1][0].decode() if raw else until, len(raw) == count)

    def entries(self, until: str | None = None) -> Iterator[Entry]:
        """Every entry from the oldest on, up to and including the rev `until`, or to where the log ends meanwhile."""
        start = "-"
        while raw := self._range(start, CHUNK_MAX, until=until or "+"):
            yield from self._decode(raw)
            start = raw[-1][0].decode()

    def _range(self, start: str, count: int, until: str = "+") -> list[Raw]:
        start = start if start == "-" else f"({start}"
        with redis_errors():
            return cast("list[Raw]", self._client.xrange(self._keys.log, start, until, count=count))

    def wait(self, rev: str, wait_ms: int) -> None:
        """Sleep until the log holds anything newer than `rev`; at most `wait_ms`, and a second."""
        Doorbell(self._client).wait({self.key: rev}, wait_ms)

    def read_on(self, place: Place, count: int = CHUNK_MAX, until: str = "+") -> Chunk:
        """What followed `place`, at most `count` entries up to and including the rev `until`.

        Raises Gone where the log no longer holds what followed it.
        """
        with redis_errors():
            pipe = self._client.pipeline(transaction=False)
            pipe.xrange(self._keys.log, place.rev, until, count=count + 1)
            raw, found = self._execute(pipe)
        stands = bool(raw) and raw[0][0].decode() == place.rev
        if why := misfit(place, found, stands):
            raise Gone(self.origin, why)
        raw = raw[1:] if stands else raw[:count]
        rev = raw[-1][0].decode() if raw else place.rev
        return Chunk(self._decode(raw), Place(found.epoch, rev), len(raw) == count)

    def trim(
        self,
        count_max: int,
        age_ms_max: int,
        *,
        groups: Sequence[str] = (),
        hard_max: int = NUMBER_MAX,
        term: int = 0,
    ) -> int:
        """Cut entries beyond `count_max` and those older than `age_ms_max`, oldest first; return how many went.

        At most `TRIM_MAX` a call. What one of the live `groups` has not acked stays, up to `hard_max` entries. `term`
        is the janitor's; raises Refused("stale_term") where a later janitor has been here.
        """
        oldest = max(0, self._store.clock.now() - age_ms_max)
        keys = [self._keys.log, self._keys.meta, *map(self._keys.sub, groups)]
        args = [count_max, oldest, hard_max, TRIM_MAX, term]
        gone = int(self._store.scripts.run("trim", keys, args))
        if gone < 0:
            raise Refused("stale_term", f"a later janitor than of term {term} trims {self.origin}")
        return gone

    def _execute(self, pipe: Any) -> tuple[list[Any], Position]:
        """What the one command in `pipe` found, and where the log stood just after it."""
        pipe.hmget(self._keys.meta, "epoch", "floor", "rev")
        pipe.xlen(self._keys.log)
        entries, meta, length = pipe.execute()
        return entries, position_of(self.origin, meta, length)

    def _decode(self, raw: Iterable[Raw]) -> list[Entry]:
        entries = []
        for rev, flat in raw:
            try:
                entries.append(read_logged(rev, flat))
            except (KeyError, TypeError, ValueError):
                # Only a foreign hand writes such a one; it changed no record, and must not stop every reader.
                _log.warning("entry %s in the log of %s is none of ours", rev.decode(), self.origin)
        return entries


def position_of(origin: str, meta: Sequence[bytes | None], length: int) -> Position:
    """Where a log of `length` entries stands by its meta's epoch, floor and rev. Raises Damaged where they are none."""
    epoch, floor, rev = map(read_text, meta)
    floor = floor or BEGIN
    rev = rev or floor
    if not (REV.match(floor) and REV.match(rev)):
        raise Damaged(
            f"where the log of {origin} stands cannot be read: {floor!r:.50}, {rev!r:.50}"
        )
    if length == 0 and rev != floor:  # empty, but not by our trimming: lost
        return Position("", rev, rev)
    return Position(epoch, floor, rev)


def misfit(place: Place, found: Position, stands: bool) -> str:
    """Why the place does not fit the log as found; empty if it does.

    `stands`: whether the entry that the place names is still in the log.
    """
    is_floor = rev_order(place.rev) == rev_order(found.floor)
    if place.epoch != found.epoch:
        # Who stood where no log was lost nothing, if one began there since.
        return "" if not place.epoch and is_floor else "it is another log now"
    return "" if stands or is_floor else "trimmed, lost or rolled back"
