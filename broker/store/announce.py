"""Tells Redis what the trust store's outbox holds: each change once, in order, under its number.

The stream's entry ids are the numbers (`<gen>-0`), so that Redis itself shows, after a crash between telling and
striking out, that a change was told. Where the folder lost its numbers, the stream holds other changes under them: then
what waits is given numbers above the stream's top, on disk before anything is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import redis

from broker.errors import BrokerError, Damaged
from broker.rules.key import check_name
from broker.rules.signed import INTEGER_MAX
from broker.store.connection import redis_errors
from broker.store.outbox import Announcement
from broker.store.store import Store
from broker.store.trust import TrustStore

#: How many announcements one call to Redis carries.
BATCH_MAX = 500

#: Half of all numbers. What waits is given none above a higher one in the stream: whoever can write to Redis could use
#: up the numbers of the store, which then would take no change any more.
TOP_MAX = INTEGER_MAX // 2

#: A stream entry as redis-py gives it.
Entry = tuple[bytes, dict[bytes, bytes]]

_log = logging.getLogger(__name__)


class Announcer:
    """Tells of the trust store of one node. Several processes may at the same time: each finds what is told."""

    def __init__(
        self, store: Store, node: str, trust: TrustStore, *, announcements_max: int = 10_000
    ) -> None:
        self._client = store.client
        self._key = store.keys.trust(check_name("node", node))
        self._trust = trust
        self._announcements_max = announcements_max

    def drain(self) -> int:
        """Announce what waits; return how many changes wait no more.

        Raises Unavailable, Damaged: the rest waits on. Raises Unwritable where what was told cannot be struck out: it
        is not told twice for that.
        """
        count = 0
        while waiting := self._trust.pending()[:BATCH_MAX]:
            if self._tell(waiting):
                self._trust.announced(waiting[-1].gen)
                count += len(waiting)
        return count

    def _tell(self, waiting: Sequence[Announcement]) -> bool:
        """Whether all of them stand in the stream now; False: look again."""
        with redis_errors(), self._client.pipeline() as pipe:
            try:
                # Nobody else writes between the look and the telling, and no lost answer is silently asked for again.
                pipe.watch(self._key)  # type: ignore[no-untyped-call]
                top = self._top(pipe)
                rest = waiting[self._count_told(pipe, waiting) :]
                if rest and rest[0].gen <= top:
                    if top > TOP_MAX:
                        raise Damaged(f"{self._key} holds an id that is none of ours: {top}-0")
                    self._trust.renumber(rest[0], top)
                    return False
                pipe.multi()
                for change in rest:
                    pipe.xadd(
                        self._key,
                        _fields(change),  # type: ignore[arg-type]
                        id=f"{change.gen}-0",
                        maxlen=self._announcements_max,
                        approximate=False,
                    )
                pipe.execute()
            except redis.WatchError:
                return False
        return True

    def _top(self, pipe: redis.client.Pipeline) -> int:
        """The highest number that the stream ever held: it takes none below."""
        if not pipe.exists(self._key):
            return 0
        info = cast("dict[str, bytes]", pipe.xinfo_stream(self._key))
        return int(info["last-generated-id"].decode().partition("-")[0])

    def _count_told(self, pipe: redis.client.Pipeline, waiting: Sequence[Announcement]) -> int:
        """How many were told before: in order, so that whatever stands before a told one was, too, be it trimmed."""
        found = pipe.xrange(self._key, f"{waiting[0].gen}-0", f"{waiting[-1].gen}-0")
        told = _read(self._key, cast("list[Entry]", found))
        return max((count for count, change in enumerate(waiting, 1) if change in told), default=0)


def announcements(store: Store, node: str, count: int = 100) -> list[Announcement]:
    """The newest announcements of a node's trust store, at most `count`, oldest first. Raises Unavailable, Damaged."""
    key = store.keys.trust(check_name("node", node))
    with redis_errors():
        found = store.client.xrevrange(key, count=count)
    return _read(key, cast("list[Entry]", found)[::-1])


def _fields(told: Announcement) -> dict[str, str]:
    return {
        name: str(int(value) if isinstance(value, bool) else value)
        for name, value in told.to_json().items()
    }


def _read(key: str, found: Sequence[Entry]) -> list[Announcement]:
    made = []
    for id, fields in found:
        text = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
        try:
            numbers = {name: int(text.pop(name)) for name in ("gen", "at", "persisted")}
            said = {**text, **numbers, "persisted": numbers["persisted"] == 1}
            made.append(Announcement.from_json(said))
        except (BrokerError, KeyError, TypeError, ValueError):
            # Only a foreign hand writes such a one.
            _log.warning("entry %s of %s is no announcement", id.decode(), key)
    return made
