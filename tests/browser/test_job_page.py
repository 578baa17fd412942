"""The page of one job: its timeline with what was refused, why it is as it is, what it writes while it runs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.fleet import HOSTILE_ERROR, HOSTILE_ID
from tests.system.command import guessed, held, reported


@pytest.fixture
def late(broker):
    """A reported job with one refused event."""
    for event in (
        reported(seq=1, state="queued"),
        reported(seq=3),
        reported(seq=2, state="queued"),
    ):
        broker.report(event | {"node": "atlas"})
    return "desk/ollama//7"


def test_the_timeline_greys_what_was_refused_and_names_the_rule(open_dashboard, late):
    page = open_dashboard("/jobs/desk%2Follama%2F%2F7").page
    rows = page.locator("#timeline tbody tr")
    expect(rows).to_have_count(3)
    assert [rows.nth(n).get_attribute("data-rule") for n in range(3)] == [
        "first_sighting",
        "higher_seq",
        "stale_seq",
    ]
    refused = page.locator("#timeline tr.refused")
    expect(refused).to_have_count(1)
    expect(refused).to_contain_text("stale_seq")
    look = "element => getComputedStyle(element.querySelector('td:nth-child(3)')).color"
    assert refused.evaluate(look) != rows.nth(0).evaluate(look)


def test_the_timeline_grows_while_it_is_looked_at(open_dashboard, broker, late):
    page = open_dashboard("/jobs/desk%2Follama%2F%2F7").page
    expect(page.locator("#timeline tbody tr")).to_have_count(3)
    broker.report(reported(seq=4, state="completed") | {"node": "atlas"})
    expect(page.locator("#timeline tr[data-rule=higher_seq]")).to_have_count(2)
    expect(page.locator(".job-head .state")).to_have_attribute("data-state", "completed")


#: The times of a timeline of refusals at these instants, in epoch ms; null is now.
_TIMES = """async (instants) => {
    const { paintTimeline } = await import("/static/timeline.js");
    const { now } = await import("/static/format.js");
    const place = document.createElement("section");
    const read = now();
    const refusal = { rule: "stale_seq", event: "report", node: "", count: 1, by: "" };
    const refused = instants.map((at) => ({ at: at ?? read, ...refusal }));
    paintTimeline(place, { entries: [], refused, whole: true });
    return [...place.querySelectorAll("time")].map((time) => time.textContent);
}"""


def test_the_timeline_tells_the_day_where_it_is_another_one(open_dashboard):
    page = open_dashboard("/jobs", timezone_id="Asia/Tokyo").page
    for today in page.evaluate(_TIMES, [None, None]):
        assert re.fullmatch(r"\d\d:\d\d:\d\d", today)
    late, early = 1_700_006_399_000, 1_700_006_400_000
    assert page.evaluate(_TIMES, [late - 1_000, late, early]) == [
        "2023-11-14 23:59:58",
        "23:59:59",
        "2023-11-15 00:00:00",
    ]


def test_why_tells_the_rule_that_decided_and_what_would_change_it(open_dashboard, late):
    page = open_dashboard("/jobs/desk%2Follama%2F%2F7").page
    expect(page.locator("#why-rule")).to_have_text("higher_seq")
    expect(page.locator("#why")).to_contain_text("stale_seq")
    assert page.locator("#why-next li").count() >= 1


def test_why_shows_commands_as_such(open_dashboard, broker):
    key = broker.submit("echo", id="7").key
    page = open_dashboard(f"/jobs/{str(key).replace('/', '%2F')}").page
    cancel = page.locator("#why-next code", has_text="broker cancel")
    expect(cancel).to_have_text(f"broker cancel {key}")
    assert "`" not in page.locator("#why").inner_text()


def test_why_tells_of_a_guess_what_it_replaced(open_dashboard, broker):
    key = broker.submit("echo", id="7").key
    held(broker, key)
    guessed(broker, key)
    page = open_dashboard("/jobs/desk%2Fecho%2F%2F7").page
    expect(page.locator("#why")).to_contain_text("guess_applied")
    expect(page.locator("#why")).to_contain_text("in place of running")
    expect(page.locator(".job-head .state")).to_have_attribute("data-state", "failed~")


def test_what_it_writes_is_shown_while_it_runs(open_dashboard, broker):
    key = broker.submit("echo", id="7").key
    holder = held(broker, key)
    holder.write("first\n")
    page = open_dashboard("/jobs/desk%2Fecho%2F%2F7").page
    expect(page.locator("#output")).to_have_text(re.compile("first"))
    holder.write(f"second {HOSTILE_ERROR}\n")
    holder.progress(0.5)
    expect(page.locator("#output")).to_have_text(re.compile("second <script>"))
    expect(page.locator("#lane progress")).to_have_attribute("value", "0.5")
    holder.finish("completed", result={"width": 120})
    expect(page.locator("#result")).to_contain_text('"width": 120')


def test_an_end_of_a_key_leads_to_its_job_also_where_the_id_is_hostile(open_dashboard, broker):
    broker.report(reported(HOSTILE_ID, "failed", error=HOSTILE_ERROR))
    dashboard = open_dashboard("/jobs", allow="409")  # its error may be cut: the whole is asked for
    dashboard.page.locator("#jobs-list [data-key] a").click()
    expect(dashboard.page.locator(".job-key")).to_contain_text("onerror=")
    dashboard.page.reload()
    expect(dashboard.page.locator(".job-head .state")).to_have_attribute("data-state", "failed")
    expect(dashboard.page.locator("#timeline")).to_contain_text("<script>alert(1)</script>")
    assert dashboard.page.locator("main img, main script, main b").count() == 0
    broker.report(reported("9"))
    dashboard.open("/jobs/ollama/9")
    expect(dashboard.page.locator(".job-key")).to_have_text("desk/ollama//9")


def test_it_can_be_cancelled_from_its_page(open_dashboard, broker):
    key = broker.submit("echo", id="7").key
    dashboard = open_dashboard("/jobs/desk%2Fecho%2F%2F7")
    dashboard.page.locator("#job-cancel").click()
    dashboard.confirm()
    expect(dashboard.page.locator(".job-head .state")).to_have_attribute("data-state", "cancelled")
    assert broker.get(key).state == "cancelled"


def test_one_that_is_gone_is_told_so(open_dashboard, broker, late):
    page = open_dashboard("/jobs/desk%2Follama%2F%2F7", allow="404").page
    expect(page.locator("#timeline tbody tr")).to_have_count(3)
    broker.remove(late)
    expect(page.locator(".job-head .state")).to_have_attribute("data-state", "gone")
    expect(page.locator("main .note")).to_contain_text("It is gone")


def test_the_whole_of_a_cut_error_is_shown_of_reported_jobs_too(open_dashboard, broker):
    long = "Traceback (most recent call last)\n" + "  a line of it\n" * 20 + "KeyError: 7"
    broker.report(reported(seq=1, state="failed", error=long))
    broker.report(reported("8", seq=1, state="failed", error="no such file"))
    page = open_dashboard("/jobs/desk%2Follama%2F%2F7", allow="409").page
    expect(page.locator("#result h2")).to_have_text("Error")
    expect(page.locator("#result pre")).to_have_text(long)
    page = open_dashboard("/jobs/desk%2Follama%2F%2F8").page
    expect(page.locator("#timeline tbody tr")).not_to_have_count(0)
    expect(page.locator("#result")).to_be_hidden()
