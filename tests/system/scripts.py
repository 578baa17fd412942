"""The Python files beside the scripts, for tests: as modules, the way the scripts themselves import them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


def load(name: str) -> ModuleType:
    """`scripts/<name>.py` as a module."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(name)
