"""Keys that stop whoever needs them: which they are, and how they make room for new ones.

A key of a wrong type, by its name, or an origin's meta with a value that is none: no command of ours overwrites what it
cannot read. What was there is kept for a day under another name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from broker.rules.audit import DRIFT, SET_ASIDE, Finding
from broker.store.connection import redis_errors
from broker.store.decode import read_text
from broker.store.keys import aside
from broker.store.lease import LED_ROLES
from broker.store.log import REV
from broker.store.scan import MENDING
from broker.store.scripts import mistyped
from broker.store.store import Store

#: How long what was set aside is kept, in milliseconds (24 h).
ASIDE_MS_MAX = 86_400_000
#: What an origin's meta holds, beside terms and texts.
_PLACES, _NUMBERS = ("floor", "rev"), ("horizon", "turned_at", "stale_after", MENDING)
_NUMBER = re.compile(r"[0-9]{1,15}\Z")


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
    found = mistyped(store.client, store.keys, names)
    return [_aside_of(origin, name, text, False) for origin, name, text in found]


def find_unreadable(store: Store, origins: Sequence[str]) -> list[Finding]:
    """Those origins' metas that hold what no reader and no script can take for a place or a number.

    Raises Unavailable.
    """
    metas = [store.keys.of(origin).meta for origin in origins]
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        for meta in metas:
            pipe.hgetall(meta)
        replies = pipe.execute(raise_on_error=False)
    found = []
    for origin, meta, said in zip(origins, metas, replies, strict=True):
        # One of a wrong type is found by that.
        for raw, value in said.items() if isinstance(said, dict) else ():
            field = read_text(raw)
            if not _is_readable(field, read_text(value)):
                found.append(_aside_of(origin, meta, f"{field} of {meta} is {value!r:.60}", True))
                break
    return found


def _is_readable(field: str, value: str) -> bool:
    if field in _PLACES:
        return REV.match(value) is not None
    if field in _NUMBERS or field.startswith("term:"):
        return _NUMBER.match(value) is not None
    return True


def _aside_of(origin: str, key: str, text: str, damaged: bool) -> Finding:
    return Finding(
        kind=DRIFT, origin=origin, job="", text=text, what=SET_ASIDE, key=key, damaged=damaged
    )


def set_aside(store: Store, name: str, *, anyway: bool = False) -> bool:
    """Put a key of a wrong type (or `anyway`) out of the way; whether it was. Works in a full Redis.

    Raises Unavailable.
    """
    named = store.keys.read(name)
    if named is None:
        return False
    return put_aside(store, name, "" if anyway else named.type)


def put_aside(store: Store, name: str, right: str) -> bool:
    """Like `set_aside`, of any key: what its right type is, the caller knows (empty: whatever it is, it must go)."""
    return bool(store.scripts.run("set_aside", [name, aside(name)], [right, ASIDE_MS_MAX]))
