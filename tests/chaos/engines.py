"""Engines for chaos: each notes in the ledger that it began, and that it ended."""

from __future__ import annotations

import ctypes
import os
import signal
import time

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


@engine("blocked")
def blocked(ctx, payload):
    """Holds the interpreter's lock in C for `payload` seconds: no other thread of its process runs."""
    note("begin", ctx.key, ctx.attempt)
    ctypes.PyDLL(None).usleep(int(float(payload) * 1_000_000))
    note("end", ctx.key, ctx.attempt)
    return {"attempt": ctx.attempt}


@engine("deadly")
def deadly(ctx, payload):
    """Ends its own process, in the way that `payload` says."""
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
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (512 * 2**20, 512 * 2**20))
        _ = [bytearray(2**20) for _ in range(4_096)]
        # The allocator gave up instead of the kernel: what a killed process is, without its exception.
        os._exit(137)
    elif payload == "segfault":
        ctypes.string_at(0)
