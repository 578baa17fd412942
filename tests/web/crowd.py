"""Many clients of `/v1/watch` at once, on one event loop: when a change reaches each. And one that is stuck."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

#: A line of a stream: who is in doubt, for one, is a single one.
LINE_BYTES_MAX = 1 << 22

#: A state of `/proc/net/tcp`.
LISTENING = "0A"

_T = TypeVar("_T")


class Crowd:
    """So many clients that ask for one engine's jobs. `arrivals`: when each change reached each of them."""

    def __init__(self, url: str, count: int, engine: str) -> None:
        self._address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        self._asked = _request(url, f"?engine={engine}")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.ready = 0
        self.ended = 0
        self.arrivals: dict[bytes, list[float]] = {}
        self._clients = [
            self._start(self._follow()) for _ in range(count)
        ]  # else they may be collected

    def _start(self, work: Coroutine[Any, Any, _T]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _follow(self) -> None:
        reader, writer = await asyncio.open_connection(*self._address, limit=LINE_BYTES_MAX)
        try:
            writer.write(self._asked)
            while line := await reader.readline():
                if line == b"event: ready\n":
                    self.ready += 1
                elif line.startswith(b'data: {"key":"'):
                    key = line[14 : line.index(b'"', 14)]
                    self.arrivals.setdefault(key, []).append(time.perf_counter())
        finally:
            self.ended += 1
            writer.transport.abort()

    def close(self) -> None:
        """All of them leave."""
        self._start(self._leave()).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _leave(self) -> None:
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for _ in range(3):  # the connections are closed in the loop's next rounds
            await asyncio.sleep(0)


class Stuck:
    """A client that asked for everything, and reads nothing of it."""

    def __init__(self, url: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.connect((urlsplit(url).hostname, urlsplit(url).port))
        self._socket.sendall(_request(url, ""))
        self._socket.settimeout(60)
        assert self._socket.recv(12) == b"HTTP/1.1 200"

    def read_on(self, until: bytes) -> bytes:
        """At last it reads: what came up to that text."""
        found = b""
        while until not in found:
            piece = self._socket.recv(1 << 20)
            assert piece, "the connection ended"
            found += piece
        return found

    def is_served(self) -> bool:
        """Whether a process still holds the other end."""
        return self._socket.getsockname()[1] in served_at(self._socket.getpeername()[1])

    def close(self) -> None:
        self._socket.close()


def served_at(port: int) -> set[int]:
    """The ports of those whose connections a process holds there; what the system does with a rest is not asked."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *rest = line.split()
        if local[-4:] == f"{port:04X}" and state != LISTENING and rest[5] != "0":
            found.add(int(remote[-4:], 16))
    return found


def _request(url: str, query: str) -> bytes:
    return f"GET /v1/watch{query} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode()
