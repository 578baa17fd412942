"""Where a machine or a network is slow: what comes late, or breaks off, and whoever is elsewhere by then."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.test_list import LIST, HeldAnswer, report
from tests.system.command import held, until


class HeldBack:
    """Requests of a page, kept from their answers until they are released."""

    def __init__(self, page: Page, pattern: str | re.Pattern[str]) -> None:
        self.page = page
        self._routes: list[Route] = []
        page.route(pattern, lambda route: self._routes.append(route))  # noqa: PLW0108 - playwright marks it

    def await_asked(self) -> None:
        until(lambda: self.page.wait_for_timeout(10) or self._routes)

    def release(self) -> None:
        self.await_asked()
        for route in self._routes:
            route.continue_()
        self._routes.clear()


def test_whoever_goes_back_before_a_page_has_come_is_not_taken_to_it(dashboard, broker):
    key = report(broker, "7", "failed")
    dashboard.until_state(key, "failed")
    dashboard.page.locator(".chip[data-state=failed]").click()
    expect(dashboard.page).to_have_url(re.compile("state=failed"))
    program = HeldBack(dashboard.page, "**/static/views/nodes.js")
    dashboard.page.locator("#nav [data-page=nodes]").click()
    program.await_asked()
    dashboard.page.go_back()
    expect(dashboard.page).to_have_url(re.compile(r"/jobs\?state=failed$"))
    program.release()
    # It has come by now, and so has whatever waited for it before.
    dashboard.page.evaluate("import('/static/views/nodes.js')")
    expect(dashboard.page.locator(".view")).to_have_attribute("data-view", "jobs")
    assert dashboard.painted() == {key: "failed"}


def test_whoever_leaves_a_job_before_its_whole_key_is_known_is_not_called_back(
    open_dashboard, broker
):
    report(broker, "7")
    dashboard = open_dashboard("/login")
    page = dashboard.page
    answer = HeldBack(page, re.compile("/v1/jobs/ollama%2F7$"))
    program = HeldBack(page, "**/static/views/nodes.js")
    dashboard.open("/jobs/ollama/7")
    answer.await_asked()
    page.locator("#nav [data-page=nodes]").click()
    program.await_asked()
    with page.expect_response(re.compile("/v1/jobs/ollama%2F7$")):
        answer.release()
    expect(
        page.locator("#why")
    ).to_be_visible()  # it has been taken in: all three are painted together
    expect(page).to_have_url(re.compile("/nodes$"))
    program.release()
    expect(page.locator(".view")).to_have_attribute("data-view", "nodes")


_LANE = re.compile("/output\\?after=")
#: Notes what a state turns to.
_WATCHED = """(element) => {
    window.turned = [];
    const watched = new MutationObserver(() => window.turned.push(element.dataset.state));
    watched.observe(element, {attributeFilter: ["data-state"]});
}"""


def test_a_job_that_is_gone_is_not_brought_back_by_an_answer_from_before(open_dashboard, broker):
    key = report(broker, "7")
    dashboard = open_dashboard("/login", allow="404")
    page = dashboard.page
    answer = HeldAnswer(page, re.compile("/v1/jobs/desk%2Follama%2F%2F7$"))
    dashboard.open("/jobs/desk%2Follama%2F%2F7")
    answer.await_read()
    dashboard.await_live()
    broker.remove(key)
    state = page.locator(".job-head .state")
    expect(state).to_have_attribute("data-state", "gone")
    state.evaluate(_WATCHED)
    answer.release()
    expect(page.locator("#why")).to_be_visible()  # it has been taken in: all is painted together
    expect(page.locator("main .note")).to_contain_text("It is gone")
    assert page.evaluate("window.turned") == []


def test_what_a_job_wrote_last_is_read_again_where_that_failed(open_dashboard, broker):
    key = broker.submit("echo", id="7").key
    holder = held(broker, key)
    holder.write("first\n")
    page = open_dashboard("/jobs/desk%2Fecho%2F%2F7", allow="503").page
    expect(page.locator("#output")).to_contain_text("first")
    state = page.locator(".job-head .state")
    refused: list[str | None] = []

    def refuse(route: Route) -> None:
        refused.append(state.get_attribute("data-state"))
        route.fulfill(status=503, json={"rule": "unavailable", "detail": "Redis is away"})

    page.route(_LANE, refuse)
    holder.write("last\n")
    holder.finish("completed", result=1)
    # Its end alone has it asked twice at most: what was under way, and once more.
    until(lambda: page.wait_for_timeout(10) or refused.count("completed") > 2)
    page.unroute(_LANE)
    expect(page.locator("#output")).to_contain_text("last")


def test_a_list_that_breaks_off_on_its_way_is_told_and_read_again(open_dashboard, broker):
    key = report(broker, "7")
    dashboard = open_dashboard("/login")

    def cut(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.body()[:-2])

    dashboard.page.route(LIST, cut)
    dashboard.open("/jobs")
    banner = dashboard.page.locator("#banner")
    expect(banner).to_contain_text("could not be listed: the answer of the server broke off")
    dashboard.page.unroute(LIST)
    dashboard.await_live()
    assert dashboard.state(key) == "running"
    expect(banner).to_be_hidden()


def test_a_question_that_is_closed_gives_the_focus_back_but_takes_it_from_nobody(dashboard):
    dashboard.await_live()
    page = dashboard.page
    page.locator("#help").focus()
    page.keyboard.press("?")
    page.locator("dialog").wait_for()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("#help")).to_be_focused()
    page.keyboard.press("?")
    page.locator("dialog").wait_for()
    # As where the next key is pressed before the page was told that the dialog is closed.
    page.evaluate(
        "document.querySelector('dialog').close(); document.querySelector('#search').focus()"
    )
    expect(page.locator("dialog")).to_have_count(0)
    expect(page.locator("#search")).to_be_focused()


#: A model on a stream and lists of the test's own: the second list holds a job that nobody told of. Its drift is judged
#: when nothing is on its way any more.
_DRIFT = """async (missed) => {
    const { Live } = await import("/static/live.js");
    const wait = window.setTimeout;
    let [tell, judge] = [];
    window.setTimeout = (told, ms) => (ms === 5_000 ? (judge = told) : wait(told, ms));
    window.setInterval = () => 0;  // no silence is noticed
    const lists = [[], [{ key: "a", rev: "2-0" }], [{ key: "a", rev: "2-0" }]];
    window.fetch = async (path) => path.startsWith("/v1/watch")
        ? new Response(new ReadableStream({ start: (it) => (tell = (name, said) =>
            it.enqueue(new TextEncoder().encode(`event: ${name}\\ndata: ${JSON.stringify(said)}\\n\\n`))) }))
        : new Response(JSON.stringify(lists.shift() ?? []));
    const model = new Live();
    const come = async (whether) => { while (!whether()) await new Promise((go) => wait(go, 5)); };
    model.start();
    await come(() => tell);
    tell("ready", {});
    tell("overview", { at: 0 });
    await come(() => model.live);
    await model.refresh();
    await come(() => model.jobs.size === 1);
    const { listedAt } = model;
    if (missed) tell("gone", { why: "missed" });
    await come(() => !missed || model.listedAt !== listedAt);
    judge();
    return model.drift;
}"""


@pytest.mark.parametrize("missed, drift", [(False, 1), (True, 0)])
def test_what_was_missed_is_no_drift(open_dashboard, missed, drift):
    # A page without a model of its own.
    page = open_dashboard("/login", allow="jobs had drifted").page
    assert page.evaluate(_DRIFT, missed) == drift
