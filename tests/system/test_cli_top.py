"""`broker top` through textual's own pilot, on a real Redis: what it lists, live, and what its keys do."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from broker import Broker
from broker import settings as settings_of
from broker.cli.top.app import Top
from broker.cli.top.feed import Feed
from broker.cli.top.listing import ORDERS, View
from broker.cli.top.page import JobPage
from broker.readers.readers import Readers
from broker.rules.liveness import Budgets
from broker.rules.state import STATES
from broker.store.nodes import WorkerInfo
from broker.store.store import Store
from tests.system.command import held, reported
from tests.system.test_cli_terminal import CONTROL, HOSTILE


class Screen:
    """The terminal as its user sees it, and the keys."""

    def __init__(self, app, pilot):
        self.app, self._pilot = app, pilot

    @property
    def lines(self):
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def text(self):
        return "\n".join(self.lines)

    @property
    def rows(self):
        """The first two columns of the list."""
        return [
            tuple(line.split()[:2]) for line in self.lines[:-2] if re.match(r"\S*/\S*/\S", line)
        ]

    async def press(self, *keys):
        """One after the other, each when what it means was done: textual waits for no more than the last one."""
        for key in keys:
            await self._pilot.press(key)
            await self._pilot.pause()

    async def wish(self, key, answer="y"):
        """Press the key of a wish, and answer its question."""
        await self.press(key)
        await self.shows("y yes")
        await self.press(answer)

    async def size(self, columns, lines=24):
        await self._pilot.resize_terminal(columns, lines)

    async def until(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.text
            await asyncio.sleep(0.02)

    async def shows(self, *texts):
        await self.until(lambda: all(text in self.text for text in texts))


def look(broker, scenario, size=(120, 24), **options):
    """Run `scenario(screen)` before a `top` that has listed."""

    async def run():
        app = Top(Feed(broker), View(**options))
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.until(lambda: app.feed.is_listed and not app._is_stale)
            await screen.shows(" of ")
            await screen.until(lambda: app.feed.pulse is not None)
            await screen.shows("queued ")
            await scenario(screen)

    asyncio.run(run())


@pytest.fixture
def fleet(store, namespace):
    """Three jobs, the newest first: failed, running, queued. Whoever beat once is heard for a minute."""
    budgets = Budgets(suspect_ms=60_000)
    broker = Broker(store, settings_of(namespace=namespace, node="desk", budgets=budgets))
    for id, state in (("7", "queued"), ("8", "running"), ("9", "failed")):
        told = reported(id, state, created_at=1_700_000_000_000 + int(id), node=f"gpu-{id}")
        broker.report(told | ({"error": "out of memory"} if state == "failed" else {}))
    return broker


FAILED = ("desk/ollama//9", "failed")
RUNNING = ("desk/ollama//8", "running")
QUEUED = ("desk/ollama//7", "queued")


def test_the_list_the_nodes_and_the_overview_are_each_a_key_away(fleet):
    fleet.beat(WorkerInfo("w-1", "gpu-8", "ollama", 12, 1, slots=2))

    async def scenario(screen):
        await screen.until(lambda: screen.rows == [FAILED, RUNNING, QUEUED])
        assert "out of memory" in screen.text
        await screen.press("n")
        await screen.shows("gpu-8", "ollama 0/2", "up")
        await screen.press("o")
        await screen.shows("Failures", "1 x out of memory", "answers in", "noeviction")
        await screen.press("j")
        await screen.shows("3 of 3 jobs: newest first")

    look(fleet, scenario)


def test_a_node_leads_to_its_jobs_and_escape_back_to_all(fleet):
    fleet.beat(WorkerInfo("w-1", "gpu-8", "ollama", 12, 1))

    async def scenario(screen):
        await screen.until(lambda: screen.rows == [FAILED, RUNNING, QUEUED])
        await screen.press("n")
        await screen.shows("ollama 0/1")
        await screen.press("enter")
        await screen.until(lambda: screen.rows == [RUNNING])
        await screen.shows("1 of 3 jobs: node gpu-8, newest first")
        await screen.press("escape")
        await screen.until(lambda: screen.rows == [FAILED, RUNNING, QUEUED])

    look(fleet, scenario)


def test_a_node_that_fell_silent_is_missed_on_every_page(fleet):
    for name, node in (("w-1", "gpu-8"), ("w-2", "gpu-9")):
        fleet.beat(WorkerInfo(name, node, "ollama", 12, 1))

    async def scenario(screen):
        await screen.shows("nodes 2  ready")
        long_ago = fleet.store.clock.now() - 95_000
        fleet.store.client.zadd(fleet.store.keys.workers, {"w-2": long_ago})
        fleet.store.client.zadd(fleet.store.keys.nodes, {"gpu-9": long_ago})
        await screen.shows("nodes 1 of 2  ready")

    look(fleet, scenario)


def test_a_list_that_is_behind_the_logs_is_told_beside_what_is_counted_from_it(fleet, monkeypatch):
    async def scenario(screen):
        await screen.shows("ready ")
        assert "behind the logs" not in screen.text
        monkeypatch.setattr(Readers, "age_seconds", property(lambda _: 25.0))
        await screen.shows("list 25s behind the logs")

    look(fleet, scenario)


def test_a_tick_that_comes_while_the_screen_is_taken_down_draws_nothing(fleet):
    apps = []

    async def scenario(screen):
        apps.append(screen.app)

    look(fleet, scenario)
    [app] = apps
    app._drawn_at = 0.0  # ages are due
    app.tick()
    assert app._drawn_at == 0.0


def test_what_happens_is_on_the_screen_without_a_key(fleet):
    async def scenario(screen):
        fleet.report(reported("10", created_at=1_700_000_000_010))
        await screen.until(lambda: ("desk/ollama//10", "running") in screen.rows)
        fleet.report(reported("10", "completed", created_at=1_700_000_000_010))
        await screen.until(lambda: ("desk/ollama//10", "completed") in screen.rows)
        fleet.remove("desk/ollama//9", force=True)
        await screen.until(lambda: screen.rows[1:] == [RUNNING, QUEUED])
        await screen.shows("queued 1  running 1  completed 1  failed 0")

    look(fleet, scenario)


def test_a_silent_worker_is_doubted_within_a_second_and_believed_again(store, namespace):
    budgets = Budgets(suspect_ms=1_500)
    broker = Broker(store, settings_of(namespace=namespace, node="desk", budgets=budgets))
    job = broker.submit("echo", id="7")
    worker = WorkerInfo("node-a-w", "node-a", "echo", 12, 1)
    broker.beat(worker)
    held(broker, job.key)

    def believed(screen):
        broker.beat(worker)  # one beat may be over before anybody looks
        return screen.rows == [("desk/echo//7", "running")]

    async def scenario(screen):
        await screen.until(lambda: screen.rows == [("desk/echo//7", "running?")])
        await screen.shows("1?")
        await screen.until(lambda: believed(screen))

    look(broker, scenario)


def test_text_state_and_order_choose_the_rows(fleet):
    async def scenario(screen):
        await screen.press("slash", *"GPU-8")
        await screen.until(lambda: screen.rows == [RUNNING])
        await screen.press("escape", "slash", *"memory", "enter")
        await screen.until(lambda: screen.rows == [FAILED])
        await screen.shows("1 of 3 jobs: / memory, newest first")
        await screen.press("escape")
        await screen.until(lambda: len(screen.rows) == 3)
        for state, rows in zip(STATES, ([QUEUED], [RUNNING], [], [FAILED]), strict=False):
            await screen.press("s")
            await screen.shows(f"state {state}")
            await screen.until(lambda rows=rows: screen.rows == rows)
        await screen.press("s", "s")
        await screen.shows("3 of 3 jobs: newest first")
        first, *others = ORDERS
        seen = {}
        for order in (*others, first):
            await screen.press("t")
            await screen.shows(f"3 of 3 jobs: {order}")
            seen[order] = screen.rows
        assert seen["oldest first"] == [QUEUED, RUNNING, FAILED]
        assert seen["by state"] == [RUNNING, QUEUED, FAILED]
        assert seen["newest first"] == [FAILED, RUNNING, QUEUED]  # round again

    look(fleet, scenario)


@pytest.mark.parametrize(
    "options,rows",
    [
        ({"state": "failed"}, [FAILED]),
        ({"node": "gpu-7"}, [QUEUED]),
        ({"engine": "echo"}, []),
        ({"origin": "desk"}, [FAILED, RUNNING, QUEUED]),
    ],
    ids=lambda one: next(iter(one), "") if isinstance(one, dict) else "",
)
def test_the_options_say_what_it_begins_with(fleet, options, rows):
    async def scenario(screen):
        await screen.until(lambda: screen.rows == rows)
        assert ("no jobs" in screen.text) == (not rows)

    look(fleet, scenario, **options)


def test_a_jobs_page_tells_why_and_its_output_as_it_comes(broker):
    job = broker.submit("echo", {"say": "hi"}, id="7")
    holder = held(broker, job.key)

    async def scenario(screen):
        await screen.press("enter")
        await screen.shows("decided by  started", "what would change it", "Record", "payload")
        await screen.press("end")
        holder.write("the first line\nand ")
        holder.progress(0.25)
        await screen.shows("the first line", "progress 25%")
        holder.write("the second")
        await screen.shows("the second")
        holder.finish("completed", result=1)
        await screen.press("home")
        await screen.shows("state       completed")
        await screen.press("escape")
        await screen.shows("1 of 1 jobs")

    look(broker, scenario, size=(120, 50))


def test_a_page_outlives_the_removal_of_its_job(fleet):
    async def scenario(screen):
        await screen.press("enter")
        await screen.shows("desk/ollama//9", "Record")
        fleet.remove("desk/ollama//9")
        await screen.shows("removed (all that was created up to")

    look(fleet, scenario)


def test_an_answer_that_comes_while_its_page_is_taken_down_is_let_go(fleet, monkeypatch):
    """Its parts go first: what it shows is gone then, and it is still there itself."""
    attached = []

    def late(page):
        attached.append(page.is_attached)
        page._answer(None, ValueError("too late"))

    monkeypatch.setattr(JobPage, "on_unmount", late, raising=False)

    async def scenario(screen):
        await screen.press("enter")
        await screen.shows("decided by")
        await screen.press("escape")
        await screen.shows("3 of 3 jobs")
        await screen.until(lambda: attached)

    look(fleet, scenario)
    assert attached == [True]


def test_a_page_says_why_its_job_cannot_be_read(fleet, store):
    """The list holds it still: its log is fine."""

    async def scenario(screen):
        key = fleet.find("desk/ollama//9")
        store.client.set(store.keys.of_job(key).job, "no hash")
        await screen.press("enter")
        await screen.shows("WRONGTYPE")

    look(fleet, scenario)


@pytest.mark.parametrize("what", ["nodes", "why"])
def test_a_look_that_fails_for_no_reason_that_we_know_ends_no_other(fleet, monkeypatch, what):
    async def scenario(screen):
        with monkeypatch.context() as broken:
            broken.setattr(Broker, what, lambda *_: 1 // 0)
            await screen.press("enter")
            await screen.shows("division")
        await screen.shows("desk/ollama//9", "Record")
        await screen.until(lambda: "division" not in screen.text)

    look(fleet, scenario)


def test_a_wish_is_asked_about_and_told_of(broker):
    jobs = {name: broker.submit("echo", id=name) for name in ("a", "b")}

    def state(name):
        return broker.get(jobs[name].key).state

    async def scenario(screen):
        await screen.until(lambda: len(screen.rows) == 2)
        await screen.press("c")
        await screen.shows("Ask for the end of this job?", "y yes", "desk/echo//b")
        await screen.press("enter")  # nothing is done by haste
        await screen.shows("2 of 2 jobs")
        assert state("b") == "queued"
        await screen.wish("c")
        await screen.shows("desk/echo//b cancelled")
        assert (state("a"), state("b")) == ("queued", "cancelled")
        await screen.wish("r", "f")  # which it does not offer
        await screen.press("y")
        await screen.shows("handed in again as desk/echo//")
        await screen.press("end")
        await screen.wish("r")
        await screen.shows("not_terminal")
        await screen.wish("d")
        await screen.until(lambda: broker.view.get(jobs["a"].key) is None)
        await screen.until(lambda: len(screen.rows) == 2)

    look(broker, scenario)


def test_force_is_a_second_thought(broker):
    job = broker.submit("echo", id="7")
    held(broker, job.key)

    async def scenario(screen):
        await screen.until(lambda: bool(screen.rows))
        await screen.press("enter")
        await screen.shows("decided by  started")
        await screen.wish("c")
        await screen.shows("asked to stop")
        assert broker.get(job.key).state == "running"
        await screen.wish("c", "f")
        await screen.until(lambda: broker.get(job.key).state == "cancelled")

    look(broker, scenario)


def test_the_cursor_keeps_to_its_job_and_the_first_place_to_the_newest(fleet):
    async def scenario(screen):
        await screen.press("down")
        await screen.until(lambda: str(screen.app.jobs.row) == RUNNING[0])
        fleet.report(reported("10", created_at=1_700_000_000_010))
        await screen.until(lambda: len(screen.rows) == 4)
        assert str(screen.app.jobs.row) == RUNNING[0]
        await screen.press("home")
        await screen.until(lambda: str(screen.app.jobs.row) == "desk/ollama//10")
        fleet.report(reported("11", created_at=1_700_000_000_011))
        await screen.until(lambda: len(screen.rows) == 5)
        assert str(screen.app.jobs.row) == "desk/ollama//11"

    look(fleet, scenario)


def test_ten_thousand_jobs_cost_no_more_cells_than_the_screen_holds(broker):
    broker.submit_many("echo", range(10_000))

    async def scenario(screen):
        await screen.shows("10,000 of 10,000 jobs")
        asked, cells_of = [], screen.app.jobs._cells_of
        drawn, draw = [], screen.app._draw
        screen.app.jobs._cells_of = lambda row: asked.append(row) or cells_of(row)
        screen.app._draw = lambda: drawn.append(1) or draw()
        keys = ("end", "pageup", "up", "home", "pagedown", "down")
        for key in keys:
            await screen.press(key)
        # Twice for each line: its width, and its text; and so many pictures as the time alone asked for.
        assert 0 < len(asked) <= 24 * 2 * (2 * len(keys) + len(drawn))
        await screen.press("end")
        newest = max(str(key) for key in screen.app.jobs.rows)
        await screen.until(lambda: newest not in screen.text)
        await screen.press("slash", *newest[-6:], "enter")
        await screen.until(lambda: screen.rows == [(newest, "queued")])

    look(broker, scenario)


def test_more_than_its_reader_keeps_between_two_pictures_is_listed_anew(broker):
    broker.submit("echo")

    async def scenario(screen):
        broker.submit_many("echo", range(3_000))  # holds up the pictures meanwhile
        await screen.shows("3,001 of 3,001 jobs")

    look(broker, scenario)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_it_fits_the_terminal(fleet, columns):
    fleet.report(
        reported("漢字" * 30, "failed", node="a-node-with-a-long-name", error="it went wrong " * 9)
    )

    async def scenario(screen):
        await screen.shows("4 of 4 jobs", "q quit", "failed 2")
        await screen.until(lambda: any("failed" in row for row in screen.rows))
        assert ("MODEL" in screen.text) == (columns > 40)
        assert ("d remove" in screen.text) == (columns == 200)
        other = 80 if columns != 80 else 40
        await screen.size(other)
        await screen.until(lambda: ("MODEL" in screen.text) == (other > 40))
        await screen.press("question_mark")
        await screen.shows("jobs, nodes, overview")

    look(fleet, scenario, size=(columns, 24))


def test_no_text_steers_it_nor_is_read_as_markup(broker):
    nasty = dict.fromkeys(("error", "model", "requester"), HOSTILE)
    broker.report(reported(HOSTILE, "failed", engine="e" + HOSTILE, run="r" + HOSTILE, **nasty))
    job = broker.submit("e" + HOSTILE, {HOSTILE: HOSTILE}, id="9" + HOSTILE, model=HOSTILE)
    held(broker, job.key).write(HOSTILE)

    async def scenario(screen):
        seen = screen.text
        for keys, *texts in (
            (["o"], "Failures"),
            (["j", "enter"], "decided by  started", "Output"),
            (["escape", "down", "enter"], "first_sighting", "Output"),
            (["c"], "y yes"),
            (["y"], "too_late at"),
        ):
            await screen.press(*keys)
            await screen.shows(*texts)
            seen += screen.text
        assert "[bold red]x[/]" in seen
        assert not CONTROL.search(seen)

    look(broker, scenario, size=(150, 60))


def test_without_redis_it_says_so_and_goes_on_when_it_is_back(server, namespace):
    store = Store.from_url(f"redis://127.0.0.1:{server.port}", namespace)
    with Broker(store, settings_of(namespace=namespace)) as broker:
        broker.report(reported("7"))

        async def scenario(screen):
            await screen.until(lambda: len(screen.rows) == 1)
            server.stop()
            await screen.shows("Redis is away for ")
            assert len(screen.rows) == 1
            await screen.press("enter")
            await screen.shows("reading ...", "Redis is away for ")
            await screen.press("escape")
            await screen.shows("Redis is away for ", "q quit")
            await screen.wish("c")
            server.start()
            broker.report(reported("8"))
            await screen.until(lambda: len(screen.rows) == 2)
            await screen.shows("2 of 2 jobs")

        look(broker, scenario)
