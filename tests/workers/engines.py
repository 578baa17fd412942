"""Engines that behave and misbehave, for workers in processes of their own."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from workers import Permanent, engine


@engine("echo", slots=2)
def echo(ctx, payload):
    assert ctx.payload == payload
    return {"echo": payload, "attempt": ctx.attempt, "tries": ctx.tries, "model": ctx.model}


@engine("talk")
def talk(ctx, payload):
    ctx.write("hello ")
    ctx.progress(0.5)
    ctx.write(b"w\xc3\xb6rld")
    ctx.progress(1)
    print("printed")


@engine("later")
async def later(ctx, payload):
    return "later"


@engine("raise")
def fail(ctx, payload):
    raise ValueError(payload)


@engine("flaky")
def flaky(ctx, payload):
    if ctx.tries < payload:
        raise OSError("not yet")
    return ctx.tries


@engine("permanent")
def permanent(ctx, payload):
    raise Permanent("no way")


@engine("exit")
def leave(ctx, payload):
    os._exit(payload)


@engine("sysexit")
def sysexit(ctx, payload):
    sys.exit("enough")


@engine("late-import")
def late_import(ctx, payload):
    import a_module_that_is_not_there  # noqa: F401


@engine("not-json")
def not_json(ctx, payload):
    return object()


@engine("huge")
def huge(ctx, payload):
    return "x" * payload


def _mark(payload):
    if payload:
        draft = Path(f"{payload}.draft")
        draft.write_text(str(os.getpid()))
        draft.rename(payload)  # whoever is killed here leaves no empty mark


@engine("polite")
def polite(ctx, payload):
    """Runs until it is asked to end."""
    _mark(payload)
    while not ctx.cancelled:
        time.sleep(0.01)
    return "never told"


@engine("stubborn")
def stubborn(ctx, payload):
    """Runs for ten minutes, and looks at nothing."""
    _mark(payload)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


@engine("nap")
def nap(ctx, payload):
    time.sleep(payload)
    return "rested"


@engine("held")
def held(ctx, payload):
    """Runs until there is a file that lets it go; its process ends without a word where it `dies`."""
    _mark(payload["mark"])
    while not Path(payload["go"]).exists():
        time.sleep(0.01)
    if payload.get("dies"):
        os._exit(0)
    return "let go"


@engine("grip")
def grip(ctx, payload):
    """Holds the interpreter's lock in C until somebody opens the FIFO: no other thread of its process runs."""
    os.close(ctypes.PyDLL(None).open(os.fsencode(payload), os.O_RDONLY))


@engine("litter")
def litter(ctx, payload):
    """Ends well, and leaves a child behind."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
        os._exit(0)
    return pid


@engine("alone", slots=2)
def alone(ctx, payload):
    """Notes how many of its kind run at the same time on a node."""
    folder = Path(payload)
    mine = folder / str(os.getpid())
    mine.touch()
    time.sleep(0.05)
    seen = len(list(folder.iterdir()))
    mine.unlink()
    return seen


@engine("path")
def path(ctx, payload):
    return sys.path
