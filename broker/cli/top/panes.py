"""What `broker top` draws with: lines of plain text in named styles, and a list of any length with a cursor.

Only what is on the screen is made into cells, so ten thousand rows cost what forty cost. No text is ever read as
markup, and every one goes through `safe` here, at the last moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from broker.cli.table import GAP, Column, cells, cut, fit
from broker.text import safe

#: The names of `broker.cli.table.STYLES`, and the cursor's own, as a terminal's own colours.
STYLES = {
    "": Style.null(),
    "good": Style.parse("green"),
    "bad": Style.parse("red"),
    "busy": Style.parse("cyan"),
    "doubt": Style.parse("yellow"),
    "dim": Style.parse("dim"),
    "head": Style.parse("bold"),
}
_CURSOR = Style.parse("reverse")

#: Pieces of text, each with the name of a style.
Line = Sequence[tuple[str, str]]


def line(text: object = "", style: str = "") -> Line:
    """A line of one piece."""
    return [(str(text), style)]


def strip_of(pieces: Line, width: int) -> Strip:
    """The line in exactly so many cells; what is cut off shows as dots."""
    segments, left = [], width
    for text, style in pieces:
        text = safe(text)
        size = cells(text)
        if size > left:
            text = cut(text, left)
            size = cells(text)
        segments.append(Segment(text, STYLES[style]))
        left -= size
        if left <= 0:
            break
    return Strip(segments).adjust_cell_length(width)


def folded(pieces: Line, width: int) -> list[Line]:
    """The line in as many as it takes; further ones are set in by as much as the first, and a little."""
    text = safe("".join(text for text, _ in pieces))
    if cells(text) <= width or width < 8:
        return [pieces]
    style = pieces[-1][1]
    indent = min(len(text) - len(text.lstrip(" ")) + 2, width // 2)
    found: list[Line] = []
    while text:
        room = width if not found else width - indent
        kept = 0
        size = 0
        while kept < len(text) and (size := size + cells(text[kept])) <= room:
            kept += 1
        kept = max(1, kept)
        if kept < len(text):  # between columns where there are any, else between words
            gap = max(text.rfind("  ", kept // 2, kept + 2), 0) or text.rfind(
                " ", kept // 2, kept + 1
            )
            kept = gap + 1 if gap > 0 else kept
        found.append([(" " * (indent if found else 0) + text[:kept].rstrip(" "), style)])
        text = text[kept:].lstrip(" ")
    return found


class Pane(ScrollView, can_focus=True):
    """Lines to read, folded to the width, scrolled where there are more than the screen holds."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._told: Sequence[Line] = ()
        self._lines: list[Line] = []

    def show(self, told: Sequence[Line]) -> None:
        """Show these instead; the place on the screen stays."""
        self._told = told
        self._fold()

    def _fold(self) -> None:
        width = self.scrollable_content_region.width or self.app.size.width
        self._lines = [one for told in self._told for one in folded(told, width)]
        self.virtual_size = Size(width, len(self._lines))
        self.refresh()

    def on_resize(self, _: events.Resize) -> None:
        self._fold()

    def render_line(self, y: int) -> Strip:
        at = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        return strip_of(self._lines[at] if at < len(self._lines) else [], width)


class Table(ScrollView, can_focus=True):
    """Rows under a head that stays, one of them under the cursor.

    The cursor keeps to its row wherever that moves, but for the first place: there it stays, so that whoever did not
    move it sees what comes in at the top.
    """

    BINDINGS = [  # noqa: RUF012 - textual's own way
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "jump(0)", show=False),
        Binding("end", "jump(-1)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Opened(Message):
        """Enter was pressed on a row."""

    def __init__(
        self,
        columns: Sequence[Column],
        cells_of: Callable[[object], Sequence[str]],
        none: str,
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._columns = columns
        self._cells_of = cells_of
        self._none = none
        self._natural = [cells(column.title) for column in columns]
        #: All of them, in order.
        self.rows: Sequence[object] = ()
        self._at = 0
        self._widths: list[int] = []

    @property
    def row(self) -> object | None:
        """What is under the cursor."""
        return self.rows[self._at] if self.rows else None

    def show(self, rows: Sequence[object], *, anew: bool = False) -> None:
        """Show these rows instead; `anew`: begin at the top, for something else was asked."""
        held, was_at = self.row, self._at
        self.rows = rows
        self._at = min(was_at, max(0, len(rows) - 1))
        if anew:
            self._at = 0
            self._natural = [cells(column.title) for column in self._columns]
        elif was_at and held is not None and self.rows and self.rows[self._at] != held:
            self._at = rows.index(held) if held in rows else self._at
        self.virtual_size = Size(self.size.width, len(rows) + 1)
        if anew:
            self.scroll_to(y=0, animate=False)
        elif moved := self._at - was_at:
            self.scroll_to(y=max(0, self.scroll_offset.y + moved), animate=False)
        self.refresh()

    def on_resize(self, _: events.Resize) -> None:
        self._natural = [cells(column.title) for column in self._columns]
        self._show_cursor()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Widths first: they fit what is on the screen, and grow only, lest they dance."""
        top, height = self.scroll_offset.y, self.size.height
        for row in self.rows[top : top + height]:
            found = self._cells_of(row)
            self._natural = [
                max(*pair) for pair in zip(self._natural, map(_width, found), strict=True)
            ]
        self._widths = fit(self._columns, self._natural, self.scrollable_content_region.width)
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        at = y - 1 + self.scroll_offset.y
        if y == 0:
            return strip_of(self._pieces([column.title for column in self._columns], "head"), width)
        if at >= len(self.rows):
            return strip_of(line(self._none, "dim") if y == 1 else [], width)
        drawn = strip_of(self._pieces(self._cells_of(self.rows[at])), width)
        return drawn.apply_style(_CURSOR) if at == self._at else drawn

    def _pieces(self, found: Sequence[str], style: str = "") -> Line:
        pieces: list[tuple[str, str]] = []
        for column, text, width in zip(self._columns, found, self._widths, strict=True):
            if width == 0:
                continue
            text = cut(safe(text), width, keep_end=column.keep_end)
            padding = " " * (width - cells(text))
            named = style or (column.style(text) if column.style else "")
            if pieces:
                pieces.append((" " * GAP, ""))
            pieces.append((padding + text if column.right else text + padding, named))
        return pieces

    def action_move(self, by: int) -> None:
        """So many rows down."""
        self._at = max(0, min(len(self.rows) - 1, self._at + by))
        self._show_cursor()

    def action_page(self, by: int) -> None:
        """So many screens down."""
        self.action_move(by * max(1, self.size.height - 2))

    def action_jump(self, at: int) -> None:
        """To the first row, or to the last."""
        self.action_move(len(self.rows) if at else -len(self.rows))

    def action_open(self) -> None:
        """Say that the row is meant."""
        if self.row is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens."""
        at = event.y - 1 + self.scroll_offset.y
        if event.y and at < len(self.rows):
            again, self._at = at == self._at, at
            self.refresh()
            if again and event.chain > 1:
                self.action_open()

    def _show_cursor(self) -> None:
        top, room = self.scroll_offset.y, max(1, self.size.height - 1)
        if self._at < top:
            top = self._at
        elif self._at >= top + room:
            top = self._at - room + 1
        self.scroll_to(y=top, animate=False)
        self.refresh()


def _width(text: str) -> int:
    return cells(safe(text))
