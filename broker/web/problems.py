"""Errors as problem documents (RFC 9457): one place that knows which family of ours is which HTTP status."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from broker.errors import (
    BrokerError,
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
    (Unavailable, 503, "unavailable"),
    (Damaged, 503, "damaged"),
)


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
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    return problem(400, "invalid", f"{where}: {first['msg']}", field=where)


def _http(request: Request, error: Exception) -> JSONResponse:
    del request
    assert isinstance(error, HTTPException)
    if isinstance(error, Problem):
        return problem(error.status_code, error.rule, str(error.detail), **error.more)
    rule = HTTPStatus(error.status_code).phrase.lower().replace(" ", "_")
    made = problem(error.status_code, rule, str(error.detail))
    made.headers.update(error.headers or {})
    return made
