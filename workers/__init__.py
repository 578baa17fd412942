"""What executes submitted jobs: engines, and the RQ worker that runs them.

The public API for whoever writes an engine:

    from workers import engine

    @engine("thumbnail", slots=2)
    def thumbnail(ctx, payload):
        ctx.progress(0.5)
        return {"width": 120}

`Worker` is a worker class for RQ (`rq worker -w workers.Worker QUEUE`); it is imported when it is first asked for,
so that a module of engines stays cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers.context import Context
from workers.engine import Engine, EngineSpec, Permanent
from workers.registry import engine

if TYPE_CHECKING:
    from workers.worker import Worker

__all__ = [  # noqa: RUF022 - grouped: it reads as a table of contents
    # Writing an engine
    "engine",
    "Context",
    "Permanent",
    # Bringing a new kind of engine
    "Engine",
    "EngineSpec",
    # Running them
    "Worker",
]


def __getattr__(name: str) -> Any:
    if name != "Worker":
        raise AttributeError(f"module 'workers' has no attribute {name!r}")
    from workers.worker import Worker

    return Worker
