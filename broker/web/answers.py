"""Answers as they leave: JSON that is built once, a long list of it in pages, and what OpenAPI says of errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastapi.responses import Response, StreamingResponse

from broker.errors import Damaged
from broker.web import models
from broker.web.problems import MEDIA_TYPE

#: How many elements of a list are made text at a time.
PAGE = 500

_ABOUT = {
    400: "The request is wrong, and says where.",
    401: "No token, or a wrong one.",
    403: "It comes from a page of another origin.",
    404: "Nothing of that name is known.",
    408: "The body did not come in time.",
    409: "The rules refuse it: `rule` names which.",
    413: "The body is too large.",
    415: "The body is not said to be JSON.",
    421: "The Host header names somebody else.",
    503: "Redis does not answer, or holds what it should not. Nothing is lost.",
}


def dump(value: Any) -> bytes:
    """The value as JSON that any reader reads. Raises Damaged where Redis was given one that has no such form."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as wrong:
        raise Damaged(f"what is kept there has no JSON form: {wrong}") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which another program wrote: as an escape it is valid JSON.
        return json.dumps(value, separators=(",", ":")).encode()


class Json(Response):
    """The value, or what is JSON already."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dump(content)


def listed(
    items: Sequence[Any], shown: Callable[[Any], Any], headers: dict[str, str]
) -> StreamingResponse:
    """An array, made while it is sent: a page at a time, on another thread."""
    return StreamingResponse(_pages(items, shown), headers=headers, media_type="application/json")


def _pages(items: Sequence[Any], shown: Callable[[Any], Any]) -> Iterator[bytes]:
    for at in range(0, max(1, len(items)), PAGE):
        inner = dump([shown(item) for item in items[at : at + PAGE]])[1:-1]
        yield (b"," if at else b"[") + inner
    yield b"]"


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of a route's errors, each a problem document."""
    schema = {"$ref": f"#/components/schemas/{models.Problem.__name__}"}
    return {
        status: {"description": _ABOUT[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }
