"""How many jobs the lists of each origin hold: a look that costs next to nothing, and tells a list that was lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.store.connection import redis_errors
from broker.store.store import Store


class Counts(NamedTuple):
    """Each job is in `ids`, and in either `live` or `done`."""

    ids: int
    live: int
    done: int


def read_counts(store: Store, origins: Sequence[str]) -> Iterator[tuple[str, Counts]]:
    """Those of the origins whose lists can be read. No transaction: a writer may come between two of the numbers.

    Raises Unavailable.
    """
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        for origin in origins:
            books = store.keys.of(origin)
            for name in (books.ids, books.live, books.done):
                pipe.zcard(name)
        found = pipe.execute(raise_on_error=False)  # one that is none must not hide the others
    for at, origin in enumerate(origins):
        counts = found[3 * at : 3 * at + 3]
        if all(isinstance(count, int) for count in counts):
            yield origin, Counts(*counts)
