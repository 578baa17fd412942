"""The fork: how a horse comes to life, and how it leaves."""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from workers.pulse import Pulse, Watch
from workers.system import die_with_parent

log = logging.getLogger("workers")

_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def fork(watch: Watch, pulse: Pulse, ride: Callable[[], None]) -> int:
    """Fork a horse that does `ride` and ends; give its pid.

    It leads a process group of its own and dies with us. Signals to stop wait until both sides know who they are: a
    horse must not run its parent's handlers, nor a parent forget the horse it just made.
    """
    _flush()
    parent = os.getpid()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with pulse.still():
            pid = os.fork()
            if pid == 0:
                _live(parent, mask, ride)
            with suppress(OSError):  # the horse does the same: whoever comes first
                os.setpgid(pid, pid)
            watch.forked(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return pid


def _live(parent: int, mask: set[int | signal.Signals], ride: Callable[[], None]) -> None:
    """In the child; never returns."""
    status = 1
    try:
        os.setpgrp()
        die_with_parent(parent)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        random.seed()
        ride()
        status = 0
    except BaseException:
        log.exception("process %d: failed", os.getpid())
    finally:
        _flush()
        os._exit(status)


def _flush() -> None:
    """What an engine printed must neither be lost at `_exit` nor be printed twice after a fork."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
