"""The engines of this process, by name: those of `@engine`, and those of the configuration file.

A name is given once. Whoever asks for an unknown one is told which are known.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import broker
from broker import Invalid, Misconfigured
from workers.engine import Engine, EngineSpec
from workers.engines.function import FunctionEngine
from workers.engines.process import ProcessEngine

#: More slots for one engine on one node are a slip of the keyboard.
SLOTS_MAX = 1024

_TYPES = {"process": ProcessEngine.from_table}

_specs: dict[str, EngineSpec] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


def engine(name: str, *, slots: int = 1) -> Callable[[Function], Function]:
    """Register a function `(ctx, payload) -> JSON-able data` as the engine `name`; it stays callable as it is."""

    def decorate(function: Function) -> Function:
        source = f"{function.__module__}.{function.__qualname__}"
        register(EngineSpec(name, FunctionEngine(function), slots, source))
        return function

    return decorate


def register(spec: EngineSpec) -> None:
    """Add an engine. Raises Misconfigured where the name is taken by another, or a part is out of bounds."""
    if "\0" in spec.name:
        raise Misconfigured(
            f"engine {spec.name!r}: its name holds a NUL, which no command line can"
        )
    try:
        broker.Key.of("any", spec.name, "", "any")
    except Invalid as wrong:
        raise Misconfigured(f"engine {spec.name!r} ({spec.source}): {wrong}") from None
    if isinstance(spec.slots, bool) or not 1 <= spec.slots <= SLOTS_MAX:
        raise Misconfigured(
            f"engine {spec.name!r} ({spec.source}): slots must be 1 to {SLOTS_MAX}, not {spec.slots}"
        )
    known = _specs.get(spec.name)
    if known and known.source != spec.source:  # the same source again is a module loaded anew
        raise Misconfigured(
            f"engine {spec.name!r} is defined twice: by {known.source} and by {spec.source}"
        )
    _specs[spec.name] = spec


def find(name: str) -> EngineSpec:
    """The engine of that name. Raises Misconfigured, naming the known ones."""
    try:
        return _specs[name]
    except KeyError:
        known = ", ".join(sorted(_specs)) or "none"
        raise Misconfigured(
            f"engine {name!r} is not known here (known: {known}): define it in the configuration "
            "file, or name its module with --import"
        ) from None


def load(imports: Iterable[str] = ()) -> dict[str, EngineSpec]:
    """Import the modules that define engines, read the configuration file, and give all engines by name.

    The working directory is appended to the path, never prepended: a user's own `workers` package cannot shadow
    ours. Raises Misconfigured where a module or table cannot be read.
    """
    here = os.getcwd()  # noqa: PTH109 - the path is text
    if here not in sys.path:
        sys.path.append(here)
    for module in imports:
        _import(module)
    for name, table in broker.engines().items():
        try:
            register(_of_table(name, table))
        except Misconfigured as wrong:
            raise Misconfigured(f"{broker.config_path()}: {wrong}") from None
    return dict(_specs)


def _of_table(name: str, table: broker.Engine) -> EngineSpec:
    make = _TYPES.get(table.type)
    if make is None:
        raise Misconfigured(
            f"engines.{name}: type {table.type!r} is not known (known: {', '.join(_TYPES)})"
        )
    made: Engine = make(name, table.model_extra or {})
    return EngineSpec(name, made, table.slots, f"the table engines.{name}")


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except Misconfigured:
        raise
    except Exception as wrong:
        line = " ".join(f"{type(wrong).__name__}: {wrong}".split())[:300]
        raise Misconfigured(f"cannot import {module}: {line}") from wrong
