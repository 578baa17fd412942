"""The OpenAPI document: what FastAPI makes of the routes, made true. What the guard answers stands with every route."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from broker.web import models
from broker.web.answers import told
from broker.web.auth import needs_no_token

_OPERATIONS = ("get", "post", "put", "patch", "delete")
_READING = ("get",)


def add_openapi(app: FastAPI) -> None:
    """Have `/openapi.json` tell of every answer, ours to wrong requests (400) instead of FastAPI's own (422)."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_made(FastAPI.openapi(app)))
        return made

    app.openapi = openapi  # type: ignore[method-assign]


def _made(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = models.Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, method, operation in _operations(document):
        answers = operation["responses"]
        answers.pop("422", None)
        for status, answer in told(*_guarded(path, method, operation)).items():
            answers.setdefault(str(status), answer)
        if not needs_no_token(path):
            operation["security"] = [{"token": []}, {}]
        operation["responses"] = dict(sorted(answers.items()))
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in _OPERATIONS:
            if method in item:
                yield path, method, item[method]


def _guarded(path: str, method: str, operation: dict[str, Any]) -> set[int]:
    """What may be answered before the route is asked: by its headers, and by who else is here."""
    found = {400, 421, 503}
    if not needs_no_token(path) or method not in _READING:
        found.add(401)
    if method not in _READING:
        found |= {403, 415}
    if "requestBody" in operation:
        found |= {408, 413}
    return found
