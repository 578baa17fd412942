"""Logging of everything that runs: stdlib loggers, structlog as their formatter, one line for each record, to stderr.

structlog's own loggers keep a lock that survives a fork in whatever state it was, and would hang a horse; the standard
library resets its locks in the child. Ids and errors come from outside: no line obeys a terminal.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from broker.text import safe

#: The logger that is told each change of a job.
JOBS = "broker.jobs"


def set_up_logs(level: str, form: str) -> None:
    """`level` as in BROKER_LOG_LEVEL; `form` is `text` or `json` (BROKER_LOG_FORMAT)."""
    shared: list[Any] = [
        _safe,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        _safe_values,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any
    if form == "json":
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,
            sort_keys=False,
        )
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("rq").setLevel(logging.WARNING)  # it tells of each job in three lines


def hush_jobs(level: str) -> None:
    """Tell no change of a job at this `level`, unless it is `debug`: on a terminal they bury all else."""
    if level != "debug":
        logging.getLogger(JOBS).setLevel(logging.WARNING)


def _safe(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    del logger, method
    event["event"] = safe(event["event"])
    return event


def _safe_values(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    del logger, method
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = safe(value)
    return event
