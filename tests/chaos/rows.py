"""Every row, in the order in which they are told: importing a family puts its rows into the table."""

from __future__ import annotations

from tests.chaos import (
    cancels,
    damage,
    freezing,
    leaders,
    poison,
    removals,
    repeats,
    servers,
    serving,
    sweeps,
    watchers,
    workers,
)
from tests.chaos.run import ROWS

__all__ = [
    "ROWS",
    "cancels",
    "damage",
    "freezing",
    "leaders",
    "poison",
    "removals",
    "repeats",
    "servers",
    "serving",
    "sweeps",
    "watchers",
    "workers",
]
