"""Tables for people: columns that are always the same, cut or left out where the terminal is narrow, never wrapped.

Takes text that is safe already, and knows nothing of jobs. Where nobody looks (`width` None: a pipe, a file) nothing
is cut, so that `awk` and `grep` see all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

GAP = 2

#: Colours by name, as the numbers of the escape sequence.
STYLES = {"good": "32", "bad": "31", "busy": "36", "doubt": "33", "dim": "2", "head": "1"}


@dataclass(frozen=True, slots=True)
class Column:
    """`rank` 0 stays always; the higher, the earlier it is left out. `least` is how far it may be cut."""

    title: str
    rank: int = 0
    least: int | None = None  #: None: it is never cut
    keep_end: bool = False  #: where it is cut, the end is what matters (keys)
    right: bool = False
    style: Callable[[str], str] | None = None  #: the cell's text -> a name of STYLES, or empty


def render(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    *,
    color: bool = False,
    dots: str = "…",
) -> list[str]:
    """The table's lines, header first."""
    natural = [
        max([cells(column.title), *(cells(row[at]) for row in rows)])
        for at, column in enumerate(columns)
    ]
    widths = fit(columns, natural, width)
    head = [column.title for column in columns]
    lines = [_line(columns, head, widths, dots, lambda *_: "head" if color else "")]
    style = _style if color else (lambda *_: "")
    lines += [_line(columns, row, widths, dots, style) for row in rows]
    return lines


def fit(columns: Sequence[Column], natural: Sequence[int], width: int | None) -> list[int]:
    """The width of each column, 0 where it is left out."""
    kept = list(range(len(columns)))
    if width is None:
        return list(natural)

    def least(at: int) -> int:
        smallest = columns[at].least
        return natural[at] if smallest is None else min(natural[at], smallest)

    def needed() -> int:
        return sum(map(least, kept)) + GAP * (len(kept) - 1)

    while needed() > width and any(columns[at].rank for at in kept):
        kept.remove(max(kept, key=lambda at: columns[at].rank))
    widths = [least(at) if at in kept else 0 for at in range(len(columns))]
    spare = width - needed()
    while spare > 0 and (wanting := [at for at in kept if widths[at] < natural[at]]):
        share = max(1, spare // len(wanting))
        for at in wanting[:spare]:
            more = min(share, natural[at] - widths[at])
            widths[at] += more
            spare -= more
    return widths


def cells(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int, dots: str = "…", *, keep_end: bool = False) -> str:
    """The text in at most `width` cells; what was cut off shows as dots."""
    if cells(text) <= width:
        return text
    room = max(0, width - cells(dots))
    step = -1 if keep_end else 1
    kept = ""
    for char in text[::step]:
        if cells(kept) + cells(char) > room:
            break
        kept += char
    return (dots + kept[::-1] if keep_end else kept + dots)[: max(width, 0)]


def _style(column: Column, cell: str) -> str:
    return column.style(cell) if column.style else ""


def _line(
    columns: Sequence[Column],
    row: Sequence[str],
    widths: Sequence[int],
    dots: str,
    style: Callable[[Column, str], str],
) -> str:
    shown = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        if width == 0:
            continue
        text = cut(cell, width, dots, keep_end=column.keep_end)
        padding = " " * (width - cells(text))
        name = style(column, cell)
        if name:
            text = f"\x1b[{STYLES[name]}m{text}\x1b[0m"
        shown.append(padding + text if column.right else text + padding)
    return (" " * GAP).join(shown).rstrip()
