"""Ten thousand jobs: few rows in the page, none that cannot be reached, and frames that keep coming."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from broker import Broker
from broker import settings as settings_of
from broker.store.store import Store
from broker.web.server import serving
from tests.system.command import reported, until

MANY = 10_000
ROWS_MAX = 80
#: What one row writes when it becomes another one's: nine cells, and what it says of itself.
ROW_WRITES = 16
#: When the first was created, epoch ms.
BEGUN = 1_700_000_000_000

#: Frames in which the list is scrolled on from `at` by a step in pixels: ms of each, and what was written in it.
_SCROLLED = """async ([at, step]) => {
    const place = document.querySelector("#jobs-list .grid-scroll");
    const frames = [];
    const writes = [];
    let written = 0;
    const watched = new MutationObserver((all) => { written += all.length; });
    watched.observe(place, {subtree: true, childList: true, attributes: true, characterData: true});
    let rows = 0;
    let before = await new Promise(requestAnimationFrame);
    for (let n = 1; n <= 30; n++) {
        place.scrollTop = at + n * step;
        const now = await new Promise(requestAnimationFrame);
        frames.push(now - before);
        before = now;
        rows = Math.max(rows, document.querySelectorAll("#jobs-list [data-key]").length);
        writes.push(written);
        written = 0;
    }
    watched.disconnect();
    return {frames, writes, rows, top: place.scrollTop};
}"""

#: The same of the least that any list would cost: a screen of plain cells, all written anew.
_PLAIN = """async () => {
    const sheet = document.createElement("div");
    sheet.style = "position: fixed; inset: 0; z-index: 9; overflow: hidden; background: white";
    for (let row = 0; row < 40; row++) {
        const line = sheet.appendChild(document.createElement("div"));
        line.style = "display: flex; height: 24px";
        for (let cell = 0; cell < 9; cell++) line.appendChild(document.createElement("span")).style.flex = "1";
    }
    document.body.append(sheet);
    const cells = sheet.querySelectorAll("span");
    const frames = [];
    let before = await new Promise(requestAnimationFrame);
    for (let n = 1; n <= 30; n++) {
        for (const cell of cells) cell.textContent = `cell ${n}`;
        const now = await new Promise(requestAnimationFrame);
        frames.push(now - before);
        before = now;
    }
    sheet.remove();
    return frames;
}"""
TURNS = 5


@pytest.fixture(scope="module")
def ten_thousand(redis_url: str) -> Iterator[tuple[Broker, str]]:
    """They stand on a server of their own, for the whole module."""
    namespace = "ten-thousand"

    def client() -> Broker:
        given = {"namespace": namespace, "node": "desk", "listen": "127.0.0.1:0"}
        return Broker(Store.from_url(redis_url, namespace), settings_of(**given))

    states = ("queued", "running", "completed", "failed")
    with client() as broker, serving(client()) as url:
        events = (
            reported(f"{n:05}", states[n % 4], created_at=BEGUN + n, seq=1) for n in range(MANY)
        )
        assert all(outcome.ok for outcome in broker.report_many(events))
        yield broker, url


@pytest.fixture
def many(ten_thousand, open_dashboard):
    dashboard = open_dashboard("/jobs", at=ten_thousand[1])
    dashboard.await_live()
    return dashboard


def test_ten_thousand_rows_are_scrolled_with_few_in_the_page(many, ten_thousand, record_property):
    broker, _ = ten_thousand
    assert many.text("#jobs-count").startswith("10,000")
    stop, changes = threading.Event(), threading.Event()

    def churn() -> None:
        for n in range(MANY):
            changes.wait()
            if stop.wait(0.005):
                return
            broker.report(reported(f"{n:05}", "running", seq=2, created_at=BEGUN + n))

    thread = threading.Thread(target=churn, name="churn")
    thread.start()
    plain, frames, writes, rows, top = [], [], [], 0, 0
    try:
        # In turns: what slows the machine down slows down both.
        for _ in range(TURNS):
            changes.clear()
            plain += many.page.evaluate(_PLAIN)
            changes.set()
            found = many.page.evaluate(_SCROLLED, [top, 2_000])
            frames += found["frames"]
            writes += found["writes"]
            rows, top = max(rows, found["rows"]), found["top"]
    finally:
        stop.set()
        changes.set()
        thread.join()
    frames.sort()
    told = {
        "plain p50": sorted(plain)[75],
        "p50": frames[75],
        "p95": frames[142],
        "max": frames[-1],
        "rows": rows,
        "most writes": max(writes),
    }
    record_property("frames_ms", told)
    print(f"150 frames, 10,000 jobs of which 200 a second change, ms: {told}")
    assert top > 290_000
    assert rows < ROWS_MAX
    # In one frame a row may be written by the scrolling and by a change, and what is out of sight by none.
    assert 0 < max(writes) <= 2 * ROW_WRITES * rows
    assert told["p50"] <= 4 * told["plain p50"]
    # Nor do a few giant frames hide behind the usual one: half of all may have been quick.
    assert sum(frames) <= 10 * sum(plain)


def test_the_last_row_is_reached_by_the_keyboard_and_the_first_again(many):
    first, last = (f"desk/ollama//{n:05}" for n in (MANY - 1, 0))
    assert many.row(first).is_visible()
    many.page.keyboard.press("End")
    until(lambda: many.row(last).count() == 1)
    assert many.row(last).get_attribute("data-active") is not None
    many.page.keyboard.press("Home")
    until(lambda: many.row(first).count() == 1)
    many.page.keyboard.press("j")
    many.page.keyboard.press("Enter")
    many.page.locator(".job-key", has_text=f"{MANY - 2:05}").wait_for()
    many.page.keyboard.press("Escape")
    many.row(f"desk/ollama//{MANY - 2:05}").wait_for()
