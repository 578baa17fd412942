"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.output import Format

KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="origin/engine/run/id, or an end that one job has.")
]
FormatOption = Annotated[
    Format, typer.Option("--output", "-o", metavar="table|json|jsonl", help="How to print it.")
]
