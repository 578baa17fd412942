"""Logging in: who may look, what a browser keeps of it, and where the token never is."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Route, expect

from tests.browser.test_list import report
from tests.system.command import until

TOKEN = "a-token-of-32-characters-at-least"
#: What Chromium itself tells of an answer that is no success.
DENIED = "401"


@pytest.fixture
def url(serve):
    return serve(token=TOKEN)


def log_in(page, token: str = TOKEN) -> None:
    expect(page.locator("#login button")).to_be_enabled()  # its program has come
    page.locator("#token").fill(token)
    page.locator("#token").press("Enter")


def test_whoever_comes_without_a_token_is_asked_for_it_and_led_back(open_dashboard, broker):
    key = report(broker, "7")
    dashboard = open_dashboard("/jobs?state=running", allow=DENIED)
    expect(dashboard.page).to_have_url(re.compile("/login"))
    log_in(dashboard.page)
    expect(dashboard.page).to_have_url(re.compile(r"/jobs\?state=running$"))
    dashboard.until_state(key, "running")


def test_a_wrong_token_lets_nobody_in(open_dashboard):
    dashboard = open_dashboard("/login", allow=DENIED)
    log_in(dashboard.page, "another-token-of-the-same-length")
    expect(dashboard.page.locator("#login-error")).to_contain_text("not the token")
    expect(dashboard.page.locator("#token")).to_be_focused()
    assert not dashboard.page.context.cookies()
    assert dashboard.page.request.get(f"{dashboard.url}/v1/jobs").status == 401


def test_the_browser_keeps_a_cookie_that_no_script_reads_and_no_other_page_sends(open_dashboard):
    dashboard = open_dashboard("/login")
    log_in(dashboard.page)
    dashboard.await_live()
    [cookie] = dashboard.page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert TOKEN not in cookie["value"]
    assert dashboard.page.evaluate("document.cookie") == ""


def test_a_token_that_is_sent_before_the_program_has_come_waits_for_it(open_dashboard):
    dashboard = open_dashboard("/login")
    page = dashboard.page
    program: list[Route] = []
    posted: list[str] = []
    page.route("**/static/login.js", lambda route: program.append(route))  # noqa: PLW0108 - playwright marks it
    page.on("request", lambda asked: posted.append(asked.url) if asked.method == "POST" else None)
    page.goto(f"{dashboard.url}/login", wait_until="commit")
    page.locator("#token").fill(TOKEN)
    page.locator("#token").press("Enter")
    until(lambda: page.wait_for_timeout(10) or program)
    assert page.locator("#token").input_value() == TOKEN
    assert not posted
    program.pop().continue_()
    page.locator("#login button").click()
    dashboard.await_live()


def test_what_was_pasted_around_a_token_is_no_part_of_it(open_dashboard):
    dashboard = open_dashboard("/login")
    log_in(dashboard.page, f"  {TOKEN}\t ")
    dashboard.await_live()


def test_the_token_is_in_no_address_and_in_no_storage(open_dashboard, broker):
    dashboard = open_dashboard("/login")
    asked: list[str] = []
    dashboard.page.on("request", lambda request: asked.append(request.url))
    dashboard.page.on("framenavigated", lambda frame: asked.append(frame.url))
    log_in(dashboard.page)
    dashboard.await_live()
    dashboard.page.keyboard.press("t")  # something is stored: the theme
    kept = dashboard.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert json.loads(kept)[0], "nothing is kept at all"
    assert any("/login" in each for each in asked)
    for said in (
        kept,
        dashboard.page.content(),
        dashboard.page.evaluate("JSON.stringify(history.state)") or "",
        *asked,
    ):
        assert TOKEN not in said


def test_who_logs_out_is_out(open_dashboard):
    dashboard = open_dashboard("/login", allow=DENIED)
    log_in(dashboard.page)
    dashboard.await_live()
    assert dashboard.page.request.get(f"{dashboard.url}/v1/jobs").ok
    dashboard.page.locator("#logout").click()
    expect(dashboard.page).to_have_url(re.compile("/login"))
    assert not dashboard.page.context.cookies()
    dashboard.open("/jobs")
    expect(dashboard.page).to_have_url(re.compile("/login"))


def test_a_login_that_ends_while_the_page_is_open_is_told(open_dashboard):
    dashboard = open_dashboard("/login", allow=DENIED)
    log_in(dashboard.page)
    dashboard.await_live()
    dashboard.page.context.clear_cookies()
    dashboard.page.keyboard.press("j")
    dashboard.page.reload()
    expect(dashboard.page.locator("#token")).to_be_visible()
