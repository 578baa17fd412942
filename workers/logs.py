"""Logging of worker processes: stdlib loggers only, structlog as the formatter.

structlog's own loggers keep a lock for each file that survives a fork in whatever state it was; the standard library
resets its locks in the child.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from workers.text import plain


def set_up(level: str, form: str) -> None:
    """One line for each record, to stderr: `form` is `text` or `json`."""
    shared: list[Any] = [
        _plain,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Any
    if form == "json":
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
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


def _plain(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Ids of jobs come from outside: whatever a line tells, it obeys no terminal."""
    del logger, method
    event["event"] = plain(str(event["event"]))
    return event
