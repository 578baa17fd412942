"""The Python files beside the scripts, for tests: as modules, the way the scripts themselves import them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"


def load(folder: str, name: str) -> ModuleType:
    """`scripts/<folder>/<name>.py` as a module."""
    if str(SCRIPTS / folder) not in sys.path:
        sys.path.append(str(SCRIPTS / folder))
    return importlib.import_module(name)
