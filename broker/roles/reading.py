"""Reads the records that a role is about to act on: one that is damaged does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker.errors import Damaged
from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.view import View


def read_each(
    view: View, keys: Sequence[Key], complain: Callable[[str], None]
) -> Iterator[tuple[Key, Record | None]]:
    """The records as they are now, in the order of `keys`, without those that cannot be read. Raises Unavailable."""
    try:
        yield from zip(keys, view.get_many(keys), strict=True)
    except Damaged as error:
        if len(keys) == 1:
            complain(str(error))
            return
        half = len(keys) // 2
        yield from read_each(view, keys[:half], complain)
        yield from read_each(view, keys[half:], complain)
