"""Every row, in the order in which they are told: importing a family puts its rows into the table."""

from __future__ import annotations

from tests.chaos import freezing, poison, serving, workers
from tests.chaos.run import ROWS

__all__ = ["ROWS", "freezing", "poison", "serving", "workers"]
