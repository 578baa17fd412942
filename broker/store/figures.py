"""What each origin's keys amount to, for those who look after them: sizes, lengths, where the log stands.

It reads what costs next to nothing, all in one call, whatever the logs hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import redis

from broker.errors import Damaged
from broker.store.connection import redis_errors
from broker.store.decode import read_number, read_text
from broker.store.log import Position, position_of
from broker.store.store import Store

#: Pieces of a log that are measured for its size; the others are taken to be like them.
SAMPLES = 5
#: Origins that one call asks for.
PAGE = 200
_ASKED = 7
#: How a field of meta begins that counts answers: `n:<outcome>:<rule>`.
_COUNT = "n:"


@dataclass(frozen=True, slots=True)
class Figures:
    """One origin. What could not be read is None, and `damage` says why (empty: all was)."""

    origin: str
    log: int | None = None  #: entries kept
    floor: str | None = None
    epoch: str | None = None
    last_rev: str | None = None
    bytes: int | None = None  #: about, of the log; None also where Redis does not tell
    trimmed: int | None = (
        None  #: entries that went since this log began; None where Redis does not tell
    )
    live: int | None = None
    done: int | None = None
    ready: int | None = None
    delayed: int | None = None
    #: How many events were answered how, by outcome and rule (of `error` it is empty), since meta began.
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    damage: str = ""

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        shown = asdict(self) | {"damage": self.damage or None}
        shown["answers"] = {
            ":".join(filter(None, pair)): count for pair, count in sorted(self.answers.items())
        }
        return shown


def read_figures(store: Store, origins: Sequence[str]) -> list[Figures]:
    """Of each, in their order: one that cannot be read does not hide the others. Raises Unavailable."""
    found = []
    for at in range(0, len(origins), PAGE):
        page = origins[at : at + PAGE]
        with redis_errors(), store.client.pipeline(transaction=False) as pipe:
            for origin in page:
                _ask(pipe, store, origin)
            replies = pipe.execute(raise_on_error=False)
        for n, origin in enumerate(page):
            found.append(_read(origin, replies[_ASKED * n : _ASKED * (n + 1)]))
    return found


def _ask(pipe: Any, store: Store, origin: str) -> None:
    books = store.keys.of(origin)
    pipe.xinfo_stream(books.log)
    pipe.memory_usage(books.log, samples=SAMPLES)
    pipe.hgetall(books.meta)
    for name in (books.live, books.done, books.ready, books.delayed):
        pipe.zcard(name)


def _read(origin: str, replies: Sequence[Any]) -> Figures:
    for reply in replies:
        if isinstance(reply, redis.ConnectionError):  # it loads, say: nothing is known of anything
            raise reply
    info, size, meta, *counts = replies
    if isinstance(info, redis.ResponseError) and "no such key" in str(info):
        info = {"length": 0, "entries-added": 0}
    wrong = [reply for reply in (info, meta, *counts) if not isinstance(reply, (dict, int))]
    info = info if isinstance(info, dict) else {}
    length, added = info.get("length"), info.get("entries-added")
    position: Position | None = None
    meta = meta if isinstance(meta, dict) else None
    if length is not None and meta is not None:
        try:
            stands = [meta.get(name) for name in (b"epoch", b"floor", b"rev")]
            position = position_of(origin, stands, length)
        except Damaged as error:
            wrong.append(error)
    live, done, ready, delayed = map(_number, counts)
    return Figures(
        origin,
        log=length,
        floor=position and position.floor,
        epoch=position and position.epoch,
        last_rev=position and position.rev,
        bytes=0 if length == 0 else _number(size),
        trimmed=None if length is None or added is None else added - length,
        live=live,
        done=done,
        ready=ready,
        delayed=delayed,
        answers=_answers(meta or {}),
        damage=" ".join(str(wrong[0]).split())[:200] if wrong else "",
    )


def _answers(meta: Mapping[bytes, bytes]) -> Counter[tuple[str, str]]:
    """What is no count counts as none: the merge begins it anew."""
    found: Counter[tuple[str, str]] = Counter()
    for raw, told in meta.items():
        name, count = read_text(raw), read_number(told)
        if name.startswith(_COUNT) and count:
            outcome, _, rule = name.removeprefix(_COUNT).partition(":")
            found[outcome, rule] = count
    return found


def _number(reply: object) -> int | None:
    return reply if isinstance(reply, int) else None
