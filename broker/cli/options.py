"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.output import Format
from broker.errors import Invalid
from broker.rules.state import STATES

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="origin/engine/run/id, or an end that one job has.")
]
OptionalKeyArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="KEY", help="origin/engine/run/id, or an end that one job has.", show_default=False
    ),
]
StateOption = Annotated[
    str | None, typer.Option(metavar="|".join(STATES), help="A guess counts as what it was.")
]
NodeOption = Annotated[str | None, typer.Option(metavar="NODE", help="Placed or running there.")]
EngineOption = Annotated[str | None, typer.Option(metavar="ENGINE", help="Of this engine.")]
OriginOption = Annotated[
    str | None, typer.Option(metavar="ORIGIN", help="Submitted or reported from there.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Many jobs: do not ask.")]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", metavar="table|json|jsonl", help="How to print it.")
]


def check_state(state: str | None) -> None:
    """Raise Invalid for what is no state."""
    if state is not None and state not in STATES:
        raise Invalid(f"state {state!r} is none of {', '.join(STATES)}")
