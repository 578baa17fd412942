"""Engines for chaos: each notes in the ledger that it began, and that it ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from tests.chaos.effects import note
from workers import engine


@engine("work")
def work(ctx, payload):
    """Works for `payload` seconds; stops when it is asked to."""
    note("begin", ctx.key, ctx.attempt)
    until = time.monotonic() + float(payload or 0)
    while time.monotonic() < until and not ctx.cancelled:
        time.sleep(0.005)
    note("end", ctx.key, ctx.attempt)
    return {"attempt": ctx.attempt}


@engine("deaf")
def deaf(ctx, payload):
    """Works for `payload` seconds and looks at nothing."""
    note("begin", ctx.key, ctx.attempt)
    time.sleep(float(payload))
    note("end", ctx.key, ctx.attempt)
    return {"attempt": ctx.attempt}


@engine("held")
def held(ctx, payload):
    """Works until there is such a file, and looks at nothing else."""
    note("begin", ctx.key, ctx.attempt)
    while not Path(payload).exists():
        time.sleep(0.005)
    note("end", ctx.key, ctx.attempt)
    return {"attempt": ctx.attempt}


@engine("blocked")
def blocked(ctx, payload):
    """Holds the interpreter's lock in C for `payload` seconds: no other thread of its process runs."""
    note("begin", ctx.key, ctx.attempt)
    ctypes.PyDLL(None).usleep(int(float(payload) * 1_000_000))
    note("end", ctx.key, ctx.attempt)
    return {"attempt": ctx.attempt}


@engine("deadly")
def deadly(ctx, payload):
    """Ends its own process, in the way that `payload` says; lives where it says nothing."""
    note("begin", ctx.key, ctx.attempt)
    if payload == "exit":
        os._exit(1)
    elif payload == "exit0":
        os._exit(0)
    elif payload == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif payload == "parent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    elif payload == "memory":
        _take_all_memory(512 * 2**20)
    elif payload == "segfault":
        ctypes.string_at(0)
    return {"attempt": ctx.attempt}


def _take_all_memory(most):
    """Take memory until there is none, then end as whoever asks for more: killed. The kernel would do it too late."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    taken = []
    try:
        while True:
            taken.append(bytearray(2**20))
    except MemoryError:
        os.kill(os.getpid(), signal.SIGKILL)
