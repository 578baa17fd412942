"""Children that do not outlive us, even where we are killed."""

from __future__ import annotations

import os
import sys

# Run in the child instead of a preexec_fn, which may deadlock in a process with threads. A parent that died before
# the call sends no signal any more: hence the look at getppid().
_LAUNCHER = """
import os, sys
parent, number, *argv = sys.argv[1:]
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, int(number))
if os.getppid() == int(parent):
    os.execv(argv[0], argv)
"""


def leashed(argv: list[str], number: int) -> list[str]:
    """A command line whose process gets the signal `number` when the thread that started it ends (Linux).

    Elsewhere it is the plain command: there only an orderly end takes the child along.
    """
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), str(int(number)), *argv]
