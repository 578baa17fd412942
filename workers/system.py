"""What we ask of the kernel: children that die with their parent, and a kill that hits only what it should."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator

_PR_SET_PDEATHSIG = 1

#: Loaded at import: what runs between a fork and an exec must not load anything.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

#: The signals whose handlers raise: orders to end, and RQ's alarm.
_RAISING = {signal.SIGTERM, signal.SIGINT, signal.SIGALRM}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let signals whose handlers raise wait until the end of this.

    It holds for this thread, and those that start within it: Python runs handlers in the main thread whichever thread
    got the signal, so that all others must have been started so.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _RAISING)  # raises what came just before
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that made it ends (Linux; elsewhere nothing happens).

    `parent` is the pid that must still be our parent: where it died before we could ask, no signal will come.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def kill_group(pid: int) -> None:
    """Kill a child and the group that it leads.

    The caller must hold the child unreaped, so that the number still names it. A child that leads no group is killed
    alone: right after a fork it is still in *our* group, and a kill of that would take the whole fleet along.
    """
    if pid <= 1:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
