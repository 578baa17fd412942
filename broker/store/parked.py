"""Entries that a group's handler failed for good: as they are kept, and the wish to have them handled again.

Handling them again is the owner's (`broker.store.group`); this module only reads, and asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import redis

from broker.errors import NotFound
from broker.rules.entry import Entry
from broker.rules.key import check_name
from broker.store.connection import redis_errors
from broker.store.decode import read_logged, read_number, read_text
from broker.store.log import BEGIN, Raw
from broker.store.store import Store

#: How many parked entries one call reads.
PAGE = 100
#: The fields that `include/parking.lua` puts before the entry's own.
_HEAD = (b"parked_rev", b"parked_reason", b"parked_tries", b"parked_at")


@dataclass(frozen=True, slots=True)
class Parked:
    """One parked entry: where it stood in the log, and why it stands here."""

    id: str  #: its id among the parked ones
    origin: str
    rev: str  #: its id in the log
    reason: str
    tries: int  #: failed or interrupted
    at: int  #: epoch ms when it was parked
    fields: list[
        bytes
    ]  #: the entry's fields and values in turn; empty where it was trimmed before it was parked

    @property
    def raw(self) -> Raw:
        """The entry as the log had it, undecoded."""
        return self.rev.encode(), self.fields

    @property
    def entry(self) -> Entry | None:
        """The entry; None where it cannot be decoded."""
        try:
            return read_logged(*self.raw)
        except (KeyError, TypeError, ValueError):
            return None


def read_parked(origin: str, raw: Raw) -> Parked:
    """A parked entry of its id and its fields and values in turn; one of a foreign hand has neither rev nor reason."""
    id, flat = raw
    head = flat[1:8:2] if tuple(flat[0:8:2]) == _HEAD else [b"", b"", b"", b""]
    rev, reason, tries, at = head
    return Parked(
        id=id.decode(),
        origin=origin,
        rev=read_text(rev),
        reason=read_text(reason),
        tries=read_number(tries),
        at=read_number(at),
        fields=list(flat[8:]),
    )


def parked(store: Store, origin: str, group: str) -> list[Parked]:
    """All that a group has parked of an origin, oldest first. Raises Unavailable, Damaged."""
    key = store.keys.of(origin).parked(check_name("group", group))
    # redis-py's dict of each entry would lose a field that stands twice in it.
    client = redis.Redis(connection_pool=store.client.connection_pool)
    client.set_response_callback("XRANGE", lambda reply, **_: reply)
    found: list[Parked] = []
    start = "-"
    while True:
        with redis_errors():
            page = cast("list[Raw]", client.xrange(key, start, "+", count=PAGE))
        found += [read_parked(origin, raw) for raw in page]
        if len(page) < PAGE:
            return found
        start = f"({found[-1].id}"


def ask_replay(store: Store, origin: str, group: str, id: str | None = None) -> int:
    """Ask a group's owner to handle one parked entry again, or all there are now; how many are asked for.

    Raises NotFound where that one is not parked, or the group does not subscribe to the origin; Unavailable, Damaged.
    """
    there = [one.id for one in parked(store, origin, group)]
    ids = there if id is None else [id]
    if id is not None and id not in there:
        raise NotFound(f"group {group} has parked no entry {id} of {origin}")
    keys = [store.keys.of(origin).sub(group)]
    first = there[0] if there else BEGIN
    asked = int(store.scripts.run("ask_replay", keys, [first, *ids]))
    if asked < 0:
        raise NotFound(f"group {group} does not subscribe to {origin}")
    return asked
