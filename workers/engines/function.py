"""The engine of a Python function, plain or `async`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workers.context import Context


@dataclass(frozen=True, slots=True)
class FunctionEngine:
    """Calls `function(ctx, payload)`; a coroutine is run to its end."""

    function: Callable[[Context, Any], Any]

    def run(self, context: Context, payload: Any) -> Any:
        returned = self.function(context, payload)
        return asyncio.run(returned) if inspect.iscoroutine(returned) else returned
