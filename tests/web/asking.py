"""Requests as they are typed: no client adds what a test leaves out."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from broker import Broker
from broker import settings as settings_of
from broker.store.store import Store
from broker.web.app import PARTS
from broker.web.guard import SAFE_METHODS
from broker.web.server import serving

JSON = ("Content-Type", "application/json")
FORM = ("Content-Type", "application/x-www-form-urlencoded")
EVIL = ("Origin", "http://evil.example")
TOKEN = "correct-horse-battery-staple"
BEARER = ("Authorization", f"Bearer {TOKEN}")


@contextmanager
def served(
    redis_url: str,
    namespace: str,
    *,
    turns: Callable[[], Mapping[str, float]] = dict,
    draining: threading.Event | None = None,
    died: Callable[[], object] = lambda: None,
    **flags: object,
) -> Iterator[str]:
    """A server with these settings, in this process; gives its url."""
    given = {"namespace": namespace, "node": "desk", "listen": "127.0.0.1:0"} | flags
    broker = Broker(Store.from_url(redis_url, namespace), settings_of(**given))
    with serving(broker, turns=turns, draining=draining, died=died) as url:
        yield url


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and rule of a problem document."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        assert self.json["detail"]
        return self.status, self.json["rule"]


def place_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


def ask(
    url: str,
    path: str = "/livez",
    *headers: tuple[str, str],
    method: str = "GET",
    body: bytes = b"",
    host: str | None = "",
) -> Answer:
    """One request with these headers alone; `host` is the right one, or this, or none at all."""
    connection = http.client.HTTPConnection(*place_of(url), timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    if host is not None:
        connection.putheader("Host", host or urlsplit(url).netloc)
    for name, value in headers:
        connection.putheader(name, value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    try:
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def post(
    url: str, path: str, *headers: tuple[str, str], body: bytes = b"{}", host: str | None = ""
) -> Answer:
    """A POST with a body."""
    return ask(url, path, *headers, method="POST", body=body, host=host)


def connected(url: str) -> socket.socket:
    """A connection on which nothing was said."""
    return socket.create_connection(place_of(url), timeout=60)


def heard(connection: socket.socket) -> bytes:
    """All that is said until the other side ends."""
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def routes(router: Any = None) -> Iterator[tuple[str, str]]:
    """Method and path of every route that there is."""
    for route in router.routes if router is not None else ():
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes(inner)
        else:
            yield from ((method, route.path) for method in route.methods)
    if router is None:
        for part in PARTS:
            yield from routes(part.router)


#: A path of each route, its parameters filled in.
PATHS = sorted(
    {path.replace("{", "").replace("}", "").replace(":path", "") for _, path in routes()}
)
MUTATING = sorted(
    {
        path.replace("{", "").replace("}", "")
        for method, path in routes()
        if method not in SAFE_METHODS
    }
)
