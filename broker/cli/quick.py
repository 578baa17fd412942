"""`broker show KEY` at once: read and printed before typer, pydantic or redis-py are imported.

It takes the plainest command line and leaves every other one, and every error, to `broker.cli.show`.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.cli.job import print_job
from broker.cli.output import Format
from broker.glance import glance


def show(words: Sequence[str]) -> bool:
    """Show the job if that is plain; whether it was."""
    match list(words):
        case [key]:
            output = "table"
        case [key, "-o" | "--output", output] | ["-o" | "--output", output, key]:
            pass
        case _:
            return False
    if key.startswith("-") or output not in list(Format):
        return False
    found = glance(key)
    if found is None:
        return False
    print_job(found, Format(output))
    return True
