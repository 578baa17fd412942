"""How far a group is behind at an origin, where that can be known: in entries, and by the age of the first unread one.

Redis's own count is wrong after some trims and empty after some deletions. So it is asked last, and believed only
where it can be true; what is not known is None, never 0. Asking costs a few pipelines, whatever the logs hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import redis

from broker.errors import Damaged
from broker.rules.replay import rev_order
from broker.store.connection import redis_errors
from broker.store.decode import read_text
from broker.store.log import REV, Place, Position, misfit, position_of
from broker.store.store import Store

#: Commands that one pipeline carries: a call of some milliseconds.
PAGE = 1_000

#: How Redis answers about a key of a wrong type, a log that is not there, and a place that is none.
_NOTHING = ("WRONGTYPE", "no such key", "requires the key to exist", "Invalid stream ID")

_T = TypeVar("_T")


class Stand(NamedTuple):
    """Up to where a group has read, and acked, the log of an origin."""

    group: str
    origin: str
    place: Place


class Lag(NamedTuple):
    """What a group has before it, in entries and milliseconds."""

    gone: str = ""  #: why the log no longer holds what followed its place, empty where it does
    entries: int | None = None
    ms: int | None = None  #: age of the first unread entry, 0 where there is none
    pending: int | None = None  #: entries that were handed out and are not acked


#: Of one that has not begun.
UNKNOWN = Lag()


class _Book(NamedTuple):
    """What is known of an origin's log."""

    position: Position | None  #: None where it cannot be read
    length: int
    groups: dict[str, dict[str, Any]]  #: what Redis itself tells of each group


def lags(store: Store, stands: Sequence[Stand], now: int) -> list[Lag]:
    """The lag of each, in their order; `now` is Redis's time. Raises Unavailable."""
    # The entries first: a log that moves on meanwhile makes a lag larger, and never makes a place misfit.
    heads = _heads(store, stands)
    books = _books(store, sorted({stand.origin for stand in stands}))
    return [
        _lag(stand, head, books[stand.origin], now)
        for stand, head in zip(stands, heads, strict=True)
    ]


def ask_each(
    store: Store, about: Sequence[_T], ask: Callable[[Any, _T], object], nothing: Any
) -> list[Any]:
    """What Redis answers to one command about each, a page a call. Raises Unavailable.

    `ask` puts the command into a pipeline. `nothing` stands for each key that is not there or of a wrong type.
    """
    found: list[Any] = []
    for at in range(0, len(about), PAGE):
        with redis_errors():
            pipe = store.client.pipeline(transaction=False)
            for each in about[at : at + PAGE]:
                ask(pipe, each)
            found += [_told(reply, nothing) for reply in pipe.execute(raise_on_error=False)]
    return found


def _told(reply: Any, nothing: Any) -> Any:
    if not isinstance(reply, redis.RedisError):
        return reply
    if any(words in str(reply) for words in _NOTHING):
        return nothing
    raise reply


def _heads(store: Store, stands: Sequence[Stand]) -> list[list[str]]:
    """The ids of the last acked entry and the first unread one, as far as they are in the log."""

    def ask(pipe: Any, stand: Stand) -> None:
        pipe.xrange(store.keys.of(stand.origin).log, stand.place.rev or "-", "+", count=2)

    return [[raw.decode() for raw, _ in found] for found in ask_each(store, stands, ask, ())]


def _books(store: Store, origins: Sequence[str]) -> dict[str, _Book]:
    keys = [store.keys.of(origin) for origin in origins]
    metas = ask_each(
        store, keys, lambda pipe, of: pipe.hmget(of.meta, "epoch", "floor", "rev"), (None,) * 3
    )
    groups = ask_each(store, keys, lambda pipe, of: pipe.xinfo_groups(of.log), ())
    lengths = ask_each(store, keys, lambda pipe, of: pipe.xlen(of.log), 0)
    return {
        origin: _Book(
            _position(origin, meta, length),
            length,
            {read_text(each["name"]): each for each in by_redis},
        )
        for origin, meta, by_redis, length in zip(origins, metas, groups, lengths, strict=True)
    }


def _position(origin: str, meta: Sequence[bytes | None], length: int) -> Position | None:
    try:
        return position_of(origin, meta, length)
    except Damaged:
        return None


def _lag(stand: Stand, head: Sequence[str], book: _Book, now: int) -> Lag:
    by_redis = book.groups.get(stand.group, {})
    pending, rev = by_redis.get("pending"), stand.place.rev
    if not REV.match(rev):
        return Lag("its place cannot be read", pending=pending)
    if book.position is None:
        return Lag("where the log stands cannot be read", pending=pending)
    stands = head[:1] == [rev]
    if gone := misfit(stand.place, book.position, stands):
        return Lag(gone, pending=pending)
    unread = head[1:] if stands else head[:1]
    if not unread:
        return Lag("", 0, 0, pending)
    entries = _count(rev, book.length, by_redis) if stands else book.length
    return Lag("", entries, max(0, now - int(unread[0].split("-")[0])), pending)


def _count(rev: str, length: int, by_redis: dict[str, Any]) -> int | None:
    """How many entries follow `rev`, which is one of `length` and not the last: None where Redis does not tell.

    Redis counts what it has not handed out, if nothing was deleted from its middle; what it has handed out and was not
    acked is pending. A count that the log cannot hold has in it what was trimmed unread, and a group that stands before
    `rev` is not the one by which we read.
    """
    unsent = by_redis.get("lag")
    if unsent is None or rev_order(by_redis["last-delivered-id"].decode()) < rev_order(rev):
        return None
    told = int(unsent) + int(by_redis["pending"])
    return max(1, told) if told < length else None
