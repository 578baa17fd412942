"""One client's stream of server-sent events: the changes that it asks for, in order, and what the pulse tells.

Each client is one reader of the list that all share, so a client that does not read costs its ring and its
connection's buffer, and delays nobody. FastAPI has server-sent events of its own; they make, check and encode an
object for each event of each client, while a change is the same text for all of ours.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Send

from broker.errors import BrokerError, Resync
from broker.readers.reader import Reader
from broker.readers.readers import Readers
from broker.rules.filter import Filter
from broker.rules.record import to_json
from broker.rules.replay import Change
from broker.web.answers import dump
from broker.web.pulse import Pulse

#: A stream that told no position for so many seconds tells it in a comment, which also finds connections that are dead.
HEARTBEAT_SECONDS = 15.0
#: How often it is looked whether the first listing is done, in seconds.
LISTING_SECONDS = 0.1
#: A client that lost its connection may come back after so long, in milliseconds.
RETRY_MS = 1_000
#: What is handed to a connection at once: it holds about so much, and one piece more.
PIECE_BYTES_MAX = 64 * 1024
#: Texts of changes that are kept for the other clients.
TEXTS_MAX = 2_048

MEDIA_TYPE = "text/event-stream"


class Texts:
    """Each change as the text that every client gets. A change is one object for all readers of a list."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Change, bytes]] = OrderedDict()

    def of(self, change: Change) -> bytes:
        """Its event, but for the end."""
        # By identity: comparing two changes would cost more than the text. Each is kept, so that its number stays its.
        kept = self._kept.get(id(change))
        if kept is not None:
            return kept[1]
        text = b"event: change\ndata: " + dump(change_json(change)) + b"\n"
        self._kept[id(change)] = change, text
        if len(self._kept) > TEXTS_MAX:
            self._kept.popitem(last=False)
        return text


def change_json(change: Change) -> dict[str, Any]:
    """A change as JSON: the record as lists show it, but for `suspect`, which the `doubt` events tell."""
    record = change.record
    return {
        "key": str(change.key),
        "rev": change.rev,
        "event": change.event,
        "rule": change.rule,
        "by": change.by,
        "synthesized": change.synthesized,
        "record": None if record is None else to_json(change.key, record),
    }


class EventStream(StreamingResponse):
    """The response of one client. Its end, however it comes, ends what feeds it at once."""

    media_type = MEDIA_TYPE

    async def stream_response(self, send: Send) -> None:
        """As its parent's."""
        async with aclosing(self.body_iterator):  # type: ignore[type-var]  # a generator, always
            await super().stream_response(send)


async def events(
    readers: Readers,
    pulse: Pulse,
    texts: Texts,
    wanted: Filter,
    *,
    after: str = "",
    wants_state: bool = False,
) -> AsyncIterator[bytes]:
    """The stream, in pieces, until the readers are closed. `after`: the position from which the client goes on."""
    news = asyncio.Event()
    loop = asyncio.get_running_loop()

    def bell() -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it the client
            loop.call_soon_threadsafe(news.set)

    # Before the first listing nobody is told what is removed: who listed by themselves would keep it for good.
    while not (readers.is_listed or readers.closed):
        yield b": it is listed first\n\n"
        await asyncio.sleep(LISTING_SECONDS)
    reader, why = _open(readers, wanted, bell, after)
    listener = pulse.join(news.set, wants_state=wants_state)
    position = reader.position.encode()
    told_at = loop.time()
    try:
        yield b"retry: %d\n" % RETRY_MS + _event("ready", b"{}", position)
        if why:
            yield _gone(why, position)
        while not reader.closed:
            news.clear()
            try:
                changes = reader.changes(0)
            except Resync as lost:
                reader.close()
                reader, _ = _open(readers, wanted, bell, "")
                yield _gone(str(lost), reader.position.encode())
                continue
            except BrokerError:  # Redis is away, or damaged: what happens comes once it is back
                changes = []
            for piece in _pieces(changes, reader.position.encode(), texts):
                yield piece
            if changes:
                told_at = loop.time()
            for kind, text in listener.take():
                yield _event(kind, text)
            if listener.is_troubled is not ((trouble := readers.trouble) is not None):
                listener.is_troubled = not listener.is_troubled
                yield _event("trouble", dump({"why": None if trouble is None else str(trouble)}))
            if not await _came(news, told_at + HEARTBEAT_SECONDS):
                # Whoever asks for little must not fall out of what is kept for those who come back.
                told_at = loop.time()
                yield b": still here\nid: %b\n\n" % reader.position.encode()
    finally:
        pulse.leave(listener)
        reader.close()


def _open(
    readers: Readers, wanted: Filter, bell: Callable[[], None], after: str
) -> tuple[Reader, str]:
    """A reader from that position on; where it is not held any more, one from now on, and why."""
    why, place = "", after or readers.position
    while True:
        try:
            return readers.open("a client of /v1/watch", wanted=wanted, after=place, bell=bell), why
        except Resync as gone:
            why, place = str(gone), readers.position


def _pieces(changes: list[Change], position: bytes, texts: Texts) -> list[bytes]:
    """The events of one batch. The position stands with its last one: all of them, or none, count as told."""
    pieces, piece = [], bytearray()
    for number, change in enumerate(changes, 1):
        piece += texts.of(change)
        piece += b"id: %b\n\n" % position if number == len(changes) else b"\n"
        if len(piece) >= PIECE_BYTES_MAX:
            pieces.append(bytes(piece))
            piece.clear()
    return [*pieces, bytes(piece)] if piece else pieces


async def _came(news: asyncio.Event, until: float) -> bool:
    try:
        async with asyncio.timeout_at(until):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _event(kind: str, data: bytes, position: bytes = b"") -> bytes:
    mark = b"id: %b\n" % position if position else b""
    return b"event: %b\ndata: %b\n%b\n" % (kind.encode(), data, mark)


def _gone(why: str, position: bytes) -> bytes:
    return _event("gone", json.dumps({"why": why}).encode(), position)
