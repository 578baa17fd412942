"""Waiting for Redis to come back, or for what it holds to be mended."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from broker.errors import BrokerError, Unavailable

#: The longest pause between two calls, in seconds.
PAUSE_SECONDS_MAX = 1.0

Value = TypeVar("Value")


def patiently(
    call: Callable[[], Value],
    seconds: float,
    *,
    through: tuple[type[BrokerError], ...] = (Unavailable,),
) -> Value:
    """Call until Redis takes it; raises what it met when `seconds` are over. Only for calls that may repeat.

    `through`: the errors that pass. Damaged is one where the auditor mends what is in the way.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except through:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(left, random.uniform(0.1, PAUSE_SECONDS_MAX)))
