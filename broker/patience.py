"""Waiting for Redis to come back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from broker.errors import Unavailable

#: The longest pause between two calls, in seconds.
PAUSE_SECONDS_MAX = 1.0

Value = TypeVar("Value")


def patiently(call: Callable[[], Value], seconds: float) -> Value:
    """Call until Redis takes it; raises its Unavailable when `seconds` are over. Only for calls that may repeat."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except Unavailable:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(left, random.uniform(0.1, PAUSE_SECONDS_MAX)))
