"""The records of an origin as they are, in pages: no snapshot by itself, since writers go on meanwhile.

Paged with ZSCAN: every member that is there from beginning to end comes at least once, whatever comes and goes.
(Paging by rank, which is faster, skips one for each that leaves a page already read.)

Where `ids` was set aside, meta says so until it is whole again: whoever lists meanwhile is told, and gets no part.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import cast

import redis

from broker.errors import Damaged
from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.connection import redis_errors
from broker.store.decode import flaw, read_keys, read_record, read_text
from broker.store.log import REV
from broker.store.store import Store

#: About how many records a page holds: one call of some milliseconds.
PAGE = 500
#: The field of an origin's meta that says since when (epoch ms) its `ids` is being made anew.
MENDING = "mending"

_log = logging.getLogger(__name__)


def scan(store: Store, origin: str) -> Iterator[dict[Key, Record]]:
    """Page by page, every record of an origin.

    Raises Unavailable, and Damaged where `ids` is of a wrong type, or is being made anew.

    A job whose hash cannot be read is passed over with a warning: one damaged job must not hide all others.
    """
    keys = store.keys.of(origin)
    cursor = 0
    _check_whole(store, origin)
    while True:
        with redis_errors():
            cursor, found = store.client.zscan(keys.ids, cursor, count=PAGE)
            members = cast("list[tuple[bytes, float]]", found)
            named = list(read_keys(Key.of_member, origin, (member for member, _ in members)))
            pipe = store.client.pipeline(transaction=False)
            for key in named:
                pipe.hgetall(keys.of_job(key.job).job)
            replies = pipe.execute(raise_on_error=False)
            page = dict(_records(named, replies))
        if cursor == 0:
            _check_whole(store, origin)
        yield page
        if cursor == 0:
            return


def mending(store: Store, origin: str) -> str:
    """Since when the origin's `ids` is being made anew; empty where it is whole, or meta cannot be read."""
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        pipe.hget(store.keys.of(origin).meta, MENDING)
        [found] = pipe.execute(raise_on_error=False)
    if isinstance(found, redis.RedisError) and "WRONGTYPE" not in str(found):
        raise found
    return read_text(found) if isinstance(found, bytes) else ""


def _check_whole(store: Store, origin: str) -> None:
    if mending(store, origin):
        raise Damaged(f"the list of {origin} is being mended: it is not whole yet")


def _records(named: list[Key], replies: list[object]) -> Iterator[tuple[Key, Record]]:
    for key, reply in zip(named, replies, strict=True):
        if isinstance(reply, redis.RedisError) and "WRONGTYPE" not in str(reply):
            raise reply
        if not reply:  # gone since it was listed
            continue
        try:
            record = read_record(reply)  # type: ignore[arg-type]
            if not REV.match(record.rev):  # nobody could tell whether an entry is newer
                raise ValueError(record.rev)
        except (AttributeError, TypeError, ValueError):
            _log.warning("the record of %s cannot be read: %s", key, flaw(reply))
        else:
            yield key, record
