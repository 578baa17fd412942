"""`broker report`: events as JSONL in, outcomes as JSONL out, one for each, in order."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from broker.cli.exits import ERROR, Exit
from broker.cli.lines import batches, opened
from broker.cli.output import note
from broker.cli.session import broker
from broker.errors import Invalid, Malformed, Unavailable
from broker.jobs.outcome import Outcome
from broker.jobs.reporting import WINDOW, Reporter
from broker.rules.jsonl import LINE_BYTES_MAX
from broker.rules.wire import parse_line
from broker.text import to_json


def report(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="JSONL; - is stdin.")] = "-",
) -> None:
    """Tell what happened to jobs that run elsewhere: one event a line, one outcome a line, in order.

    An outcome is {"key","outcome","rule","rev"}. A line that is no event is named by its number on stderr and
    answered with outcome "error", rule "malformed" and its "line"; the rest goes on. Blank lines are counted, not
    answered. Exit code 1 if any line was malformed or answered with an error, else 0: a refused event is handled.
    """
    with broker() as here, opened(file) as source, _progress(source) as advance:
        reporter = here.reporter()
        failed = answered = 0
        for batch in batches(source, WINDOW, LINE_BYTES_MAX):
            malformed = _add(reporter, batch)
            try:
                outcomes = reporter.flush()
            except Unavailable as lost:
                raise Unavailable(
                    f"{lost}; answered up to line {answered}: send the rest again"
                ) from lost
            lines = []
            for place, outcome in enumerate(outcomes):
                shown: dict[str, object] = dict(outcome.to_json())
                if place in malformed:
                    shown["line"] = malformed[place]
                failed += outcome.outcome == "error"
                lines.append(to_json(shown))
            answered = batch[-1][0]
            _write(lines, answered)
            advance(len(batch), sum(len(line) + 1 for _, line in batch))
    if failed:
        raise Exit(ERROR)


def _add(reporter: Reporter, batch: list[tuple[int, bytes]]) -> dict[int, int]:
    """Hand a batch over; give place among the outcomes -> line number of those that are no events."""
    malformed = {}
    place = 0
    for number, line in batch:
        if not line.strip():
            continue
        try:
            reporter.add(parse_line(line))
        except Malformed as wrong:
            note(f"broker: line {number}: {wrong}")
            reporter.add(Outcome("", "error", "malformed"))
            malformed[place] = number
        except Invalid as wrong:
            note(f"broker: line {number}: refused: {wrong}")
            reporter.add(Outcome(wrong.key, "refused", "invalid"))
        place += 1
    return malformed


def _write(lines: list[str], answered: int) -> None:
    if not lines:
        return
    try:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise Exit(ERROR, f"nobody reads the outcomes: stopped after line {answered}") from None


@contextmanager
def _progress(source: int) -> Iterator[Callable[[int, int], None]]:
    """How far it is, on a terminal that shows nothing else."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _lines, _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    status = os.fstat(source)
    total = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = TextColumn("{task.fields[lines]:,} events"), BarColumn(), TimeElapsedColumn()
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    ) as progress:
        task = progress.add_task("", total=total, lines=0)
        done = 0

        def advance(lines: int, size: int) -> None:
            nonlocal done
            done += lines
            progress.update(task, advance=size, lines=done)

        yield advance
