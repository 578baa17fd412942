"""`broker wait` and `broker result`: a job's end, as an exit code and as JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.exits import JOB_FAILED, NOT_FOUND, Exit
from broker.cli.options import FormatOption, KeyArgument
from broker.cli.output import Format
from broker.cli.session import broker, check_seconds
from broker.errors import JobFailed
from broker.rules.state import COMPLETED
from broker.text import block, safe, to_json

if TYPE_CHECKING:
    from broker.client import Broker
    from broker.rules.key import Key


def wait(
    key: KeyArgument,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Give up then, with exit code 5.")
    ] = None,
    output: FormatOption = Format.table,
) -> None:
    """Wait for a job's end: 0 completed, 7 failed or cancelled, 3 removed or lost, 5 timed out. A guess is no end.

    A Redis that is restarted meanwhile is waited for; 6 where it stays away for a minute, or beyond --timeout.
    """
    check_seconds(timeout, "timeout")
    with broker() as here:
        await_end(here, here.find(key), timeout, output)


def await_end(here: Broker, key: Key, timeout: float | None, output: Format) -> None:
    """Wait, print the end, and leave by its exit code."""
    record = here.wait(key, timeout)
    if record is None:
        raise Exit(NOT_FOUND, f"{key} was removed")
    if output is Format.table:
        print(record.state)
    else:
        from broker.rules.record import to_json as record_json

        shown = record_json(key, record) | {"suspect": False}
        print(to_json(shown, indent=2 if output is Format.json else None))
    if record.state != COMPLETED:
        why = record.error or record.reason
        raise Exit(JOB_FAILED, f"{key} {record.state}" + (f": {why}" if why else ""))


def result(key: KeyArgument) -> None:
    """Print a job's result as JSON. 4: it has not ended; 7: it failed or was cancelled; 3: the result is gone."""
    with broker() as here:
        try:
            found = here.result(key)
        except JobFailed as failed:
            sys.stdout.flush()
            # The whole error, line for line: a traceback on one line helps nobody.
            head, *more = str(failed).splitlines() or [""]
            print(f"broker: {safe(head)}", *map(block, more), sep="\n", file=sys.stderr)
            raise Exit(JOB_FAILED) from None
    print(to_json(found, indent=2))
