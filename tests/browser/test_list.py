"""The job list: two of one number, changes as they come, a list that is fetched while it changes, the address."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, Route, expect

from broker import Broker, Key
from tests.browser.fleet import HOSTILE_ERROR, HOSTILE_ID
from tests.system.command import guessed, held, reported, until

#: Chromium itself tells of each answer that is no success.
FAILED_LOAD = "Failed to load resource"
LIST = "**/v1/jobs?limit=*"


#: Of each frame that shows a list: how many jobs it tells, and what the counts by state add up to.
_COUNTED = """() => {
    window.counted = [];
    const look = () => {
        const total = document.querySelector("#jobs-count");
        if (total && document.documentElement.dataset.live === "yes") window.counted.push([
            Number.parseInt(total.textContent),
            [...document.querySelectorAll(".chip-count")].reduce((sum, one) => sum + Number(one.textContent), 0)]);
        requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
}"""


def report(broker: Broker, id: str, state: str = "running", **fields: object) -> str:
    event = reported(id, state, node="atlas", **fields)
    assert broker.report(event).ok
    return f"{event['origin']}/{event['engine']}/{event.get('run', '')}/{id}"


class HeldAnswer:
    """The answer to a page's own fetch, of the list or another one, read from the server and kept back on its way."""

    def __init__(self, page: Page, pattern: str | re.Pattern[str] = LIST) -> None:
        self.page = page
        self.route: Route | None = None
        page.route(pattern, self._take, times=1)

    def _take(self, route: Route) -> None:
        self.answer = route.fetch()
        self.route = route

    def await_read(self) -> None:
        """Until the server has answered: what happens now is not in that answer."""
        until(lambda: self.page.wait_for_timeout(10) or self.route is not None)

    def release(self) -> None:
        assert self.route is not None
        self.route.fulfill(response=self.answer)


@pytest.fixture
def fetching(open_dashboard, broker):
    """A dashboard whose fetch is under way, with one job in it; another one marks how far the stream was heard."""
    key = report(broker, "7", "queued", seq=1)
    dashboard = open_dashboard("/login")  # a page that does not list
    list_ = HeldAnswer(dashboard.page)
    dashboard.open("/jobs")
    list_.await_read()

    def pass_by(change) -> None:
        change()
        marker = report(broker, f"marker-{time.monotonic_ns()}")
        dashboard.row(marker).wait_for()  # told in order: what was said before it has arrived, too

    dashboard.key, dashboard.pass_by, dashboard.list = key, pass_by, list_
    return dashboard


class TestWhileTheListIsFetched:
    def test_a_removal_is_not_undone_by_the_older_list(self, fetching, broker):
        fetching.pass_by(lambda: broker.remove(fetching.key))
        fetching.list.release()
        fetching.await_live()
        assert fetching.state(fetching.key) is None
        assert fetching.painted() == fetching.listed()

    def test_a_change_is_not_undone_by_the_older_list(self, fetching, broker):
        fetching.pass_by(lambda: report(broker, "7", "completed", seq=2))
        fetching.list.release()
        fetching.await_live()
        assert fetching.state(fetching.key) == "completed"
        assert fetching.painted() == fetching.listed()

    def test_one_that_was_removed_and_came_again_is_shown_as_it_came(self, fetching, broker):
        def again() -> None:
            broker.remove(fetching.key)
            report(broker, "7", "running", seq=1, created_at=broker.store.clock.now())

        fetching.pass_by(again)
        fetching.list.release()
        fetching.await_live()
        assert fetching.state(fetching.key) == "running"
        assert fetching.painted() == fetching.listed()

    def test_one_that_only_the_list_holds_is_shown(self, fetching):
        fetching.list.release()
        fetching.await_live()
        assert fetching.state(fetching.key) == "queued"


class TestWhatHasNotArrived:
    """A list of which only a part is here is not one to choose all of."""

    def refuses_to_choose(self, dashboard, key: Key | str) -> None:
        chosen = dashboard.page.locator("#chosen-count")
        expect(dashboard.page.locator("#jobs-note")).to_contain_text("Listing the jobs")
        expect(dashboard.page.locator("#choose-wait")).to_contain_text("list is whole")
        expect(dashboard.page.locator("#choose-all")).to_have_count(0)
        for press in "axc":
            dashboard.page.keyboard.press(press)
        dashboard.row(key).locator("input[type=checkbox]").click()
        dashboard.toast("not whole").first.wait_for()
        expect(chosen).to_have_count(0)
        expect(dashboard.page.locator("dialog")).to_have_count(0)
        expect(dashboard.row(key).locator("input[type=checkbox]")).not_to_be_checked()

    def test_is_not_chosen_from_while_all_jobs_are_listed(self, fetching, broker):
        told = broker.submit("echo", id="told").key
        fetching.row(told).wait_for()
        self.refuses_to_choose(fetching, told)
        fetching.list.release()
        fetching.await_live()
        fetching.page.keyboard.press("a")
        expect(fetching.page.locator("#chosen-count")).to_have_text("2 chosen")
        expect(fetching.page.locator("#jobs-note")).to_be_hidden()

    def test_is_not_chosen_from_while_those_of_a_filter_are_listed(self, open_dashboard, broker):
        key = broker.submit("echo", id="7").key
        dashboard = open_dashboard("/login")
        filtered: list[Route] = []

        def take(route: Route) -> None:
            if "state=" in route.request.url:
                filtered.append(route)
            else:
                answer = route.fetch()
                route.fulfill(response=answer, headers=answer.headers | {"total-count": "30000"})

        dashboard.page.route(LIST, take)
        dashboard.open("/jobs?state=queued")
        until(lambda: dashboard.page.wait_for_timeout(10) or filtered)
        dashboard.row(key).wait_for()
        self.refuses_to_choose(dashboard, key)
        filtered.pop().continue_()
        dashboard.page.locator("#choose-all").click()
        expect(dashboard.page.locator("#chosen-count")).to_have_text("1 chosen")

    def test_counts_come_with_the_list_and_move_with_it(self, fetching, broker):
        """In each frame that shows a list, the counts by state are those of that list."""
        fetching.page.evaluate(_COUNTED)
        fetching.list.release()
        fetching.await_live()
        for n in range(20):
            report(broker, f"more-{n}", "queued" if n % 2 else "failed")
        fetching.row("desk/ollama//more-19").wait_for()
        # Not a time, but frames: a slow machine paints few of them, and all jobs may come in one.
        fetching.page.wait_for_function("() => window.counted.length > 5")
        frames = fetching.page.evaluate("window.counted")
        assert [one for one in frames if one[0] != one[1]] == []


def test_a_view_whose_program_comes_after_the_list_shows_it_at_once(open_dashboard, broker):
    report(broker, "7", "queued")
    dashboard = open_dashboard("/login")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    dashboard.page.route("**/static/jobs.js", hold)
    dashboard.open("/jobs")
    dashboard.page.locator("html[data-live=yes]").wait_for()
    assert dashboard.page.locator("#jobs-count").count() == 0
    until(lambda: dashboard.page.wait_for_timeout(10) or held)
    held.pop().continue_()
    dashboard.await_live()
    assert dashboard.painted() == dashboard.listed()
    assert dashboard.text("#jobs-count") == "1 job"


def test_the_filters_stay_where_they_are_while_counts_and_choices_grow(open_dashboard, broker):
    report(broker, "7", "queued")
    dashboard = open_dashboard("/jobs", viewport={"width": 1280, "height": 800})
    dashboard.await_live()
    places = """() => [...document.querySelectorAll(".filters, .chip, #search, .choices select, #jobs-list")]
        .map((one) => one.getBoundingClientRect()).map(({x, y, width}) => [x, y, width].map(Math.round))"""
    before = dashboard.page.evaluate(places)
    far = {"engine": "engine-of-a-long-name", "origin": "an-origin-far-away"}
    for n in range(120):
        report(broker, f"more-{n}", "queued", **far)
    expect(dashboard.page.locator(".chip[data-state=queued] .chip-count")).to_have_text("121")
    dashboard.page.locator(f"#filter-engine option[value={far['engine']}]").wait_for(
        state="attached"
    )
    assert dashboard.page.evaluate(places) == before
    dashboard.page.locator(".chip[data-state=queued]").click()
    dashboard.page.locator("#filter-clear").wait_for()
    assert dashboard.page.evaluate(places) == before


class TestChanges:
    def test_come_to_the_page_without_a_reload(self, dashboard, broker, record_property):
        dashboard.await_live()
        loads = []
        dashboard.page.on("load", lambda page: loads.append(page.url))
        took = []
        for n in range(10):
            key = f"desk/ollama//live-{n}"
            painted = dashboard.page.evaluate_handle(
                """(key) => ({at: new Promise((told) => {
                    const look = () => document.querySelector(`#jobs-list [data-key="${key}"]`)
                        ? requestAnimationFrame(() => told(Date.now())) : requestAnimationFrame(look);
                    look();
                })})""",
                key,
            )
            accepted = broker.store.clock.now()
            report(broker, f"live-{n}")
            took.append(
                dashboard.page.evaluate("async (seen) => await seen.at", painted) - accepted
            )
        record_property("painted_ms", sorted(took))
        print(f"from the event to the painted row, ms: {sorted(took)}")
        assert not loads

    def test_a_removal_takes_the_row_away(self, dashboard, broker):
        key = report(broker, "7")
        dashboard.until_state(key, "running")
        broker.remove(key)
        dashboard.until_state(key, None)

    def test_two_of_one_number_stay_two(self, dashboard, broker):
        keys = [
            report(broker, "7", "running", engine="ollama"),
            report(broker, "7", "queued", engine="openai"),
            report(broker, "7", "completed", engine="ollama", run="b2"),
        ]
        dashboard.await_live()
        until(lambda: len(dashboard.painted()) == 3)
        assert [dashboard.state(key) for key in keys] == ["running", "queued", "completed"]
        broker.remove(keys[0])
        dashboard.until_state(keys[0], None)
        assert dashboard.painted() == dashboard.listed()
        dashboard.page.reload()
        dashboard.await_live()
        assert [dashboard.state(key) for key in keys[1:]] == ["queued", "completed"]

    def test_a_guess_and_a_doubt_carry_their_marks(self, dashboard, broker):
        sure, doubtful, judged = (broker.submit("echo", id=str(n)).key for n in range(3))
        for key in (doubtful, judged):
            held(broker, key)
        guessed(broker, judged)
        dashboard.until_state(sure, "queued")
        dashboard.until_state(judged, "failed~")
        dashboard.until_state(doubtful, "running?")
        assert "failed~" in dashboard.row(judged).inner_text()
        assert "running?" in dashboard.row(doubtful).inner_text()
        assert dashboard.painted() == dashboard.listed()

    def test_what_others_wrote_is_text(self, dashboard, broker):
        key = report(broker, "7", "failed", error=HOSTILE_ERROR, model="<b>m</b>")
        hostile = str(Key.of("desk", "ollama", "", HOSTILE_ID))
        report(broker, HOSTILE_ID, "running")
        dashboard.until_state(key, "failed")
        dashboard.until_state(hostile, "running")
        said = dashboard.row(key).inner_text()
        assert "<script>alert(1)</script>" in said
        assert "<b>m</b>" in said
        assert "\u202e" not in said  # it would turn what stands behind it
        assert dashboard.page.locator("main img, main script, main b").count() == 0
        dashboard.row(hostile).click()
        expect(dashboard.page.locator(".job-key")).to_contain_text("onerror=")
        assert dashboard.page.locator("main img").count() == 0


@pytest.fixture
def mixed(broker):
    """Jobs to filter, by a name each."""
    return {
        "red": report(broker, "red", "failed", error="out of memory"),
        "blue": report(broker, "blue", "failed", engine="openai", error="refused"),
        "green": report(broker, "green", "running"),
        "far": report(broker, "far", "running", origin="lab"),
    }


class TestTheAddress:
    def test_opened_directly_shows_what_it_says(self, open_dashboard, mixed):
        dashboard = open_dashboard("/jobs?state=failed&engine=ollama")
        until(lambda: set(dashboard.painted()) == {mixed["red"]})
        expect(dashboard.page.locator(".filters [data-state=failed]")).to_have_attribute(
            "aria-pressed", "true"
        )

    def test_follows_the_filter_and_is_worth_the_same_to_another_person(
        self, dashboard, open_dashboard, mixed
    ):
        until(lambda: len(dashboard.painted()) == 4)
        dashboard.page.locator(".filters [data-state=failed]").click()
        until(lambda: set(dashboard.painted()) == {mixed["red"], mixed["blue"]})
        dashboard.page.locator("#filter-engine").select_option("openai")
        until(lambda: set(dashboard.painted()) == {mixed["blue"]})
        other = open_dashboard(dashboard.page.url.removeprefix(dashboard.url))
        until(lambda: set(other.painted()) == {mixed["blue"]})

    def test_goes_back_and_forward(self, dashboard, mixed):
        until(lambda: len(dashboard.painted()) == 4)
        dashboard.page.locator(".filters [data-state=running]").click()
        until(lambda: set(dashboard.painted()) == {mixed["green"], mixed["far"]})
        dashboard.page.locator("#filter-origin").select_option("lab")
        until(lambda: set(dashboard.painted()) == {mixed["far"]})
        dashboard.page.go_back()
        until(lambda: set(dashboard.painted()) == {mixed["green"], mixed["far"]})
        dashboard.page.go_back()
        until(lambda: len(dashboard.painted()) == 4)
        dashboard.page.go_forward()
        until(lambda: set(dashboard.painted()) == {mixed["green"], mixed["far"]})

    def test_holds_what_is_searched(self, dashboard, mixed):
        until(lambda: len(dashboard.painted()) == 4)
        dashboard.page.keyboard.press("/")
        dashboard.page.keyboard.type("memory")
        until(lambda: set(dashboard.painted()) == {mixed["red"]})
        expect(dashboard.page).to_have_url(re.compile("q=memory"))
        dashboard.page.reload()
        until(lambda: set(dashboard.painted()) == {mixed["red"]})

    def test_a_change_out_of_the_filter_takes_the_row_away(self, open_dashboard, broker, mixed):
        dashboard = open_dashboard("/jobs?state=running")
        until(lambda: len(dashboard.painted()) == 2)
        report(broker, "green", "completed")
        until(lambda: set(dashboard.painted()) == {mixed["far"]})
