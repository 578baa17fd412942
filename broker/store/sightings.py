"""When jobs were seen last: what moves in their records without an entry of the log."""

from __future__ import annotations

from collections.abc import Sequence

from broker.rules.key import Key
from broker.store.decode import read_number
from broker.store.lag import ask_each
from broker.store.store import Store


def read_sightings(store: Store, keys: Sequence[Key]) -> list[int]:
    """Of each, epoch ms; 0 where it is gone or cannot be read. Raises Unavailable."""
    found = ask_each(
        store,
        keys,
        lambda pipe, key: pipe.hget(store.keys.of_job(key).job, "last_seen"),
        None,
    )
    return [read_number(word) for word in found]
