"""Who may ask at all: decided for every request by its headers alone, before anything else looks at it.

Every web page that a user opens can reach a server on loopback. The Host header (against DNS rebinding), the Origin
header and JSON (which no form sends) tell our own users from such a page; beside them there is the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.web.auth import WRONG_SECONDS, Gate, needs_no_token, unauthorized
from broker.web.hosts import Door, is_own
from broker.web.problems import problem

#: What changes nothing. A new method is taken for one that does.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: For programs alone: whatever comes from a page is refused there.
INGRESS = "/v1/events"
LOGIN = "/login"
#: Answered also while the process ends, or is crowded: whoever looks after it must not take it for dead.
HEALTH = frozenset({"/livez", "/readyz", "/version", "/metrics"})

Headers = list[tuple[bytes, bytes]]

#: On every answer that does not say otherwise: a page of ours runs nothing but our files, nobody else's page shows or
#: reads ours, and nothing is kept.
ALWAYS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """Lets through to `app` who may pass, and answers the others with a problem document.

    `takes` tells whether any route takes this method: of another it need not be JSON to be told that none does.
    `is_full` tells that more clients are here than are served; `is_draining`, that the process ends.
    """

    def __init__(
        self,
        app: ASGIApp,
        door: Door,
        gate: Gate,
        *,
        takes: Callable[[str], bool] = lambda _: True,
        is_full: Callable[[], bool] = lambda: False,
        is_draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._door = door
        self._gate = gate
        self._takes = takes
        self._is_full = is_full
        self._is_draining = is_draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return
        answered = _marked(send)
        if refusal := await self._refusal(scope):
            await refusal(scope, receive, answered)
        elif scope["method"] == "HEAD":
            await _head(self._app, scope, answered)
        else:
            await self._app(scope, receive, answered)

    async def _refusal(self, scope: Scope) -> Response | None:
        headers: Headers = scope["headers"]
        path, method = scope["path"], scope["method"]
        if self._is_full() and path not in HEALTH:
            return _busy("busy", "more clients are connected than are served at once")
        host = _only(headers, b"host")
        if host is None or not self._door.knows(host):
            return problem(
                421, "wrong_host", "this server does not go by the name in Host (setting hosts)"
            )
        # There is nothing but POST: what else comes to the ingress is told so, whatever it looks like.
        if method not in SAFE_METHODS and (path != INGRESS or method == "POST"):
            if refused := _foreign(headers, path, host, scope["scheme"]):
                return refused
            if self._takes(method) and not _is_json(_only(headers, b"content-type")):
                return problem(415, "not_json", "Content-Type must be application/json")
        if refused := await self._stranger(scope):
            return refused
        if self._is_draining() and path not in HEALTH:
            return _busy("draining", "this server is about to end")
        return None

    async def _stranger(self, scope: Scope) -> Response | None:
        headers, path, method = scope["headers"], scope["path"], scope["method"]
        if needs_no_token(path) or (found := self._gate.admits(headers)):
            return None
        if found is False:
            await asyncio.sleep(WRONG_SECONDS)
        is_page = path == "/" or b"text/html" in (_only(headers, b"accept") or "").encode()
        if method in SAFE_METHODS and is_page and not path.startswith("/v1/"):
            asked = scope["raw_path"] + (b"?" + query if (query := scope["query_string"]) else b"")
            back = "" if asked == b"/" else f"?next={quote(asked, safe='')}"
            return RedirectResponse(LOGIN + back, HTTPStatus.SEE_OTHER)
        said = "the token is wrong" if found is False else "a token is needed"
        return unauthorized(said)


def _busy(rule: str, detail: str) -> Response:
    made = problem(503, rule, detail)
    made.headers.update({"retry-after": "1", "connection": "close"})
    return made


def _foreign(headers: Headers, path: str, host: str, scheme: str) -> Response | None:
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    if path == INGRESS and origins:
        return problem(403, "foreign_origin", "events are taken from programs, not from pages")
    if origins and not (len(origins) == 1 and is_own(origins[0], host, scheme)):
        return problem(403, "foreign_origin", "only our own pages may ask for this")
    return None


def _only(headers: Headers, name: bytes) -> str | None:
    """A header that came exactly once."""
    found = [value for key, value in headers if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


def _is_json(content_type: str | None) -> bool:
    media = (content_type or "").partition(";")[0]
    return media.strip().lower() == "application/json"


def _marked(send: Send) -> Send:
    """Adds to each answer what all of them carry."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            more = [one for one in ALWAYS if one[0] not in names]
            message = {**message, "headers": [*headers, *more]}
        await send(message)

    return marked


async def _head(app: ASGIApp, scope: Scope, send: Send) -> None:
    """Answers as GET does, without the body; a stream ends where it would begin."""
    is_told = asyncio.Event()
    asked: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if asked:
            return asked.pop()
        await is_told.wait()
        return {"type": "http.disconnect"}

    async def head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})
            is_told.set()

    await app({**scope, "method": "GET"}, receive, head)
