"""A few questions to Redis without redis-py, whose import alone takes as long as a dozen starts of the interpreter.

For commands that must answer at once, and only for them: plain `redis://` and `unix://`, reading, no second try.
Whatever is not plain raises `NotPlain`, and the caller takes the usual way, which also finds the words for an error.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import hiredis

#: For the connection, and for an answer. The usual way comes after it, and both together must end within 5 s.
SECONDS_MAX = 1.0
READ_BYTES = 64 * 1024


class NotPlain(Exception):
    """This way cannot tell: take the usual one."""


class Bare:
    """One connection for one command of a user; a context manager."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        path = unquote(parts.path)
        database = options.pop("db", [path.lstrip("/") if parts.scheme == "redis" else ""])[0]
        if parts.scheme not in ("redis", "unix") or options:
            raise NotPlain(parts.scheme)
        self._reader = hiredis.Reader()
        self._socket = _connect_unix(path) if parts.scheme == "unix" else _connect(parts)
        greeting: list[tuple[str, ...]] = []
        if parts.password is not None:
            user = [unquote(parts.username)] if parts.username else []
            greeting.append(("AUTH", *user, unquote(parts.password)))
        if database not in ("", "0"):
            greeting.append(("SELECT", database))
        try:
            self.ask(greeting)
        except NotPlain:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def ask(self, commands: Sequence[Sequence[str]]) -> list[Any]:
        """The replies to these commands, in one round trip. Raises NotPlain where one is an error, or none comes."""
        try:
            self._socket.sendall(b"".join(map(_encode, commands)))
            replies = [self._reply() for _ in commands]
        except (OSError, hiredis.HiredisError) as wrong:
            raise NotPlain(str(wrong)) from None
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise NotPlain(str(reply))
        return replies

    def _reply(self) -> Any:
        while (
            reply := self._reader.gets()
        ) is False:  # not all of it is there yet; RESP2 has no false
            data = self._socket.recv(READ_BYTES)
            if not data:
                raise NotPlain("the connection ended")
            self._reader.feed(data)
        return reply


def _connect(parts: SplitResult) -> socket.socket:
    try:
        address = (parts.hostname or "localhost", parts.port or 6379)
        return socket.create_connection(address, SECONDS_MAX)
    except (OSError, ValueError) as wrong:
        raise NotPlain(str(wrong)) from None


def _connect_unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS_MAX)
    try:
        connection.connect(path)
    except OSError as wrong:
        connection.close()
        raise NotPlain(str(wrong)) from None
    return connection


def _encode(command: Sequence[str]) -> bytes:
    words = [word.encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in words
    )
