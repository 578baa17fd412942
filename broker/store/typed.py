"""Keys of a wrong type: which they are, by their names, and how they make room for new ones.

One such key stops whoever needs it, for ever: no command of ours overwrites what it cannot read. What was there is
kept for a day under another name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from broker.rules.audit import DRIFT, SET_ASIDE, Finding
from broker.store.connection import redis_errors
from broker.store.decode import read_text
from broker.store.keys import aside
from broker.store.lease import LED_ROLES
from broker.store.store import Store

#: How long what was set aside is kept, in milliseconds (24 h).
ASIDE_MS_MAX = 86_400_000
#: How Redis calls the type of what is not there.
_NOTHING = b"none"


def fleet_keys(store: Store) -> list[str]:
    """The keys that every origin and every role stands on, but for those that a node or worker names."""
    keys = store.keys
    led = [name(role) for role in LED_ROLES for name in (keys.leader, keys.term)]
    return keys.fixed + led


def said_keys(store: Store) -> list[str]:
    """What each node and worker that beats says of itself. Raises Unavailable, Damaged."""
    keys, found = store.keys, list[str]()
    for listed, name_of in ((keys.nodes, keys.node), (keys.workers, keys.worker)):
        with redis_errors():
            beating = cast("list[bytes]", store.client.zrange(listed, 0, -1))
        found += [name_of(read_text(name)) for name in beating]
    return found


def find_wrong(store: Store, names: Sequence[str]) -> list[Finding]:
    """Those of these keys that are of another type than their names say. Raises Unavailable."""
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.type(name)
        types = pipe.execute()
    found = zip(map(store.keys.read, names), names, types, strict=True)
    return [
        Finding(
            kind=DRIFT,
            origin=named.origin,
            job="",
            text=f"{name} is a {raw.decode()}, not a {named.type}",
            what=SET_ASIDE,
            key=name,
        )
        for named, name, raw in found
        if named and raw not in (_NOTHING, named.type.encode())
    ]


def set_aside(store: Store, name: str) -> bool:
    """Put a key of a wrong type out of the way; whether it was of one. Works in a full Redis. Raises Unavailable."""
    named = store.keys.read(name)
    if named is None:
        return False
    return bool(store.scripts.run("set_aside", [name, aside(name)], [named.type, ASIDE_MS_MAX]))
