"""One connection: the bounds that uvicorn lacks, and its own error answers as problem documents."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from broker.web.guard import ALWAYS
from broker.web.problems import problem

#: How long the head of a request may take, from its first byte (of the first one: from the connection), in seconds.
HEAD_SECONDS_MAX = 10.0
#: How long a connection may rest between two requests, in seconds.
REST_SECONDS_MAX = 30
#: How long a client may take nothing of what waits for it, in seconds.
STALL_SECONDS_MAX = 60.0
#: Clients served at once: many a system allows a process 1,024 open files.
CLIENTS_MAX = 800
#: Beyond, each is told so; and beyond these, nobody is heard at all.
CONNECTIONS_MAX = CLIENTS_MAX + 100
#: What uvicorn tells is told again only after so many seconds: strangers must not fill the log.
REPEAT_SECONDS = 60.0


class Connection(H11Protocol):
    """HTTP/1.1 for one client. One that sends half a head, or does not read what it asked for, is cut off; what is not
    HTTP is answered by a problem document.
    """

    _cut: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's, while there is room."""
        super().connection_made(transport)
        _limit_unread(transport.get_extra_info("socket"))
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
        else:
            self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """As uvicorn's."""
        self._end_watch()
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """As uvicorn's: more waits for the client than it takes."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """As uvicorn's."""
        self._end_stall()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """As uvicorn's."""
        super().data_received(data)
        self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """What was sent is no HTTP/1.1 as we take it. Without a Host, or with two, it is for nobody here."""
        is_host = "Host:" in str(sys.exc_info()[1])
        if self.conn.our_state is not h11.IDLE and self.cycle.response_started:
            self.transport.close()  # it was answered before it went wrong
            return
        status, rule = (421, "wrong_host") if is_host else (400, "not_http")
        answer = problem(status, rule, msg)
        headers = [*answer.raw_headers, *ALWAYS, (b"connection", b"close")]
        reason = HTTPStatus(status).phrase.encode()
        head = h11.Response(status_code=status, headers=headers, reason=reason)
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch_head(self) -> None:
        """While a head is awaited, its time runs."""
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._end_watch()
        elif self._cut is None:
            self._cut = self.loop.call_later(HEAD_SECONDS_MAX, self.transport.close)

    def _end_watch(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None

    def _watch_stall(self) -> None:
        waits = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(STALL_SECONDS_MAX, self._look_for_stall, waits)

    def _look_for_stall(self, before: int) -> None:
        if self.transport.get_write_buffer_size() < before:
            self._watch_stall()
        else:  # closing would wait for what waits to be taken
            self.transport.abort()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None


def _limit_unread(connection: socket.socket) -> None:
    """The system drops who acknowledges or takes nothing for as long, also where little waits, or the end does."""
    if connection.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(STALL_SECONDS_MAX * 1000)
        )


class Seldom(logging.Filter):
    """Passes the same words once a minute, and nothing of a request that the server's own end cut off."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, object], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to tell it."""
        kind = record.exc_info[0] if record.exc_info else None
        if kind is asyncio.CancelledError:
            return False
        what, now = (str(record.msg), kind), time.monotonic()
        if now - self._told.get(what, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._told[what] = now
        return True
