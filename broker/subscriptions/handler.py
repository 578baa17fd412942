"""A subscriber's handler: what may be one, and why it failed on an event.

It knows nothing of what follows from a failure.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable

from broker.errors import Invalid
from broker.subscriptions.delivery import Delivery

Handler = Callable[[Delivery], object]

_log = logging.getLogger(__package__)


def check_function(what: str, function: object) -> None:
    """Raise Invalid where it is no function, or one whose call only makes what somebody else must run."""
    if not callable(function):
        raise Invalid(f"{what} must be a function, not {function!r}")
    if is_coroutine_function(function):
        raise Invalid(f"{what} is a coroutine function: AsyncSubscription takes one")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Invalid(f"{what} is a generator function: calling it does nothing")


def check_coroutine_function(what: str, function: object) -> None:
    """Raise Invalid where it is anything but a coroutine function."""
    if not is_coroutine_function(function):
        raise Invalid(f"{what} must be a coroutine function, not {function!r}")


def is_coroutine_function(function: object) -> bool:
    """Whether calling it gives a coroutine: an `async def`, a partial of one, or an object with such a `__call__`."""
    call = getattr(function, "__call__", None)  # noqa: B004 - what it is matters, not whether it is
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def try_on(handler: Handler, delivery: Delivery, group: str) -> str:
    """Call the handler: why it failed, empty where it did not."""
    try:
        answer = handler(delivery)
        if inspect.isawaitable(answer) or inspect.isgenerator(answer) or inspect.isasyncgen(answer):
            if inspect.iscoroutine(answer):
                answer.close()  # else Python warns of it, too
            raise TypeError(f"the handler gave a {type(answer).__name__}, which nobody runs")
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its failure
        _log.warning(
            "group %s: the handler failed on %s of %s, try %d",
            group, delivery.rev, delivery.origin, delivery.tries, exc_info=error,
        )  # fmt: skip
        return f"{type(error).__name__}: {_text(error)}"
    return ""


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001 - an error that cannot even be told is a failure all the same
        return f"(its text cannot be told: {type(worse).__name__})"
