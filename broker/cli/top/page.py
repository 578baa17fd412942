"""One job of `broker top`: its record, its why and its output, and the question before anything is done to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen, Screen

from broker.cli.job import job_lines
from broker.cli.output import field_lines
from broker.cli.said import named, said
from broker.cli.top.panes import Line, Pane, line
from broker.cli.why import why_lines
from broker.errors import NotFound, Unavailable
from broker.rules.key import Key
from broker.text import block

if TYPE_CHECKING:
    from broker.cli.top.app import Top
    from broker.client import Broker
    from broker.jobs.outcome import Outcome

#: How often the page is read anew, in seconds; what is read waits for the answer to the last reading.
READ_SECONDS = 1.0
#: Chunks of output that are kept: as many as the lane keeps.
CHUNKS_MAX = 1_000


class JobPage(Screen[None]):
    """Shows one job until Esc."""

    BINDINGS = [  # noqa: RUF012 - textual's own way
        Binding("escape,q", "app.leave_page", show=False),
        Binding("c", "app.cancel", show=False),
        Binding("r", "app.retry", show=False),
        Binding("d", "app.remove", show=False),
    ]

    def __init__(self, top: Top, key: Key) -> None:
        super().__init__()
        self.key = key
        self._top = top
        self._chunks: deque[Any] = deque(maxlen=CHUNKS_MAX)
        self._is_reading = False
        self._lines: list[Line] = [line("reading ...", "dim")]

    def compose(self) -> ComposeResult:
        yield Pane(id="page")
        yield Pane(id="said")
        yield Pane(id="keys")

    def on_mount(self) -> None:
        self.query_one("#page", Pane).focus()
        self.query_one("#keys", Pane).show([line("c cancel  r retry  d remove  Esc back", "dim")])
        self.set_interval(READ_SECONDS, self.read)
        self.read()

    def read(self) -> None:
        """Ask for all of it anew."""
        self.query_one("#said", Pane).show([self._top.status()])
        if not self._is_reading:
            self._is_reading = True
            after = self._chunks[-1].id if self._chunks else "0-0"
            broker, key = self._top.feed.broker, self.key
            self._top.feed.ask(lambda: _gather(broker, key, after), self._answer)

    def _answer(self, found: Any, trouble: Exception | None) -> None:
        self._is_reading = False
        pane = next(iter(self.query("#page").results(Pane)), None)
        if not self.is_attached or pane is None:  # its parts go before it does
            return
        if trouble is None:
            shown, why, chunks = found
            self._chunks.extend(chunks)
            self._lines = [*_told(shown, why), *_output(self._chunks)]
        elif not isinstance(trouble, Unavailable):  # of that the line below tells
            self._lines = [line(trouble, "bad")]
        at_end = pane.is_vertical_scroll_end and pane.max_scroll_y > 0
        pane.show(self._lines)
        if at_end:
            self.call_after_refresh(pane.scroll_end, animate=False)


def _gather(broker: Broker, key: Key, after: str) -> tuple[Any, Any, list[Any]]:
    why = broker.why(key).to_json()
    try:
        shown: dict[str, Any] | None = broker.show(key)
    except NotFound:  # removed; why still tells what it can
        shown = None
    return shown, why, broker.output(key, after)


def _told(shown: dict[str, Any] | None, why: dict[str, Any]) -> Iterator[Line]:
    yield line("Why", "head")
    for text in why_lines(why):
        yield from (line(part) for part in text.split("\n"))
    yield line()
    if shown:
        yield line("Record", "head")
        yield from map(line, field_lines(job_lines(shown)))
        yield line()


def _output(chunks: deque[Any]) -> Iterator[Line]:
    yield line("Output", "head")
    attempt, progress = 0, ""
    text: list[str] = []
    for chunk in chunks:
        if chunk.attempt != attempt:
            attempt = chunk.attempt
            text.append(f"\n--- attempt {attempt}\n")
        if chunk.what == "progress":
            progress = chunk.text
        else:
            text.append(chunk.text)
    for part in block("".join(text)).expandtabs().split("\n"):
        if part:
            yield line(part)
    if progress:
        yield line(f"progress {_percent(progress)}", "busy")
    if not chunks:
        yield line("none", "dim")


def _percent(text: str) -> str:
    try:
        return f"{float(text):.0%}"
    except ValueError:
        return text


def wish(broker: Broker, verb: str, key: Key, *, force: bool) -> tuple[str, str]:
    """Say it, and give what became of it in words, and the style of these. Raises Unavailable, Damaged."""
    if verb == "retry":
        [told] = broker.retry_many([key])
        if told.new_key:
            return f"handed in again as {told.new_key}", "head"
        outcome: Outcome = told
    else:
        outcome = (broker.cancel if verb == "cancel" else broker.remove)(key, force=force)
    if not outcome.ok:
        return f"{outcome.key}: {outcome.outcome}: {named(outcome.rule)}", "bad"
    has_ended = False
    if outcome.rule == "desired":
        record = broker.view.get(key)
        has_ended = record is None or record.ended
    return f"{outcome.key} {'cancelled' if has_ended else said(outcome.rule)}", "head"


class Question(ModalScreen[str]):
    """Asks before a wish is said. Answers `yes`, `force`, or nothing."""

    BINDINGS = [  # noqa: RUF012 - textual's own way
        Binding("y", "answer('yes')", show=False),
        Binding("f", "answer('force')", show=False),
        Binding("n,escape,enter,q", "answer('')", show=False),
    ]

    def __init__(self, text: list[Line], *, keys: str, can_force: bool = False) -> None:
        super().__init__()
        self._text = [*text, line(), line(keys, "head")]
        self._can_force = can_force

    def compose(self) -> ComposeResult:
        yield Pane(id="question")

    def on_mount(self) -> None:
        self.query_one("#question", Pane).show(self._text)

    def action_answer(self, answer: str) -> None:
        """Take the answer and close."""
        if answer != "force" or self._can_force:
            self.dismiss(answer)
