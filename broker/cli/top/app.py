"""The screen of `broker top`: pages, keys, and a tick that draws what has come in since the last one."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import ContentSwitcher, Input

from broker.cli.exits import INTERRUPTED
from broker.cli.jobs import COLUMNS as JOB_COLUMNS
from broker.cli.nodes import COLUMNS as NODE_COLUMNS
from broker.cli.top.looks import CSS, HELP, KEYS
from broker.cli.top.page import JobPage, Question, wish
from broker.cli.top.panels import overview_lines, summary
from broker.cli.top.panes import Line, Pane, Table, line
from broker.jobs.outcome import Listed
from broker.rules.key import Key
from broker.rules.state import RUNNING

if TYPE_CHECKING:
    from broker.cli.top.feed import Feed
    from broker.cli.top.listing import View

#: Between two looks at what came in, in seconds; where listing takes long, so many times as long as it took.
TICK_SECONDS, TICK_SHARE = 0.1, 5
#: What an errand had to say stays for so long, in seconds.
SAID_SECONDS = 8.0
#: Ages are drawn anew so often, in seconds.
AGE_SECONDS = 1.0

_DOES = {
    "cancel": "Ask for the end of",
    "retry": "Hand in again",
    "remove": "Take off the list, for good,",
}


class Top(App[None]):
    """`broker top`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = CSS
    BINDINGS = [  # noqa: RUF012 - textual's own way
        Binding("j", "page('jobs')", show=False),
        Binding("n", "page('nodes')", show=False),
        Binding("o", "page('overview')", show=False),
        Binding("slash", "find", show=False),
        Binding("s", "state", show=False),
        Binding("t", "order", show=False),
        Binding("c", "cancel", show=False),
        Binding("r", "retry", show=False),
        Binding("d", "remove", show=False),
        Binding("escape", "clear", show=False),
        Binding("question_mark", "help", show=False),
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True, system=True),
    ]

    def __init__(self, feed: Feed, view: View) -> None:
        super().__init__(ansi_color=True)
        self.feed = feed
        self.view = view
        self._node_asked = view.node
        self._is_stale = True  #: the list is to be made anew
        self._pulse: object = None
        self._said: tuple[Line, float] | None = None
        self._list_at = 0.0
        self._drawn_at = 0.0
        self._fleet: dict[str, dict[str, Any]] = {}
        self.jobs = Table(
            [column for column, _ in JOB_COLUMNS], self._job_cells, "no jobs", id="jobs"
        )
        self.nodes = Table(
            [column for column, _ in NODE_COLUMNS],
            self._node_cells,
            "no nodes; broker worker starts one",
            id="nodes",
        )

    def compose(self) -> ComposeResult:
        yield Pane(id="summary")
        with ContentSwitcher(initial="jobs"):
            yield self.jobs
            yield self.nodes
            yield Pane(id="overview")
        yield Input(id="find", placeholder="text in key, node, model or error")
        yield Pane(id="said")
        yield Pane(id="keys")

    def on_mount(self) -> None:
        for name in ("summary", "said", "keys"):
            self.query_one(f"#{name}").can_focus = False
        self.jobs.focus()
        if not self.is_headless:  # the terminal is given back whoever ends it
            loop = asyncio.get_running_loop()
            for order in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(order, self.action_interrupt)
        self.set_interval(TICK_SECONDS, self.tick)
        self.tick()

    def on_unmount(self) -> None:
        self.feed.close()

    # --- drawing ----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Draw what came in, if anything did; a list that takes long is made less often."""
        if not self.is_running:  # at the end the timer outlives the screen
            return
        self._is_stale |= self.feed.take()
        here = time.monotonic()
        if self._is_stale and here >= self._list_at:
            self._list()
        elif self.feed.pulse is not self._pulse or here - self._drawn_at >= AGE_SECONDS:
            self._draw()

    def _list(self, *, anew: bool = False) -> None:
        begun = time.monotonic()
        self._is_stale = False
        self.jobs.show(self.view.keys(self.feed.records), anew=anew)
        self._draw()
        ended = time.monotonic()
        self._list_at = ended + TICK_SHARE * (ended - begun)

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        pulse = self._pulse = self.feed.pulse
        if pulse:
            self._fleet = {node["node"]: node for node in pulse.nodes}
            self.nodes.show(list(self._fleet))
            self.main("#summary", Pane).show(summary(pulse.overview, pulse.nodes))
            self.main("#overview", Pane).show(overview_lines(pulse.overview))
        self.jobs.refresh()
        width = self.size.width
        keys = next((keys for keys in KEYS if len(keys) <= width), KEYS[-1])
        self.main("#keys", Pane).show([line(keys, "dim")])
        self.main("#said", Pane).show([self.status()])

    def main(self, what: str, kind: type[Pane]) -> Pane:
        """A part of the first screen, whatever lies over it."""
        return self.screen_stack[0].query_one(what, kind)

    def status(self) -> Line:
        """What is to be said now: of the last errand, of trouble, else of the list."""
        if self._said and time.monotonic() < self._said[1]:
            return self._said[0]
        if trouble := self.feed.trouble:
            return line(trouble, "bad")
        if not self.feed.is_listed:
            return line("listing ...", "dim")
        count, total = len(self.jobs.rows), len(self.feed.records)
        return line(f"{count:,} of {total:,} jobs: {self.view}")

    def say(self, text: str, style: str = "head") -> None:
        """Tell something for a while."""
        self._said = (line(text, style), time.monotonic() + SAID_SECONDS)
        self._draw()

    def _job_cells(self, key: object) -> list[str]:
        record = self.feed.records.get(key) if isinstance(key, Key) else None
        if record is None:  # gone since the list was made
            return [str(key), "gone", *("-" for _ in JOB_COLUMNS[2:])]
        pulse = self.feed.pulse
        doubted = pulse is not None and record.state == RUNNING and key in pulse.doubted
        shown = Listed(key, record, doubted).to_json()  # type: ignore[arg-type]
        return [str(cell(shown)) for _, cell in JOB_COLUMNS]

    def _node_cells(self, name: object) -> list[str]:
        return [str(cell(self._fleet[str(name)])) for _, cell in NODE_COLUMNS]

    # --- keys -------------------------------------------------------------------------------------

    def action_page(self, name: str) -> None:
        """Show a page."""
        self.query_one(ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()

    def action_state(self) -> None:
        """On to the next state."""
        self.view.turn_state()
        self._ask_anew()

    def action_order(self) -> None:
        """On to the next order."""
        self.view.turn_order()
        self._ask_anew()

    def _ask_anew(self) -> None:
        self.action_page("jobs")
        self._list(anew=True)

    def action_find(self) -> None:
        """Ask for a text to look for."""
        self.action_page("jobs")
        asked = self.query_one(Input)
        asked.add_class("-shown")
        asked.value = self.view.text
        asked.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """The list follows what is typed."""
        if event.value != self.view.text:
            self.view.text = event.value
            self._list(anew=True)

    def on_input_submitted(self, _: Input.Submitted) -> None:
        """That is it: back to the list."""
        self.query_one(Input).remove_class("-shown")
        self.jobs.focus()

    def action_clear(self) -> None:
        """Look for nothing any more, and at all nodes that the options allow."""
        self.view.text = ""
        self.view.node = self._node_asked
        self.query_one(Input).remove_class("-shown")
        self.jobs.focus()
        self._list(anew=True)

    def on_table_opened(self, _: Table.Opened) -> None:
        """Enter: the job's own page, or the jobs of the node."""
        if self.query_one(ContentSwitcher).current == "nodes":
            self.view.node = str(self.nodes.row)
            self._ask_anew()
        elif isinstance(key := self._meant(), Key):
            self.push_screen(JobPage(self, key))

    def action_help(self) -> None:
        """What each key does."""
        self.push_screen(Question([line(text) for text in HELP], keys="Esc back"))

    def action_leave_page(self) -> None:
        """From a job's page to the list."""
        self.pop_screen()

    def on_resize(self, _: events.Resize) -> None:
        """Another terminal: all of it anew."""
        self._is_stale = True

    def action_interrupt(self) -> None:
        """Ctrl-C, or an order to end."""
        self.exit(return_code=INTERRUPTED)

    # --- wishes -----------------------------------------------------------------------------------

    def _meant(self) -> object:
        """The job that a key is about: that of the page, or that under the cursor."""
        if isinstance(self.screen, JobPage):
            return self.screen.key
        return self.jobs.row if self.query_one(ContentSwitcher).current == "jobs" else None

    def action_cancel(self) -> None:
        """Ask, then cancel."""
        self._wish("cancel", can_force=True)

    def action_retry(self) -> None:
        """Ask, then hand it in again."""
        self._wish("retry", can_force=False)

    def action_remove(self) -> None:
        """Ask, then remove."""
        self._wish("remove", can_force=True)

    def _wish(self, verb: str, *, can_force: bool) -> None:
        key = self._meant()
        if not isinstance(key, Key):
            return
        record = self.feed.records.get(key)
        told = [line(f"{_DOES[verb]} this job?", "head"), line(key)]
        if record:
            told.append(line(f"{record.state}{f' on {record.node}' if record.node else ''}", "dim"))

        def answered(answer: str | None) -> None:
            if not answer:
                return
            broker, force = self.feed.broker, answer == "force"
            self.say(f"{verb} {key} ...", "dim")
            self.feed.ask(lambda: wish(broker, verb, key, force=force), self._tell)

        keys = "y yes  f at once, by force  n no" if can_force else "y yes  n no"
        self.push_screen(Question(told, keys=keys, can_force=can_force), answered)

    def _tell(self, told: tuple[str, str] | None, trouble: Exception | None) -> None:
        self.say(*(told or (str(trouble), "bad")))
