"""The application: every route, behind one guard."""

from __future__ import annotations

from fastapi import FastAPI

import broker
from broker.web import events, fleet, health, jobs, metrics, pages, watch
from broker.web.body import Drain
from broker.web.hub import Hub
from broker.web.openapi import add_openapi
from broker.web.paths import KeyPaths
from broker.web.problems import add_problems


def create_app(hub: Hub) -> FastAPI:
    """All that one HTTP server answers."""
    app = FastAPI(title="fleet-broker", description=broker.__doc__ or "")
    app.state.hub = hub
    add_problems(app)
    for part in (jobs, fleet, watch, events, health, metrics, pages):
        app.include_router(part.router)
    add_openapi(app)
    app.add_middleware(KeyPaths)
    app.add_middleware(Drain)  # the last one added is the outermost: also what is refused early is heard
    return app
