"""The engines that `broker up` offers where none are configured: enough to try everything with."""

from __future__ import annotations

import threading
from typing import Any

from workers.context import Context
from workers.engine import EngineSpec, Permanent
from workers.engines.process import ProcessEngine
from workers.registry import engine, register

#: How often a sleeping job looks whether it is to end, in seconds.
LOOK_SECONDS = 0.1


@engine("echo")
def echo(ctx: Context, payload: Any) -> Any:
    """Give back what was handed in."""
    del ctx
    return payload


@engine("sleep")
def sleep(ctx: Context, payload: Any) -> dict[str, float]:
    """Take `seconds` of time, with progress; ends early when it is cancelled."""
    seconds = payload.get("seconds", 1) if isinstance(payload, dict) else payload
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= 86_400
    ):
        raise Permanent('sleep takes {"seconds": 0 to 86400}')
    slept, clock = 0.0, threading.Event()
    while slept < seconds and not ctx.cancelled:
        pause = min(LOOK_SECONDS, seconds - slept)
        clock.wait(pause)
        slept += pause
        ctx.progress(slept / seconds)
    return {"slept": round(slept, 3)}


register(
    EngineSpec(
        "checksum",
        ProcessEngine.from_table("checksum", {"argv": ["sha256sum", "--", "{path}"]}),
        1,
        "workers.demo",
    )
)
