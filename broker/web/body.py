"""The bodies of requests: read within bounds of size and time, and never waited for by an answer that needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.rules.jsonl import LINE_BYTES_MAX, load
from broker.web.problems import Problem, problem

#: The largest body, in bytes. A body that is larger by one is refused whole, never cut.
BODY_BYTES_MAX = LINE_BYTES_MAX
#: How long a body may take to come, from its first byte to its last.
BODY_SECONDS_MAX = 10.0
#: How many bytes of all bodies together are held at once; beyond that, a request is answered 503.
HELD_BYTES_MAX = 128 * BODY_BYTES_MAX
#: How long, and how many bytes, an unwanted body is read and dropped, so that its sender can read the answer.
DRAIN_SECONDS_MAX = 1.0
DRAIN_BYTES_MAX = 2 * BODY_BYTES_MAX

#: What says where a body ends.
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


async def read_body(
    request: Request, limit_bytes: int = BODY_BYTES_MAX, seconds: float | None = None
) -> bytes:
    """The whole body.

    Raises Problem: 413 above `limit_bytes`, 408 where it is not here after `seconds`, 503 where too much is in hand.
    """
    if _announced(request.headers.get("content-length", "")) > limit_bytes:
        raise _too_large(limit_bytes)
    body = bytearray()
    seconds = BODY_SECONDS_MAX if seconds is None else seconds
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > limit_bytes:
                    raise _too_large(limit_bytes)
    except TimeoutError:
        raise Problem(408, "timed_out", f"the body was not here after {seconds:g} s") from None
    except ClientDisconnect:  # nobody hears it, and it is nobody's error here
        raise Problem(400, "incomplete", "the body ended before its end") from None
    return bytes(body)


async def read_json(
    request: Request, limit_bytes: int = BODY_BYTES_MAX, seconds: float | None = None
) -> tuple[Any, str]:
    """The value of a JSON body, read strictly (see `broker.rules.jsonl`), and its text.

    Raises as `read_body` does, and Malformed (400).
    """
    return load(await read_body(request, limit_bytes, seconds), "the body")


def _announced(length: str) -> int:
    return int(length) if length.isascii() and length.isdigit() else 0


def _too_large(limit_bytes: int) -> Problem:
    return Problem(413, "too_large", f"the body has more than {limit_bytes} bytes")


class Drain:
    """Sends an answer also where the request's body was not read to its end, then closes the connection.

    Closing at once would reset it, and a client that still sends might never see the answer: so for a moment the rest
    of the body is read and dropped. It also bounds the memory that all bodies together may take.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name for name, _ in scope["headers"]} if scope["type"] == "http" else set()
        exchange = _Exchange(receive, send, self._hold)
        if names >= _FRAMING:  # whoever stands between may have read another body than we would
            refusal = problem(400, "not_http", "a body is either chunked or has a Content-Length")
            await refusal(scope, exchange.receive, exchange.send)
        elif names & _FRAMING and (b"content-length", b"0") not in scope["headers"]:
            try:
                await self._app(scope, exchange.receive, exchange.send)
            finally:
                exchange.let_go()
        else:
            await self._app(scope, receive, send)

    def _hold(self, size: int) -> None:
        if size > 0 and self._held + size > HELD_BYTES_MAX:
            raise Problem(503, "busy", "too much is being sent at once: come again in a moment")
        self._held += size


class _Exchange:
    """One request with a body, and its answer."""

    def __init__(self, receive: Receive, send: Send, hold: Callable[[int], None]) -> None:
        self._receive = receive
        self._send = send
        self._hold = hold
        self._read = False
        self._is_answered = False
        self._held = 0

    async def receive(self) -> Message:
        message, size = await self._next()
        if self._is_answered:
            # A stream only waits for the disconnect: what else comes is dropped, so it does not count.
            return message
        try:
            self._hold(size)
        except Problem:
            self.let_go()
            raise
        self._held += size
        return message

    def let_go(self) -> None:
        """Its body is not held any more."""
        self._hold(-self._held)
        self._held = 0

    async def _next(self) -> tuple[Message, int]:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._read = True
        return message, len(message.get("body", b""))

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_answered = True
            self.let_go()
        if self._read:
            await self._send(message)
        elif message["type"] == "http.response.start":
            await self._send(
                {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            )
        elif message.get("more_body", False):
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._drain()
            await self._send({"type": "http.response.body"})

    async def _drain(self) -> None:
        dropped = 0
        try:
            async with asyncio.timeout(DRAIN_SECONDS_MAX):
                while not self._read and dropped < DRAIN_BYTES_MAX:
                    dropped += (await self._next())[1]
        except TimeoutError:
            pass
