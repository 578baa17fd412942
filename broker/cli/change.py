"""`broker cancel`, `retry` and `remove`: what a user wishes for a job, or for all jobs that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.bulk import Filter, Verb, wish
from broker.cli.exits import Exit
from broker.cli.options import (
    EngineOption,
    FormatOption,
    NodeOption,
    OptionalKeyArgument,
    OriginOption,
    StateOption,
    YesOption,
)
from broker.cli.output import Format
from broker.cli.said import code_of, named, said
from broker.cli.session import broker
from broker.errors import Invalid, NotFound
from broker.rules.state import FAILED, QUEUED, RUNNING
from broker.text import safe, to_json

if TYPE_CHECKING:
    from broker.client import Broker
    from broker.jobs.outcome import Outcome

ForceOption = Annotated[
    bool, typer.Option("--force", help="At once; a worker that still runs it is fenced off.")
]


def cancel(
    key: OptionalKeyArgument = None,
    state: StateOption = None,
    node: NodeOption = None,
    engine: EngineOption = None,
    origin: OriginOption = None,
    force: ForceOption = False,
    yes: YesOption = False,
    output: FormatOption = Format.table,
) -> None:
    """Ask for a job's end: a queued one ends at once, a running one is told to stop.

    Without KEY: of all jobs that fit the options (and have not ended, unless --state says so), after a question.
    """
    fits = Filter(state, node, engine, origin)
    fits.check(key)
    with broker() as here:
        if key is None:
            verb = Verb(
                "cancel",
                frozenset({QUEUED, RUNNING}),
                lambda here, keys: here.cancel_many(keys, force=force),
            )
            wish(here, verb, fits, output, yes=yes)
        else:
            _tell(here, here.cancel(key, force=force), output)


def remove(
    key: OptionalKeyArgument = None,
    state: StateOption = None,
    node: NodeOption = None,
    engine: EngineOption = None,
    origin: OriginOption = None,
    id: Annotated[
        str | None, typer.Option(metavar="ID", help="With --origin: of every engine and run.")
    ] = None,
    force: ForceOption = False,
    yes: YesOption = False,
    output: FormatOption = Format.table,
) -> None:
    """Take a job off the list, for good: late events do not bring it back. A running one is told to stop first.

    A whole KEY is removed also where no job is known: what is on its way then stays out. Without KEY: all jobs that
    fit the options, after a question; with --origin and --id: this pair, seen or not yet seen.
    """
    fits = Filter(state, node, engine, origin)
    if id is not None:
        if origin is None or key is not None or fits != Filter(origin=origin):
            raise Invalid("--id goes with --origin, and with nothing else that names jobs")
        with broker() as here:
            _tell(here, here.remove_pair(origin, id, force=force), output)
        return
    fits.check(key)
    with broker() as here:
        if key is None:
            wish(
                here,
                Verb("remove", None, lambda here, keys: here.remove_many(keys, force=force)),
                fits,
                output,
                yes=yes,
            )
        else:
            _tell(here, here.remove(key, force=force), output)


def retry(
    key: OptionalKeyArgument = None,
    state: StateOption = None,
    node: NodeOption = None,
    engine: EngineOption = None,
    origin: OriginOption = None,
    yes: YesOption = False,
    output: FormatOption = Format.table,
) -> None:
    """Hand an ended job in again, as a new one with the same payload and options; prints the new key.

    Without KEY: all jobs that fit the options (and failed, unless --state says otherwise), after a question; those that
    were retried before are left out.
    """
    fits = Filter(state, node, engine, origin)
    fits.check(key)
    with broker() as here:
        if key is None:
            wish(
                here,
                Verb("retry", frozenset({FAILED}), lambda here, keys: here.retry_many(keys)),
                fits,
                output,
                yes=yes,
            )
            return
        job = here.retry(key)
        if output is Format.table:
            print(safe(job.key))
        else:
            shown = here.listed(job.key).to_json()
            print(to_json(shown, indent=2 if output is Format.json else None))


def _tell(here: Broker, outcome: Outcome, output: Format) -> None:
    """Print the outcome, and leave by the exit code that it means."""
    meaning = said(outcome.rule)
    if output is not Format.table:
        print(to_json(outcome.to_json(), indent=2 if output is Format.json else None))
    elif outcome.ok:
        if outcome.rule == "desired" and _has_ended(here, outcome.key):
            meaning = "cancelled"
        print(safe(f"{outcome.key} {meaning}"))
    if not outcome.ok:
        line = f"{outcome.key}: {outcome.outcome}: {named(outcome.rule)}"
        raise Exit(code_of(outcome), line)


def _has_ended(here: Broker, key: str) -> bool:
    try:
        return here.get(key).ended
    except NotFound:
        return True
