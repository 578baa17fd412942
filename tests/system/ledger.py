"""An engine with an effect that can be counted: it writes down when it begins and when it ends."""

import os
import time

from workers import engine

VARIABLE = "LEDGER"


def note(what, ctx):
    """One line, whole: what is written with O_APPEND in one call is never torn."""
    line = f"{what} {ctx.key} {ctx.attempt} {time.monotonic():.6f}\n"
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


@engine("ledger", slots=2)
def ledger(ctx, payload):
    note("begin", ctx)
    time.sleep(payload["seconds"])
    note("end", ctx)
    return payload["n"] ** 2
