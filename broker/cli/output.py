"""How records reach stdout: the same JSON everywhere, tables for people.

`json` is one array, `jsonl` one record a line, `table` what `broker.cli.table` makes of it. Looks at the terminal, so
that no command has to.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from broker.cli.table import Column, render
from broker.text import safe, to_json


class Format(StrEnum):
    """What a listing is written as."""

    table = "table"
    json = "json"
    jsonl = "jsonl"


#: A column, and how a record's cell in it reads. `safe` is applied to whatever it gives.
Cell = Callable[[dict[str, Any]], object]
Columns = Sequence[tuple[Column, Cell]]


def print_list(
    records: Iterable[dict[str, Any]], format: Format, columns: Columns, none: str
) -> None:
    """A listing; `none` says on stderr that a table is empty."""
    if format is Format.jsonl:
        for record in records:
            print(to_json(record))
    elif format is Format.json:
        print(to_json(list(records), indent=2))
    elif lines := table_lines(list(records), columns):
        print("\n".join(lines))
    else:
        note(none)


def table_lines(records: Sequence[dict[str, Any]], columns: Columns) -> list[str]:
    """The table of these records as this terminal shows it; nothing where there are none."""
    if not records:
        return []
    rows = [[safe(cell(record)) for _, cell in columns] for record in records]
    return render(
        [column for column, _ in columns], rows, terminal_width(), color=colored(), dots=dots()
    )


def print_object(
    record: dict[str, Any], format: Format, lines: Iterable[tuple[str, object]]
) -> None:
    """One record: an object, or `name  value` lines."""
    if format is Format.table:
        print_fields(lines)
    else:
        print(to_json(record, indent=2 if format is Format.json else None))


def print_fields(lines: Iterable[tuple[str, object]]) -> None:
    """`name  value` lines; values that say nothing are left out."""
    for line in field_lines(lines):
        print(line)


def field_lines(lines: Iterable[tuple[str, object]]) -> list[str]:
    """The same, to be put elsewhere."""
    shown = [(name, value) for name, value in lines if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    return [f"{name:{width}}  {safe(value)}" for name, value in shown]


def note(line: str) -> None:
    """A remark beside the output."""
    print(safe(line), file=sys.stderr)


def warn(line: str) -> None:
    """Something that the user should know, though the command did its work."""
    note(f"broker: warning: {line}")


def terminal_width() -> int | None:
    """The columns of the terminal on stdout (COLUMNS, if set), None where stdout is none."""
    if not sys.stdout.isatty():
        return None
    from shutil import get_terminal_size

    return get_terminal_size().columns


def colored() -> bool:
    """Whether stdout is a terminal that may be coloured."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def dots() -> str:
    """What stands for what was cut off, in the encoding of stdout."""
    return "…" if "utf" in (sys.stdout.encoding or "").lower() else ".."


def age(ms: int | None) -> str:
    """How long ago, in one unit; `-` where it never was."""
    if not ms:
        return "-"
    return span(int(time.time() * 1000) - ms)


def ago(ms: int) -> str:
    """How far an instant lies back or ahead, for a sentence."""
    left = ms - int(time.time() * 1000)
    return f"in {span(left)}" if left > 0 else f"{span(-left)} ago"


def span(ms: int) -> str:
    """A length of time in one unit."""
    seconds = max(0, ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def instant(ms: int | None) -> str:
    """An instant, UTC to the millisecond; empty where it never was."""
    if not ms:
        return ""
    try:
        stamp = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError):
        return str(ms)  # beyond every calendar, but somebody said so
    return f"{stamp:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}Z"
