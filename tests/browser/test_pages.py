"""Every page as people see it, dark and light, wide and narrow: pictures to look at, and what axe-core finds.

The pictures go to the folder that FLEET_BROKER_SCREENSHOTS names, else to build/screenshots.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from broker import Broker
from broker import settings as settings_of
from broker.errors import Damaged
from broker.readers.readers import Readers
from broker.store.audited import Audited
from broker.store.store import Store
from broker.web.server import serving
from tests.browser import fleet
from tests.browser.conftest import PATIENCE_MS, WIDE, Watched
from tests.browser.dashboard import Dashboard
from tests.system.command import ROOT

SCREENSHOTS = Path(os.environ.get("FLEET_BROKER_SCREENSHOTS") or ROOT / "build/screenshots")
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
NARROW = {"width": 390, "height": 844}

#: Page -> its address, and what is there once it is painted.
PAGES = {
    "nodes": ("/nodes", "[data-node=attic] [data-slot=silent]"),
    "failures": ("/failures", ".listing tbody tr"),
    "groups": ("/groups?parked=webhooks", ".panel:last-child tbody tr"),
    "streams": ("/streams", ".judged .term"),
    "jobs": ("/jobs", "#jobs-list [data-state='running?']"),
    "jobs-filtered": ("/jobs?state=failed&q=memory", "#jobs-list [data-key]"),
    "job": ("/jobs/phone%2Follama%2F%2F7", "#timeline tr.refused"),
    "job-running": ("", "#output"),
    "job-hostile": (f"/jobs/{quote('phone/ollama//' + quote(fleet.HOSTILE_ID), safe='')}", "#why"),
    "overview": (
        "/",
        "#truth[data-tone=good]",
    ),  # last: its lines of the last minutes have something to show
}


@pytest.fixture(scope="module")
def stand(redis_url: str) -> Iterator[tuple[str, str, Broker]]:
    """A fleet as people have it, and its server: the url, the key of a job that runs, and a client."""
    namespace = "pages"

    def client() -> Broker:
        given = {"namespace": namespace, "node": "desk", "listen": "127.0.0.1:0"}
        return Broker(Store.from_url(redis_url, namespace), settings_of(**given))

    with client() as broker:
        running = fleet.populate(broker)
        fleet.fall_silent(broker)
        fleet.subscribe(broker)
        fleet.audit(broker)
        broker.flag_node("nas", "drained")
        broker.tell_node("atlas", pressure=3, models=["llama3.1:8b", "qwen3:14b"])
        with fleet.beating(broker, running), serving(client()) as url:
            yield url, next(iter(running.values())), broker


@pytest.fixture(scope="module")
def browsers(chromium, stand) -> Iterator[dict[str, tuple[Dashboard, Watched]]]:
    """One for each colour scheme, open through all pages."""
    url, *_ = stand
    made = {}
    for scheme in ("dark", "light"):
        context = chromium.new_context(viewport=WIDE, color_scheme=scheme, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        # A failed job has no result: asking for the whole of its error, where that may be cut, is answered by 409.
        watched = Watched(page, url, r"status of 409 .*/result\)$")
        made[scheme] = Dashboard(page, url), watched
        made[scheme][0].open("/")
    yield made
    for dashboard, _ in made.values():
        dashboard.page.context.close()


def findings(page: Any) -> list[str]:
    """What axe-core finds that is serious or critical, a line each."""
    page.evaluate(f"() => {{ if (!window.axe) {{ {AXE} }} }}")
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['impact']} {one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def look(dashboard: Dashboard, name: str) -> list[str]:
    """Take the picture, and have axe-core look at the very same."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    dashboard.page.screenshot(path=SCREENSHOTS / f"{name}.png")
    return findings(dashboard.page)


#: Whether anything reaches beyond the right edge of the page.
_TOO_WIDE = """() => [document.documentElement, document.querySelector("#main")]
    .some((element) => element.scrollWidth > element.clientWidth)"""


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_used_by_everybody(browsers, stand, page, scheme):
    dashboard, watched = browsers[scheme]
    _, runs, broker = stand
    address, painted = PAGES[page]
    address = address or f"/jobs/{quote(runs, safe='')}"
    # As often as an auditor goes round: a page that is looked at late is no other one.
    Audited(broker.store).tell(replace(broker.audit(), at=broker.store.clock.now()))
    dashboard.page.set_viewport_size(WIDE)
    # As a link does: the page is not loaded anew.
    dashboard.page.evaluate(
        "(path) => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }",
        address,
    )
    found = []
    for name, size in (("wide", WIDE), ("narrow", NARROW)):
        dashboard.page.set_viewport_size(size)
        dashboard.page.locator(painted).first.wait_for(state="attached")
        dashboard.await_live()
        # What is read beside the stream is there, too, and nothing of the view before.
        expect(dashboard.page.locator(".view")).to_have_attribute(
            "data-view", page.partition("-")[0]
        )
        dashboard.page.wait_for_timeout(150)
        found += look(dashboard, f"{page}-{name}-{scheme}")
        assert not dashboard.page.evaluate(_TOO_WIDE), f"{name} is wider than its window"
    assert not found, "\n".join(found)
    watched.check()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_question_can_be_answered_by_everybody(browsers, scheme):
    dashboard, watched = browsers[scheme]
    dashboard.page.set_viewport_size(WIDE)
    dashboard.open("/jobs?state=queued")
    dashboard.page.locator("#choose-all").click()
    dashboard.page.locator("#bulk-cancel").click()
    dashboard.page.locator("#preview-count").wait_for()
    found = look(dashboard, f"dialog-wide-{scheme}")
    dashboard.page.set_viewport_size(NARROW)
    found += look(dashboard, f"dialog-narrow-{scheme}")
    dashboard.page.keyboard.press("Escape")
    expect(dashboard.page.locator("dialog")).to_have_count(0)
    assert not found, "\n".join(found)
    watched.check()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_what_is_chosen_and_what_is_not_live_can_be_read_by_everybody(
    browsers, scheme, monkeypatch
):
    dashboard, watched = browsers[scheme]
    dashboard.page.set_viewport_size(WIDE)
    dashboard.open("/jobs")
    dashboard.page.locator("#choose-all").click()
    expect(dashboard.page.locator("#jobs-list [aria-selected=true]")).not_to_have_count(0)
    found = look(dashboard, f"chosen-wide-{scheme}")
    monkeypatch.setattr(Readers, "trouble", property(lambda _: Damaged("a log of a wrong type")))
    expect(dashboard.page.locator("html")).to_have_attribute("data-live", "no")
    found += look(dashboard, f"not-live-wide-{scheme}")
    assert not found, "\n".join(found)
    watched.check()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_login_can_be_used_by_everybody(chromium, serve, scheme):
    url = serve(token="a-token-of-32-characters-at-least")
    context = chromium.new_context(viewport=WIDE, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    dashboard = Dashboard(context.new_page(), url)
    watched = Watched(dashboard.page, url, "")
    dashboard.open("/login")
    found = look(dashboard, f"login-wide-{scheme}")
    dashboard.page.set_viewport_size(NARROW)
    found += look(dashboard, f"login-narrow-{scheme}")
    context.close()
    assert not found, "\n".join(found)
    watched.check()
