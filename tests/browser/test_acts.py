"""What is wished for from the page: cancel, retry, remove, one or many, asked about first; and what became of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from broker import Broker, Key
from tests.system.command import held, reported, until


@pytest.fixture
def queued(broker) -> Key:
    return broker.submit("echo", id="waits").key


def desired(broker: Broker, key: Key) -> tuple[str, str]:
    record = broker.get(key)
    return record.state, record.desired


def ask(dashboard, key: Key | str, verb: str) -> None:
    """Choose one row, and press what is to be done with it."""
    dashboard.choose([key])
    dashboard.page.locator(f"#bulk-{verb}").click()


class TestCancel:
    def test_ends_what_waits_once_it_is_confirmed(self, dashboard, broker, queued):
        ask(dashboard, queued, "cancel")
        expect(dashboard.page.locator("#preview-count")).to_have_text("1 queued")
        assert desired(broker, queued) == ("queued", "run")
        dashboard.confirm()
        dashboard.until_state(queued, "cancelled")
        assert desired(broker, queued) == ("cancelled", "cancel")

    def test_does_nothing_where_it_is_not_confirmed(self, dashboard, broker, queued):
        ask(dashboard, queued, "cancel")
        expect(dashboard.page.locator("#dialog-no")).to_be_focused()
        dashboard.page.keyboard.press("Enter")
        expect(dashboard.page.locator("dialog")).to_have_count(0)
        assert desired(broker, queued) == ("queued", "run")

    def test_asks_what_runs_to_stop(self, dashboard, broker, queued):
        held(broker, queued)
        dashboard.row(queued).locator("[data-state^=running]").wait_for()
        ask(dashboard, queued, "cancel")
        dashboard.confirm()
        dashboard.toast("asked to stop").wait_for()
        assert desired(broker, queued) == ("running", "cancel")

    def test_at_once_ends_what_runs(self, dashboard, broker, queued):
        held(broker, queued)
        dashboard.row(queued).locator("[data-state^=running]").wait_for()
        ask(dashboard, queued, "cancel")
        dashboard.page.locator("dialog input[name=force]").check()
        dashboard.confirm()
        dashboard.until_state(queued, "cancelled")

    def test_tells_the_rule_by_which_it_was_refused(self, open_dashboard, broker, queued):
        """It ended while the question stood."""
        dashboard = open_dashboard("/jobs", allow="409")
        holder = held(broker, queued)
        dashboard.row(queued).locator("[data-state^=running]").wait_for()
        ask(dashboard, queued, "cancel")
        holder.finish("completed", result=1)
        dashboard.confirm()
        dashboard.toast("too_late").wait_for()
        dashboard.until_state(queued, "completed")


#: Three seconds go by at once when a wish is answered, and half a second more before a change is taken in.
_STANDS_STILL = """() => {
    const [ask, frame, wait, now] = [window.fetch, window.requestAnimationFrame, window.setTimeout, Date.now];
    let [leap, answered] = [0, false];
    Date.now = () => now() + leap;
    window.requestAnimationFrame = (paint) => wait(() => frame(paint), 500);
    window.setTimeout = (told, ms) => {
        if (answered && ms < 1_000) leap = 3_000;  // whoever waits a little
        return wait(told, ms);
    };
    window.fetch = async (path, options) => {
        const answer = await ask(path, options);
        answered ||= options?.method === "POST";
        return answer;
    };
}"""


class TestMany:
    def test_are_cancelled_together_with_their_count_told_before(self, dashboard, broker):
        keys = [broker.submit("echo", id=str(n)).key for n in range(4)]
        held(broker, keys[0])
        ended = broker.submit("echo", id="ended").key
        held(broker, ended).finish("completed")
        dashboard.row(keys[0]).locator("[data-state^=running]").wait_for()
        until(lambda: dashboard.state(ended) == "completed")
        dashboard.choose([*keys[:3], ended])
        expect(dashboard.page.locator("#chosen-count")).to_have_text("4 chosen")
        dashboard.page.locator("#bulk-cancel").click()
        expect(dashboard.page.locator("#preview-count")).to_contain_text("2 queued")
        expect(dashboard.page.locator("dialog")).to_contain_text("Left out: 1")
        expect(dashboard.page.locator("#dialog-yes")).to_have_text("Cancel 3 jobs")
        dashboard.confirm()
        until(lambda: [desired(broker, key)[1] for key in keys] == ["cancel"] * 3 + ["run"])
        for key in keys[1:3]:
            dashboard.until_state(key, "cancelled")
        assert dashboard.state(keys[3]) == "queued"

    def cancel(self, dashboard, broker) -> None:
        """Two that wait and one that runs; asked for, not yet answered."""
        keys = [broker.submit("echo", id=str(n)).key for n in range(3)]
        held(broker, keys[0])
        dashboard.row(keys[0]).locator("[data-state^=running]").wait_for()
        until(lambda: len(dashboard.painted()) == 3)
        dashboard.choose(keys)
        dashboard.page.locator("#bulk-cancel").click()
        dashboard.page.locator("#preview-count").wait_for()

    def test_are_told_by_what_became_of_them(self, dashboard, broker):
        self.cancel(dashboard, broker)
        dashboard.confirm()
        told = dashboard.toast("2 cancelled")
        expect(told).to_contain_text("1 asked to stop")

    def test_are_told_by_what_became_of_them_also_by_a_page_that_stood_still(
        self, dashboard, broker
    ):
        self.cancel(dashboard, broker)
        dashboard.page.evaluate(_STANDS_STILL)
        dashboard.confirm()
        dashboard.toast("2 cancelled").wait_for()

    def test_are_told_no_more_of_than_the_answers_say_where_no_change_was_heard(
        self, dashboard, broker
    ):
        self.cancel(dashboard, broker)
        dashboard.page.evaluate("window.requestAnimationFrame = () => 0")  # none is taken in
        dashboard.confirm()
        dashboard.toast("3 cancelled or asked to stop").wait_for()

    def test_are_told_to_be_under_way_until_there_is_an_answer(self, dashboard, broker):
        waiting: list[Route] = []
        dashboard.page.route("**/v1/jobs/cancel", lambda route: waiting.append(route))  # noqa: PLW0108 - playwright marks it
        self.cancel(dashboard, broker)
        dashboard.confirm()
        dashboard.toast("Cancelling 3 jobs").wait_for()
        until(lambda: dashboard.page.wait_for_timeout(10) or waiting)
        waiting.pop().continue_()
        dashboard.toast("2 cancelled").wait_for()
        expect(dashboard.toast("Cancelling")).to_have_count(0)

    def test_that_fit_the_filter_are_chosen_at_once(self, open_dashboard, broker):
        for n in range(30):
            broker.report(reported(str(n), "failed" if n % 2 else "completed"))
        dashboard = open_dashboard("/jobs?state=failed")
        until(lambda: len(dashboard.painted()) == 15)
        dashboard.page.locator("#choose-all").click()
        dashboard.page.locator("#bulk-remove").click()
        expect(dashboard.page.locator("#preview-count")).to_have_text("15 failed")
        dashboard.confirm()
        until(lambda: not dashboard.painted())
        assert {one.record.state for one in broker.jobs()} == {"completed"}


def test_retry_hands_it_in_again(dashboard, broker, queued):
    held(broker, queued).finish("failed", error="boom")
    dashboard.until_state(queued, "failed")
    ask(dashboard, queued, "retry")
    dashboard.confirm()
    dashboard.page.locator("#toasts a").click()  # first of all: it goes away by itself
    [again] = [one for one in broker.jobs() if one.key != queued]
    assert again.record.retry_of == str(queued)
    expect(dashboard.page.locator(".job-key")).to_have_text(str(again.key))
    dashboard.page.go_back()
    dashboard.until_state(again.key, "queued")
    assert len(dashboard.painted()) == 2


def test_remove_takes_it_off_the_list(dashboard, broker, queued):
    broker.cancel(queued)
    dashboard.until_state(queued, "cancelled")
    ask(dashboard, queued, "remove")
    dashboard.confirm()
    dashboard.until_state(queued, None)
    assert not broker.jobs()
