"""The application: every route, without the guard in front of it (`server.py` adds that)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

import broker
from broker.web import auth, docs, events, fleet, health, jobs, metrics, pages, watch
from broker.web.auth import Gate
from broker.web.health import Vitals
from broker.web.hub import Hub
from broker.web.metrics import Meter
from broker.web.openapi import add_openapi
from broker.web.paths import KeyPaths
from broker.web.problems import add_problems

#: Each holds the routes of one subject.
PARTS = (jobs, fleet, watch, events, health, metrics, auth, docs, pages)


def create_app(hub: Hub, gate: Gate | None = None) -> FastAPI:
    """The routes of one HTTP server, and the state that they share."""
    app = FastAPI(
        title="fleet-broker",
        version=version("fleet-broker"),
        description=broker.__doc__ or "",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.hub = hub
    app.state.gate = gate or Gate()
    app.state.vitals = Vitals(hub.broker)
    app.state.meter = Meter(hub)
    add_problems(app)
    for part in PARTS:
        app.include_router(part.router)
    pages.add_missing(app)
    add_openapi(app)
    app.add_middleware(KeyPaths)
    return app


def methods_of(app: FastAPI) -> frozenset[str]:
    """Every method that some route takes."""
    return frozenset(_methods(app.router))


def _methods(router: Any) -> Iterator[str]:
    for route in router.routes:
        inner = getattr(route, "original_router", None)  # a router that was included
        yield from _methods(inner) if inner is not None else route.methods
