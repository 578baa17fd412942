"""The connection of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import Invalid

if TYPE_CHECKING:
    from broker.client import Broker


def broker(node: str | None = None) -> Broker:
    """A client on the Redis that is meant, as a context manager."""
    from broker.client import Broker

    return Broker.from_url(node=node)


def check_seconds(value: float | None, name: str) -> float | None:
    """A length of time in seconds; `nan` and `inf` are none."""
    if value is not None and not 0 <= value < float("inf"):
        raise Invalid(f"{name} must be a number of seconds, not {value}")
    return value
