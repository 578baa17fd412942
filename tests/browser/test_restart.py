"""A page that outlives its server: what it says meanwhile, and that it then holds what is, no more and no less."""

from __future__ import annotations

import random
import re
import threading

import pytest
from playwright.sync_api import expect

from broker import Broker
from broker import settings as settings_of
from broker.store.store import Store
from tests.browser.test_list import LIST, report
from tests.system.command import reported, until

#: What Chromium itself tells of a server that is away, and the page of a list that had to be read anew.
AWAY = "Failed to load resource|ERR_"
#: All rows are in sight.
TALL = {"width": 1440, "height": 6_000}
JOBS = 60


@pytest.fixture
def open_on_process(serve_process, open_dashboard):
    serve_process.start()
    return lambda path="/jobs", **options: open_dashboard(
        path, at=serve_process.url, allow=AWAY, **options
    )


class Churn:
    """Jobs that come, move on, go and come again, by chance, until `end`."""

    def __init__(self, url: str, namespace: str, seed: int) -> None:
        self._broker = Broker(
            Store.from_url(url, namespace), settings_of(namespace=namespace, node="desk")
        )
        self._chance = random.Random(seed)
        self._seqs: dict[str, tuple[int, int]] = {}
        self._stop = threading.Event()
        self.steps = 0
        self._thread = threading.Thread(target=self._run, name="churn")
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._broker.close()

    def _run(self) -> None:
        while not self._stop.wait(0.003):
            self._step()
            self.steps += 1

    def _step(self) -> None:
        id = str(self._chance.randrange(JOBS))
        origin = self._chance.choice(("desk", "lab"))
        name = f"{origin}/{id}"
        created_at, seq = self._seqs.get(name, (0, 0))
        if self._chance.random() < 0.25:
            self._broker.remove(f"{origin}/ollama//{id}")
            self._seqs.pop(name, None)
            return
        if not created_at or self._chance.random() < 0.1:
            created_at, seq = self._broker.store.clock.now(), 0
        self._seqs[name] = (created_at, seq + 1)
        state = self._chance.choice(("queued", "running", "running", "failed", "completed"))
        self._broker.report(
            reported(id, state, origin=origin, seq=seq + 1, created_at=created_at, node="atlas")
        )


@pytest.mark.parametrize("seed", [1, 2])
def test_a_restart_during_churn_neither_brings_back_nor_hides_a_job(
    serve_process, open_on_process, redis_url, namespace, seed
):
    chance = random.Random(seed)
    churn = Churn(redis_url, namespace, seed)
    try:
        until(lambda: churn.steps > 100)
        dashboard = open_on_process(viewport=TALL)
        dashboard.await_live()
        for _ in range(2):
            dashboard.page.wait_for_timeout(chance.randrange(300))
            serve_process.kill()
            expect(dashboard.page.locator("html")).to_have_attribute("data-live", "no")
            dashboard.page.wait_for_timeout(chance.randrange(300))
            serve_process.start()
            # It may have come back by itself meanwhile: then there is nothing to press.
            dashboard.page.evaluate("document.querySelector('#banner button')?.click()")
            dashboard.await_live()
    finally:
        churn.end()
    until(lambda: dashboard.painted() == dashboard.listed())
    dashboard.page.wait_for_timeout(300)  # nothing late may still change it
    assert dashboard.painted() == dashboard.listed()
    assert len(dashboard.painted()) > 20


def test_a_server_that_is_away_is_told_and_figures_are_no_longer_shown_as_live(
    serve_process, open_on_process, broker
):
    key = report(broker, "7")
    dashboard = open_on_process()
    dashboard.until_state(key, "running")
    expect(dashboard.page.locator("#connection")).to_have_attribute("data-state", "live")
    serve_process.kill()
    expect(dashboard.page.locator("#connection")).to_have_attribute("data-state", "offline")
    expect(dashboard.page.locator("#banner")).to_contain_text("Not live since")
    assert dashboard.state(key) == "running"
    figure = dashboard.page.locator("#jobs-count")
    assert figure.evaluate("element => getComputedStyle(element).fontStyle") == "italic"
    report(broker, "7", "completed")
    serve_process.start()
    # Where the page came back by itself before that, the button is hidden by now.
    dashboard.page.locator("#banner button").dispatch_event("click")
    dashboard.until_state(key, "completed")
    expect(dashboard.page.locator("#banner")).to_be_hidden()


def test_a_list_that_is_not_live_tells_when_it_last_was_and_not_when_it_was_fetched(
    serve_process, open_on_process, broker
):
    dashboard = open_on_process()
    dashboard.await_live()
    told = "document.querySelector('#banner-text').textContent.match(/[0-9]+:[0-9]+:[0-9]+/)[0]"
    clock = "new Date().toLocaleTimeString('en-GB')"
    fetched = dashboard.page.evaluate(clock)
    dashboard.page.wait_for_function(f"() => {clock} > '{fetched}'")
    dashboard.row(report(broker, "7")).wait_for()  # it is kept up by the stream meanwhile
    dashboard.page.route(LIST, lambda route: route.fulfill(status=503, json={"detail": "away"}))
    serve_process.kill()
    expect(dashboard.page.locator("html")).to_have_attribute("data-live", "no")  # all is taken in
    gone = dashboard.page.evaluate(clock)
    serve_process.start()
    dashboard.page.locator("#banner button").click()
    expect(dashboard.page.locator("#banner")).to_contain_text("The list shown is that of")
    assert fetched < dashboard.page.evaluate(told) <= gone


def test_a_list_that_cannot_be_read_leaves_the_one_that_is_shown(
    serve_process, open_on_process, broker
):
    keys = [report(broker, str(n)) for n in range(3)]
    dashboard = open_on_process()
    dashboard.await_live()
    answers = []

    def refuse(route):
        answers.append(route)
        route.fulfill(status=503, json={"rule": "unavailable", "detail": "Redis is away"})

    dashboard.page.route(LIST, refuse)
    serve_process.kill()
    serve_process.start()  # it does not know where the page stood: the page lists anew
    dashboard.page.locator("#banner button").click()
    until(lambda: dashboard.page.wait_for_timeout(10) or answers)
    expect(dashboard.page.locator("#banner")).to_contain_text(
        re.compile("The list shown is that of")
    )
    assert set(dashboard.painted()) == set(keys)
    fourth = report(broker, "4th")
    dashboard.until_state(fourth, "running")  # changes go on
    dashboard.page.unroute(LIST)
    dashboard.page.locator("#banner button").dispatch_event(
        "click"
    )  # hidden, where it listed by itself
    dashboard.await_live()
    assert dashboard.painted() == dashboard.listed()
