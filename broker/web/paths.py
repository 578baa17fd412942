"""The key of a job in a path: one percent-encoded segment, or its four parts as they stand in its text.

Servers hand on a path decoded, in which `a%2Fb` and `a/b` are one. So the path is read as it was sent, and what the
routes see is always one segment.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote, unquote_to_bytes

from fastapi import Depends, Path
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.rules.key import Key
from broker.web.problems import problem

_JOBS = b"/v1/jobs/"
#: What can follow a key.
_VERBS = frozenset({"why", "result", "output", "log", "cancel", "retry", "remove"})
_HINT = "in a path, each slash of a key is written %2F, or all four parts of it are given"


def path_of(key: Key | str) -> str:
    """Where that job is."""
    return f"/v1/jobs/{quote(str(key), safe='')}"


class KeyPaths:
    """Makes one segment of each key, before any route is chosen."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b"" if scope["type"] == "http" else b""
        if not raw.startswith(_JOBS) or raw == _JOBS:
            await self._app(scope, receive, send)
            return
        try:
            key, verb = _split(raw[len(_JOBS) :])
        except UnicodeDecodeError:
            answer = problem(400, "invalid", "the path is not UTF-8 text", field="key")
            await answer(scope, receive, send)
            return
        if not key or (verb is not None and verb not in _VERBS):
            answer = problem(404, "not_found", f"there is no such route: {_HINT}")
            await answer(scope, receive, send)
            return
        path = path_of(key) + ("" if verb is None else f"/{verb}")
        await self._app({**scope, "path": path}, receive, send)


def _split(raw: bytes) -> tuple[str, str | None]:
    """The text of the key, empty where there is none, and the verb after it. Raises UnicodeDecodeError."""
    parts = raw.split(b"/")
    verb = parts.pop().decode() if len(parts) in (2, 5) else None
    if len(parts) == 4:  # the text itself, whose parts are encoded once
        return b"/".join(parts).decode(), verb
    return unquote_to_bytes(parts[0]).decode() if len(parts) == 1 else "", verb


def _key(
    key: Annotated[
        str,
        Path(
            description="The key, percent-encoded as one segment, or any unambiguous end of it.",
            examples=["desk%2Fchecksum%2F%2F06mzvsd02r4x", "06mzvsd02r4x"],
        ),
    ],
) -> str:
    return unquote(key)


#: What a route of one job takes: the text that names it.
TheKey = Annotated[str, Depends(_key)]
