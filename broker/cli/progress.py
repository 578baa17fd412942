"""How far a command is, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counting(
    what: str, total: int | None = None, *, alone: bool = False
) -> Iterator[Callable[[int], None]]:
    """A count on stderr, where that is a terminal that shows nothing else.

    `alone`: nothing is printed meanwhile, so stdout may be the same terminal.
    """
    if not sys.stderr.isatty() or (sys.stdout.isatty() and not alone):
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    of = "" if total is None else f" of {total:,}"
    columns = (
        SpinnerColumn(),
        TextColumn(f"{{task.completed:,}}{of} {what}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    ) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.update(task, advance=count)
