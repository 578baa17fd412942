"""`broker cancel`, `retry` and `remove`: what a user wishes for a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.exits import ERROR, NOT_FOUND, REFUSED, UNKNOWN_RULES, USAGE, Exit
from broker.cli.options import FormatOption, KeyArgument
from broker.cli.output import Format
from broker.cli.session import broker
from broker.errors import Invalid, NotFound
from broker.text import safe, to_json

if TYPE_CHECKING:
    from broker.client import Broker
    from broker.outcome import Outcome

ForceOption = Annotated[
    bool, typer.Option("--force", help="At once; a worker that still runs it is fenced off.")
]

#: What a rule means to who asked.
_SAID = {
    "desired": "asked to stop",
    "no_change": "was asked before",
    "removed": "removed",
    "remove_requested": "asked to stop; it is removed when it has ended",
    "seen": "was removed before",
    "too_late": "it has ended already",
    "not_ours": "it is reported: only its origin can end it",
    "older_generation": "a newer job of this identity is there",
    "unknown": "no such job is known",
    "tombstoned": "it was removed",
}


def cancel(
    key: KeyArgument, force: ForceOption = False, output: FormatOption = Format.table
) -> None:
    """Ask for a job's end: a queued one ends at once, a running one is told to stop."""
    with broker() as here:
        outcome = here.cancel(key, force=force)
        _tell(here, outcome, output)


def remove(
    key: Annotated[str | None, typer.Argument(metavar="[KEY]")] = None,
    origin: Annotated[
        str | None, typer.Option(metavar="ORIGIN", help="With --id: of every engine and run.")
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="ID")] = None,
    force: ForceOption = False,
    output: FormatOption = Format.table,
) -> None:
    """Take a job off the list, for good: late events do not bring it back. A running one is told to stop first.

    A whole KEY is removed also where no job is known: what is on its way then stays out.
    """
    broad = origin is not None or id is not None
    if broad == (key is not None) or (broad and None in (origin, id)):
        raise Invalid("name a KEY, or --origin and --id")
    with broker() as here:
        if key is not None:
            outcome = here.remove(key, force=force)
        else:
            outcome = here.remove_pair(origin or "", id or "", force=force)
        _tell(here, outcome, output)


def retry(key: KeyArgument, output: FormatOption = Format.table) -> None:
    """Hand an ended job in again, as a new one with the same payload and options; prints the new key."""
    with broker() as here:
        job = here.retry(key)
        if output is Format.table:
            print(safe(job.key))
        else:
            shown = here.listed(job.key).to_json()
            print(to_json(shown, indent=2 if output is Format.json else None))


def _tell(here: Broker, outcome: Outcome, output: Format) -> None:
    """Print the outcome, and leave by the exit code that it means."""
    said = _SAID.get(outcome.rule, outcome.rule)
    if output is not Format.table:
        print(to_json(outcome.to_json(), indent=2 if output is Format.json else None))
    elif outcome.ok:
        if outcome.rule == "desired" and _has_ended(here, outcome.key):
            said = "cancelled"
        print(safe(f"{outcome.key} {said}"))
    if outcome.ok:
        return
    code = ERROR if outcome.outcome == "error" else REFUSED
    if outcome.rule in UNKNOWN_RULES:
        code = NOT_FOUND
    elif outcome.rule == "invalid":
        code = USAGE
    line = said if said == outcome.rule else f"{said} ({outcome.rule})"
    raise Exit(code, f"{outcome.key}: {outcome.outcome}: {line}")


def _has_ended(here: Broker, key: str) -> bool:
    try:
        return here.get(key).ended
    except NotFound:
        return True
