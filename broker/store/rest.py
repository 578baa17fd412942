"""Lets origins rest that fell silent: a container's random host name must not keep tombstones and answers for ever.

An origin is silent where its log was cut to its end and it has no record. Looking for such ones is one cheap call for
many of them; what to fold, and why nothing old comes back by it, is `rest.lua`'s matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import Refused
from broker.store.connection import redis_errors
from broker.store.store import Store


def silent(store: Store, origins: Sequence[str]) -> list[str]:
    """Those that fell silent and do not rest yet. Raises Unavailable.

    One whose log is of a wrong type is not among them: whoever cuts the logs tells of it.
    """
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        for origin in origins:
            keys = store.keys.of(origin)
            pipe.xlen(keys.log)
            pipe.exists(keys.ids)
            pipe.exists(keys.gone, keys.seen, keys.seen_old)
        replies = pipe.execute(raise_on_error=False)
    looks = zip(origins, replies[::3], replies[1::3], replies[2::3], strict=True)
    return [origin for origin, *kept, left in looks if kept == [0, 0] and left]


def rest(store: Store, origin: str, term: int, before: int) -> bool:
    """Fold its tombstones and answers into the horizon; whether it rests now.

    It does not where it is not silent (any more), or where anything in it is of later than `before`, in epoch ms.
    `term` is the janitor's. Raises Refused("stale_term"), Unavailable, Damaged: then nothing was changed.
    """
    keys = store.keys.of(origin)
    names = [keys.log, keys.meta, keys.ids, keys.gone, keys.seen, keys.seen_old]
    answer = int(store.scripts.run("rest", names, [term, before]))
    if answer < 0:
        raise Refused("stale_term", f"a later janitor than of term {term} works on {origin}")
    return answer == 1
