"""A third-party producer, as the tests of the ingress play it: by a client of HTTP, and byte by byte on a socket."""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from broker.store.store import Store

CREATED = 1_700_000_000_000
PATH = "/v1/events"


def frame(method: str = "workload:started", *, resync: bool | None = None, **info: Any) -> Any:
    """A lifecycle frame of job 7."""
    said = {"id": "7", "engine": "ollama", "state": "running", "createdAt": CREATED} | info
    params = {"workloadInfo": said} | ({} if resync is None else {"resync": resync})
    return {"jsonrpc": "2.0", "method": method, "params": params}


def unframe(id: str = "7", **params: Any) -> Any:
    """A removal frame: of every engine and run, unless it names one."""
    return {"jsonrpc": "2.0", "method": "workloads:remove", "params": {"workloadId": id} | params}


def post(http: httpx.Client, body: Any, **headers: str) -> httpx.Response:
    """Post a value, or bytes as they are."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"content-type": "application/json"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return http.post(PATH, content=content, headers=given)


def contents(store: Store) -> dict[bytes, bytes | None]:
    """All that Redis holds of the namespace."""
    names = sorted(store.client.scan_iter(match=f"{store.keys.namespace}:*", count=10_000))
    return {name: store.client.dump(name) for name in names}


class Socket:
    """One connection, on which whatever is sent is sent."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url)
        self._socket = socket.create_connection((self._where.hostname, self._where.port), 60)
        self.began = time.monotonic()
        #: What came along with the end of an answer: the next one's beginning.
        self._early = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def head(self, method: str = "POST", path: str = PATH, **headers: str | None) -> None:
        """Send a request's head: a good one, but for what is given. None leaves a header out."""
        given = {"host": self._where.netloc, "content-type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in given.items() if value is not None]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def answer(self) -> Answer:
        """The next answer, once it is there whole."""
        data = self._early
        while b"\r\n\r\n" not in data:
            data += self._more(data)
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        size = int(headers.get("content-length", 0))
        while len(rest) < size:
            rest += self._more(rest)
        rest, self._early = rest[:size], rest[size:]
        return Answer(int(first.split()[1]), headers, rest, time.monotonic() - self.began)

    def is_answered(self) -> bool:
        """Whether something is there to be read."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def is_closed(self) -> bool:
        """Wait until the other end closes; whether it did, without a further word."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def _more(self, so_far: bytes) -> bytes:
        data = self._socket.recv(65536)
        assert data, f"the connection ended after {so_far!r}"
        return data


class Answer:
    """What came back, and after how many seconds since the connection began."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes, seconds: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.seconds = seconds

    @property
    def json(self) -> Any:
        return json.loads(self.body)
