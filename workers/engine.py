"""What an engine is, and the two ways in which it may end other than by returning or failing.

It knows neither RQ nor the broker: a unit test of an engine needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from workers.context import Context


class Permanent(Exception):
    """Raise it in an engine where another try would not help: the job fails at once, whatever tries are left.

    An exception of your own with `retryable = False` is taken the same way.
    """

    retryable = False


class Stopped(Exception):
    """An engine ended because it was asked to (`ctx.cancelled`): no failure of its own."""


class Engine(Protocol):
    """What runs jobs. One instance serves many jobs, one at a time, each in a fresh process."""

    def run(self, context: Context, payload: Any) -> Any:
        """Do the job and return JSON-able data of at most 1 MiB, or raise.

        Any exception is a failure that may be tried again, but for `Permanent`. An engine that sees
        `context.cancelled` ends soon, by return or by raise: a few seconds later its process is killed.
        """


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """An engine under the name by which jobs ask for it."""

    name: str
    engine: Engine
    slots: int = 1  #: jobs at a time on a node, where `broker worker --slots` does not say
    source: str = ""  #: where it was defined, for error messages
