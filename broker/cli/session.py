"""The connection of a command."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.errors import Invalid
from broker.text import safe

if TYPE_CHECKING:
    from broker.client import Broker


class _Remark(logging.Formatter):
    """A line of a log as a command's remark; most commands set up no log, and the last resort would print it bare."""

    def format(self, record: logging.LogRecord) -> str:
        return safe(f"broker: {record.levelname.lower()}: {record.getMessage()}")


def broker(node: str | None = None) -> Broker:
    """A client on the Redis that is meant, as a context manager."""
    from broker.client import Broker

    if logging.lastResort:
        logging.lastResort.setFormatter(_Remark())
    return Broker.from_url(node=node)


def check_seconds(value: float | None, name: str) -> float | None:
    """A length of time in seconds; `nan` and `inf` are none."""
    if value is not None and not 0 <= value < float("inf"):
        raise Invalid(f"{name} must be a number of seconds, not {value}")
    return value
