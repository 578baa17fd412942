"""The doorbell: sleeps until some log has something new, on a connection of its own, and can be woken from outside.

It only says where to look. What it read is thrown away, so that nothing it gets wrong (a log deleted under it, a
repeated or a lost ring) can lose or repeat an event.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import redis

from broker.store.connection import redis_errors

#: How long one sleep may last, in ms: far below the socket's timeout, so that a frozen server is noticed.
SLEEP_MS_MAX = 1_000
#: The same where there is no socket to hang up (fakeredis in one process): how late `wake` is noticed.
SLEEP_MS_MAX_UNWAKABLE = 50


class Doorbell:
    """Waits on one connection out of the client's pool, and gives it back after each wait."""

    def __init__(self, client: redis.Redis) -> None:
        self._pool = client.connection_pool
        self._woken = threading.Event()
        #: Held while the connection is told apart from one that is already another's.
        self._lock = threading.Lock()
        self._connection: Any = None

    def wait(self, logs: Mapping[str, str], wait_ms: int) -> list[str] | None:
        """Sleep until one of `logs` (stream key -> rev) holds anything newer: the keys that do; [] after `wait_ms`
        or a little less; None where only a look at each can tell.

        Once woken it returns [] at once, always. Raises Unavailable, and Damaged where a key is no stream.
        """
        if not logs or self._woken.is_set():
            self._woken.wait(wait_ms / 1000)
            return []
        with redis_errors():
            try:
                return self._wait(logs, max(1, wait_ms))
            except redis.ResponseError as answer:
                if str(answer).startswith("UNBLOCKED"):  # a log was deleted
                    return None
                raise
            except (redis.RedisError, OSError):
                if self._woken.is_set():  # hung up on by `wake`
                    return []
                raise

    def _wait(self, logs: Mapping[str, str], wait_ms: int) -> list[str]:
        # The pool looks whether the connection still lives: nobody is told of one that the server dropped meanwhile.
        connection: Any = self._pool.get_connection()
        with self._lock:
            self._connection = connection
        try:
            # Looked at after connecting: `wake` comes either before this line, or finds a socket to hang up.
            return [] if self._woken.is_set() else _ring(connection, logs, wait_ms)
        finally:
            with self._lock:
                self._connection = None
            if self._woken.is_set():
                connection.disconnect()
            self._pool.release(connection)

    def wake(self) -> None:
        """From any thread: end the sleep at once, and every later one. Needs no answer from Redis."""
        self._woken.set()
        with self._lock:
            if self._connection is not None and (found := _socket_of(self._connection)):
                with suppress(OSError):
                    # Past TLS, whose own goodbye would wait for the reader.
                    socket.socket.shutdown(found, socket.SHUT_RDWR)


def _ring(connection: Any, logs: Mapping[str, str], wait_ms: int) -> list[str]:
    sleep_ms = SLEEP_MS_MAX if _socket_of(connection) else SLEEP_MS_MAX_UNWAKABLE
    block = ("COUNT", 1, "BLOCK", min(wait_ms, sleep_ms))
    try:
        connection.send_command("XREAD", *block, "STREAMS", *logs, *logs.values())
        reply = connection.read_response()
    except redis.ResponseError:
        raise
    except BaseException:
        connection.disconnect()  # its answer may still come: nobody may take it for another's
        raise
    # RESP3 answers a map, RESP2 a list of pairs, and both nil where nothing came.
    rung = reply if isinstance(reply, dict) else [pair[0] for pair in reply or ()]
    return [name.decode() for name in rung]


def _socket_of(connection: Any) -> socket.socket | None:
    found = connection._get_socket()  # noqa: SLF001 - redis-py has no public way to end a read
    return found if isinstance(found, socket.socket) else None
