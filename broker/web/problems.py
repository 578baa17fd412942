"""Errors as problem documents (RFC 9457): one place that knows which family of ours is which HTTP status."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from broker.errors import (
    BrokerError,
    Busy,
    Damaged,
    Invalid,
    JobFailed,
    Malformed,
    NotFound,
    Refused,
    TimedOut,
    Unavailable,
    Untrusted,
)
from broker.web.words import complaint, place

MEDIA_TYPE = "application/problem+json"

#: Family -> status, and the rule where the error names none itself. The first that fits.
_STATUS: tuple[tuple[type[BrokerError], int, str], ...] = (
    (Malformed, 400, "malformed"),
    (Invalid, 400, "invalid"),
    (NotFound, 404, "not_found"),
    (Refused, 409, ""),
    (JobFailed, 409, "job_failed"),
    (Untrusted, 403, ""),
    (TimedOut, 504, "timed_out"),
    (Busy, 503, "busy"),
    (Unavailable, 503, "unavailable"),
    (Damaged, 503, "damaged"),
)


#: Starlette says no more than the status.
_NO_ROUTE = "there is no such route"
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")


class Problem(HTTPException):
    """An answer that is a problem document, raised from wherever it is found; `more` are further members of it."""

    def __init__(self, status: int, rule: str, detail: str, **more: Any) -> None:
        super().__init__(status, detail)
        self.rule = rule
        self.more = more


def problem(status: int, rule: str, detail: str, **more: Any) -> JSONResponse:
    """One problem document: `rule` is for programs, `detail` for people."""
    said = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "rule": rule,
        "detail": detail,
    }
    return JSONResponse(said | more, status, media_type=MEDIA_TYPE)


def add_problems(app: FastAPI) -> None:
    """Have each error of a route answered by its problem document."""
    app.add_exception_handler(BrokerError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


def _ours(request: Request, error: Exception) -> JSONResponse:
    del request
    for family, status, rule in _STATUS:
        if isinstance(error, family):
            rule = getattr(error, "rule", "") or rule
            return problem(status, rule, str(error), **_where(error))
    return problem(500, "error", str(error))


def _where(error: BrokerError) -> dict[str, Any]:
    """What a complaint says of the place that it is about."""
    if not isinstance(error, Invalid):
        return {}
    said = {"field": error.field or None, "index": error.index}
    return {name: value for name, value in said.items() if value is not None}


def _invalid(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    # Of a parameter that is given several times the name is all that was said; a body never comes here.
    where = place(first["loc"][1:2] or first["loc"])
    return problem(400, "invalid", f"{where}: {complaint(first)}", field=where)


def _bug(request: Request, error: Exception) -> JSONResponse:
    """What went wrong is in the log, and no business of whoever asks."""
    del request, error
    return problem(500, "error", "something went wrong here: the log of this server says what")


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, Problem):
        return problem(error.status_code, error.rule, str(error.detail), **error.more)
    rule = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    detail = _NO_ROUTE if error.detail == HTTPStatus.NOT_FOUND.phrase else str(error.detail)
    made: Response = problem(error.status_code, rule, detail)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and request.method == "OPTIONS":
        made = Response(status_code=204)
    made.headers.update(error.headers or {})
    if "allow" in made.headers:
        made.headers["allow"] = _allowed(request)
    return made


def _allowed(request: Request) -> str:
    """The methods of this path: each is a route of its own, which knows nothing of the others."""
    found = {"OPTIONS"} | {method for method in _METHODS if _takes(request, method)}
    return ", ".join(sorted(found | ({"HEAD"} if "GET" in found else set())))


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)
