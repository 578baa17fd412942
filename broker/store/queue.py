"""The jobs of an origin that wait for a place: what is ready, and what has become due."""

from __future__ import annotations

from typing import cast

from broker.rules.key import Key
from broker.store.connection import redis_errors
from broker.store.decode import read_keys
from broker.store.store import Store

#: How many jobs one step moves.
DUE_MAX = 100


def ready(store: Store, origin: str, count: int) -> list[Key]:
    """The best `count` jobs that may be placed, best first."""
    if count <= 0:
        return []
    with redis_errors():
        members = store.client.zrange(store.keys.of(origin).ready, 0, count - 1)
    return list(read_keys(Key.of_job, origin, cast("list[bytes]", members)))


def move_due(store: Store, origin: str, now: int) -> int:
    """Move what is due by `now` (epoch ms) from delayed to ready, at most 100; gives how many moved."""
    books = store.keys.of(origin)
    with redis_errors():
        members = store.client.zrangebyscore(books.delayed, "-inf", now, start=0, num=DUE_MAX)
    jobs = _texts(members)
    if not jobs:
        return 0
    keys = [books.delayed, books.ready, *(books.of_job(job).job for job in jobs)]
    return int(store.scripts.run("due", keys, [now, *jobs]))


def _texts(members: object) -> list[str]:
    return [member.decode() for member in cast("list[bytes]", members)]
