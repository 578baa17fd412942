"""`broker doctor`: the findings of the checkup and of one audit of all that is kept, for people and for scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.cli.exits import ERROR as EXIT_ERROR
from broker.cli.exits import Exit
from broker.cli.options import FormatOption
from broker.cli.output import Columns, Format, note, print_list
from broker.cli.session import broker
from broker.cli.table import Column
from broker.fleet.audits import audit
from broker.fleet.checkup import ERROR, Finding, examine, worst_first

#: How many errors a table shows: thousands of one cause are no news.
ERRORS_SHOWN = 100

_STYLES = {"ok": "good", "warning": "doubt", "error": "bad"}

COLUMNS: Columns = (
    (Column("LEVEL", style=lambda level: _STYLES.get(level, "")), lambda found: found["level"]),
    (Column("TOPIC"), lambda found: found["topic"]),
    (
        Column("FINDING"),
        # Most texts on a key of Redis name it themselves.
        lambda found: (
            found["text"] if found["key"] in found["text"] else f"{found['key']}: {found['text']}"
        ),
    ),
)


def doctor(output: FormatOption = Format.table) -> None:
    """Look for what is wrong with Redis, the fleet and the books; exit code 1 if a finding is an error.

    It reads all that is kept, once, and mends nothing: that is the auditor's, in `broker serve`.
    """
    with broker() as here, _progress() as tell:
        findings = worst_first([*examine(here), *audit(here, tell)])
    errors = sum(finding.level == ERROR for finding in findings)
    shown = findings if output is not Format.table else _few(findings, errors)
    print_list([finding.to_json() for finding in shown], output, COLUMNS, "nothing found")
    if len(shown) < len(findings):
        note(f"and {errors - ERRORS_SHOWN:,} more errors: -o json tells all")
    if errors:
        raise Exit(EXIT_ERROR)


def _few(findings: list[Finding], errors: int) -> list[Finding]:
    return findings[: min(errors, ERRORS_SHOWN)] + findings[errors:]


@contextmanager
def _progress() -> Iterator[Callable[[str, int], None]]:
    """What is looked through, on a terminal; quiet elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _what, _jobs: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.fields[what]}", markup=False)
    with Progress(
        SpinnerColumn(),
        text,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    ) as progress:
        task = progress.add_task("", total=None, what="")
        yield lambda what, jobs: progress.update(task, what=_looked_at(what, jobs))


def _looked_at(what: str, jobs: int) -> str:
    return f"{what}, {jobs:,} jobs" if jobs else what
