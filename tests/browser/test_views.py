"""Overview, nodes, failures, groups and streams: what they say, in the cases that matter."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from broker import Broker, WorkerInfo
from broker import settings as settings_of
from broker.errors import Damaged
from broker.readers.readers import Readers
from broker.rules.liveness import Budgets
from broker.store import health
from broker.store.audited import Audited, AuditSeen
from broker.store.lease import FENCED_ROLES, Lease
from broker.store.store import Store
from broker.web.server import serving
from tests.browser import fleet
from tests.browser.test_list import LIST, HeldAnswer, report
from tests.system.command import PATIENCE_MS, guessed, held, reported, until

_STYLES = "all => all.map((one) => getComputedStyle(one).fontStyle)"


def tile(page, label):
    """One figure of the overview."""
    return page.locator(".tile", has=page.get_by_text(label, exact=True)).locator(".tile-value")


class TestTheLight:
    """Green says that the list is true: it must never shine where nobody has looked."""

    def test_is_not_green_where_no_audit_was_made(self, open_dashboard):
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_contain_text("No audit yet")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "doubt")

    def test_is_green_after_a_fresh_round_that_found_nothing(self, open_dashboard, broker):
        report(broker, "7")
        fleet.audit(broker)
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_have_attribute("data-tone", "good")
        expect(page.locator("#truth")).to_contain_text("0 ghosts")

    def test_is_no_older_while_the_jobs_are_still_listed(self, open_dashboard, broker):
        fleet.audit(broker)
        page = open_dashboard("/login").page
        listed = HeldAnswer(page)
        page.goto(page.url.removesuffix("/login"))
        expect(page.locator("#connection")).to_have_text("listing")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "good")
        listed.await_read()
        listed.release()
        expect(page.locator("#connection")).to_have_text("live")

    def test_is_not_green_where_the_last_round_is_old(self, open_dashboard, broker):
        now = broker.store.clock.now()
        Audited(broker.store).tell(AuditSeen(at=now - 301_000, origins=1))
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_contain_text(
            re.compile("The last audit ended [5-9]m ago")
        )
        expect(page.locator("#truth")).to_have_attribute("data-tone", "doubt")

    def test_is_not_green_where_the_list_is_behind_the_logs(
        self, open_dashboard, broker, monkeypatch
    ):
        fleet.audit(broker)
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_have_attribute("data-tone", "good")
        monkeypatch.setattr(Readers, "age_seconds", property(lambda _: 25.0))
        expect(page.locator("#truth")).to_contain_text("The list is 25s behind the logs")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "doubt")

    def test_names_what_was_found(self, open_dashboard, broker):
        now = broker.store.clock.now()
        Audited(broker.store).tell(AuditSeen(at=now, origins=1, ghosts=2, stuck=1))
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_contain_text("2 ghosts, 1 stuck job")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "bad")

    def test_is_not_green_where_an_origin_could_not_be_audited(self, open_dashboard, broker):
        now = broker.store.clock.now()
        Audited(broker.store).tell(AuditSeen(at=now, origins=2, unread=1))
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_contain_text("1 origin could not be audited")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "doubt")

    def test_is_not_green_where_a_role_lost_its_leader(self, open_dashboard, broker):
        fleet.audit(broker)
        leases = [Lease(broker.store, role, "x", 600_000) for role in FENCED_ROLES[1:]]
        for lease in leases:
            lease.hold()
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_have_attribute("data-tone", "good")
        for lease in leases[:2]:
            lease.release()
        expect(page.locator("#truth")).to_contain_text(
            "No broker serve leads as dispatcher, janitor"
        )
        expect(page.locator("#truth")).to_have_attribute("data-tone", "doubt")
        for lease in leases[:2]:
            lease.hold()
        expect(page.locator("#truth")).to_have_attribute("data-tone", "good")

    def test_is_not_green_where_redis_cannot_write(self, open_dashboard, broker, monkeypatch):
        fleet.audit(broker)
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_have_attribute("data-tone", "good")
        full = replace(health.read(broker.store), aof_ok=False)
        monkeypatch.setattr("broker.fleet.overview.read", lambda _: full)
        expect(page.locator("#truth")).to_contain_text("Redis cannot write its log")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "doubt")

    def test_still_names_what_was_found_where_redis_cannot_write(
        self, open_dashboard, broker, monkeypatch
    ):
        now = broker.store.clock.now()
        Audited(broker.store).tell(AuditSeen(at=now, origins=1, ghosts=2))
        full = replace(health.read(broker.store), aof_ok=False)
        monkeypatch.setattr("broker.fleet.overview.read", lambda _: full)
        page = open_dashboard("/").page
        expect(page.locator("#truth")).to_contain_text("2 ghosts")
        expect(page.locator("#truth")).to_have_attribute("data-tone", "bad")


def test_the_overview_counts_what_there_is_and_follows_it(open_dashboard, broker):
    keys = [broker.submit("echo", id=str(n)).key for n in range(3)]
    held(broker, keys[0])
    guessed(broker, keys[0])
    page = open_dashboard("/").page
    expect(tile(page, "Waiting")).to_have_text("2")
    expect(tile(page, "Guesses ~")).to_have_text("1")
    expect(page.locator(".listing", has_text="echo")).to_contain_text("no node offers it")
    broker.cancel(keys[1])
    expect(tile(page, "Waiting")).to_have_text("1")


class TestTrouble:
    """The server says at once why nothing is known: the page need not wait until it has heard nothing for long."""

    def test_is_told_at_once_and_until_it_is_over(self, open_dashboard, monkeypatch):
        met = [None]
        monkeypatch.setattr(Readers, "trouble", property(lambda _: met[-1]))
        dashboard = open_dashboard("/")
        dashboard.await_live()
        page = dashboard.page
        met.append(Damaged("a log of a wrong type"))  # the pulse goes on meanwhile
        expect(page.locator("#banner")).to_contain_text("ago): a log of a wrong type.")
        expect(page.locator("#banner button")).to_be_hidden()
        expect(page.locator("#connection")).to_have_text("not live")
        expect(page.locator("html")).to_have_attribute("data-live", "no")
        expect(page.locator("#banner")).to_contain_text(re.compile(r"\((?![0-6]s).* ago\): a log"))
        met.append(None)
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator("#banner")).to_be_hidden()

    def test_of_redis_is_told_by_its_cause(self, open_dashboard, server, namespace):
        store = Store.from_url(f"redis://127.0.0.1:{server.port}", namespace)
        with serving(
            Broker(store, settings_of(namespace=namespace, node="desk", listen="127.0.0.1:0"))
        ) as at:
            dashboard = open_dashboard("/", at=at, allow="Failed to load resource")
            dashboard.await_live()
            page = dashboard.page
            server.stop()
            expect(page.locator("#connection")).to_have_attribute("data-state", "troubled")
            expect(page.locator("#banner")).to_contain_text("ago): Redis ")
            server.start()
            expect(page.locator("#connection")).to_have_text("live")

    def test_fades_the_figures_of_every_table_on_the_overview(
        self, open_dashboard, serve, broker, monkeypatch
    ):
        met = [None]
        monkeypatch.setattr(Readers, "trouble", property(lambda _: met[-1]))
        broker.beat(WorkerInfo("w-1", "atlas", "ollama", 1, 1))
        # It beats once, and offers its slot for as long as the page may take to come.
        at = serve(budgets=Budgets(suspect_ms=PATIENCE_MS))
        page = open_dashboard("/", at=at).page
        expect(page.locator(".listing td[data-head=Slots]")).to_have_text("1")
        expect(page.locator(".listing td[data-head=Beat]")).to_contain_text("ago")
        expect(page.locator("html")).to_have_attribute("data-live", "yes")
        figures = page.locator(".tile-value, .listing td[data-kind=number], td[data-head=Beat]")
        assert set(figures.evaluate_all(_STYLES)) == {"normal"}
        met.append(Damaged("a log of a wrong type"))
        expect(page.locator("html")).to_have_attribute("data-live", "no")
        assert set(figures.evaluate_all(_STYLES)) == {"italic"}


class TestNodes:
    @pytest.fixture
    def nodes(self, open_dashboard, broker, redis_url, namespace):
        """Two nodes whose workers beat, one that fell silent; a job runs on atlas, one is placed there."""
        runs, waits = (broker.submit("ollama", id=id).key for id in ("runs", "waits"))
        fleet.start(broker, runs, "atlas", "atlas-ollama-0")
        fleet.place(broker, waits, "atlas")
        report(broker, "told")
        fleet.fall_silent(broker)
        with fleet.beating(broker, {"atlas-ollama-0": str(runs)}):
            dashboard = open_dashboard("/nodes")
            dashboard.await_live()  # how many jobs are where is known from now on
            yield dashboard.page

    def test_show_their_slots_and_what_is_in_flight_against_what_runs(self, nodes):
        card = nodes.locator("[data-node=atlas]")
        expect(card.locator("[data-slot=busy]")).to_have_count(1)
        expect(card.locator("[data-slot=free]")).to_have_count(5)
        expect(card).to_contain_text("1 of 4 run")
        expect(card).to_contain_text("in flight 2: 1 started, 1 placed; workers run 1; 1 reported")
        card.locator("a[data-slot=busy]").click()
        expect(nodes.locator(".job-key")).to_have_text("desk/ollama//runs")

    def test_that_fell_silent_carry_the_mark(self, nodes):
        card = nodes.locator(f"[data-node={fleet.SILENT}]")
        expect(card).to_contain_text("silent ?")
        expect(card.locator("[data-slot=silent]")).to_have_text(["?", "?"])
        expect(card).to_contain_text(re.compile(r"beat (9\ds|1[01]\ds|[2-9]m) ago"))
        expect(nodes.locator("h1 + .dim")).to_contain_text("3 of 4 up")

    def test_that_fell_silent_stand_first_on_the_overview_and_are_missed_in_the_rail(self, nodes):
        figure = nodes.locator("#nav [data-page=nodes] .nav-figure")
        expect(figure).to_have_text("3 of 4")
        nodes.set_viewport_size({"width": 390, "height": 844})
        expect(figure).to_be_visible()
        expect(nodes.locator("#nav .nav-figure:visible")).to_have_count(1)
        nodes.locator("#nav [data-page=overview]").click()
        rows = nodes.locator(".panel", has=nodes.get_by_role("heading", name="Nodes")).locator(
            "tbody tr"
        )
        expect(rows).to_have_count(4)
        expect(rows.first).to_contain_text(fleet.SILENT)
        expect(rows.first).to_contain_text("silent ?")

    def test_are_not_said_to_be_empty_before_the_jobs_are_listed(self, nodes):
        nodes.route(LIST, lambda _: None)  # no list is ever answered
        nodes.reload()
        card = nodes.locator("[data-node=atlas]")
        card.locator("[data-verb=drain]").click()
        expect(nodes.locator("dialog")).to_contain_text("Not every job is listed")

    def test_lead_to_the_jobs_in_flight_there(self, nodes):
        nodes.locator("[data-node=atlas] .facts a").click()
        expect(nodes.locator("#jobs-count")).to_have_text("3 jobs")
        expect(nodes.locator("#filter-node")).to_have_value("atlas")

    def test_are_drained_once_it_is_confirmed_with_what_becomes_of_their_jobs(self, nodes, broker):
        card = nodes.locator("[data-node=atlas]")
        card.locator("[data-verb=drain]").click()
        expect(nodes.locator("dialog")).to_contain_text("1 job running there: left to end")
        expect(nodes.locator("dialog")).to_contain_text("1 job waiting there: placed elsewhere")
        assert not broker.fleet.flags()
        nodes.locator("#dialog-yes").click()
        expect(card).to_contain_text("drained")
        assert broker.fleet.flags() == {"atlas": "drained"}
        card.locator("[data-verb=resume]").click()
        nodes.locator("#dialog-yes").click()
        expect(card.locator("[data-verb=resume]")).to_have_count(0)
        assert not broker.fleet.flags()

    def test_tell_what_becomes_of_one_job_as_of_one(self, nodes):
        nodes.locator("[data-node=atlas] [data-verb=dead]").click()
        fates = nodes.locator("dialog .fates li")
        expect(fates.nth(0)).to_have_text("1 job running there: given up once its worker is silent")
        expect(fates.nth(2)).to_contain_text("doubted once its origin is silent about it")

    def test_that_are_silent_can_be_marked_dead_and_removed(self, nodes, broker):
        card = nodes.locator(f"[data-node={fleet.SILENT}]")
        expect(card).to_have_attribute("data-suspect", "yes")
        card.locator("[data-verb=dead]").click()
        expect(nodes.locator("dialog")).to_contain_text(f"Mark {fleet.SILENT} dead?")
        nodes.locator("#dialog-yes").click()
        expect(card).to_contain_text("dead, silent ?")
        expect(card).not_to_have_attribute("data-suspect", "yes")  # it is in no doubt any more
        card.locator("[data-verb=remove]").click()
        nodes.locator("#dialog-yes").click()
        expect(card).to_have_count(0)
        assert fleet.SILENT not in {seen.name for seen in broker.nodes()}


def test_failures_are_grouped_and_lead_to_their_jobs(open_dashboard, broker):
    for n in range(3):
        report(broker, f"oom-{n}", "failed", error=f"CUDA out of memory: {n * 512} MiB (GPU {n})")
    report(broker, "file", "failed", error="no such file: /mnt/a.jpg")
    long = "uploading was refused: warehouse credentials expired during authentication"
    report(broker, "long", "failed", error=long)
    dashboard = open_dashboard("/failures")
    rows = dashboard.page.locator(".listing tbody tr")
    expect(rows).to_have_count(3)
    told = rows.filter(has_text="uploading").locator("a").first
    expect(told).to_have_text(f"{long[:64]}…")
    expect(told).to_have_attribute("href", re.compile("during%20auth$"))
    expect(rows.filter(has_text="no such file").locator("a").first).to_have_text(
        "no such file: <path>"
    )
    expect(rows.nth(0)).to_contain_text("CUDA out of memory: # MiB (GPU #)")
    expect(rows.nth(0).locator("td").nth(1)).to_have_text("3")
    rows.nth(0).locator("a").first.click()
    until(lambda: set(dashboard.painted()) == {f"desk/ollama//oom-{n}" for n in range(3)})
    expect(dashboard.page).to_have_url(re.compile("state=failed"))


class TestGroups:
    def test_say_where_nobody_reads(self, open_dashboard, broker):
        list(broker.report_many(reported(str(n)) for n in range(5)))
        fleet.member(broker, "mail", "desk", 5)
        broker.store.client.hdel(broker.store.keys.of("desk").sub("mail"), "owner")
        page = open_dashboard("/groups").page
        mail = page.locator(".listing tr", has_text="mail").locator("td")
        expect(mail.nth(2)).to_have_text("nobody")

    def test_bring_what_was_parked_into_sight_of_who_asks(self, open_dashboard, broker):
        list(broker.report_many(reported(str(n)) for n in range(3)))
        for n in range(8):
            fleet.member(broker, f"hooks-{n}", "desk", 2, park="no reason")
        page = open_dashboard("/groups", viewport={"width": 375, "height": 667}).page
        page.get_by_role("link", name="2 parked by hooks-0").click()
        parked = page.locator(".panel", has_text="Parked by hooks-0")
        expect(parked.locator("tbody tr")).to_have_count(2)
        expect(parked).to_be_in_viewport(ratio=1)

    def test_tell_who_reads_and_how_far_behind(self, open_dashboard, broker):
        list(broker.report_many(reported(str(n)) for n in range(5)))
        fleet.member(broker, "mail", "desk", 5)
        fleet.member(broker, "slow", "desk", 2)
        page = open_dashboard("/groups").page
        mail, slow = (
            page.locator(".listing tr", has_text=name).locator("td") for name in ("mail", "slow")
        )
        expect(mail.nth(4)).to_have_text("0")
        expect(slow.nth(4)).to_have_text("3")
        expect(slow.nth(5)).to_have_text(re.compile(r"^\d+(\.\d)?s$"))
        expect(slow.nth(2)).to_have_text("slow-1")

    def test_tell_of_a_place_that_was_lost_and_of_what_is_not_known(self, open_dashboard, broker):
        list(broker.report_many(reported(str(n)) for n in range(5)))
        fleet.member(broker, "slow", "desk", 2)
        broker.store.client.delete(broker.store.keys.of("desk").log)
        page = open_dashboard("/groups").page
        slow = page.locator(".listing tr", has_text="slow").locator("td")
        expect(slow.nth(4)).to_contain_text("?")
        expect(slow.nth(4)).to_contain_text("lost its place: it is another log now")

    def test_show_what_was_parked_with_its_reason(self, open_dashboard, broker):
        list(broker.report_many(reported(str(n)) for n in range(3)))
        fleet.member(broker, "hooks", "desk", 2, park=fleet.HOSTILE_ERROR)
        page = open_dashboard("/groups").page
        page.get_by_role("link", name="2 parked by hooks").click()
        expect(page).to_have_url(re.compile(r"/groups\?parked=hooks$"))
        parked = page.locator(".panel", has_text="Parked by hooks").locator("tbody tr")
        expect(parked).to_have_count(2)
        expect(parked.first).to_contain_text("<script>alert(1)</script>")
        assert page.locator("main script").count() == 0
        page.get_by_role("button", name="Close").click()
        expect(page).to_have_url(re.compile("/groups$"))


def test_streams_tell_how_redis_is_set_and_where_each_log_stands(open_dashboard, broker):
    list(broker.report_many(reported(str(n), origin="lab") for n in range(5)))
    page = open_dashboard("/streams").page
    expect(page.locator(".judged")).to_contain_text("noeviction")
    off = page.locator(".judged .told[data-tone=bad]")
    expect(off).to_have_text("off: what it took is lost with it")  # the tests' Redis keeps no file
    row = page.locator(".listing tr", has_text="lab").locator("td")
    expect(row.nth(0)).to_have_text("lab")
    expect(row.nth(1)).to_have_text("5")
    expect(row.nth(6)).to_have_text(broker.log("lab").position().epoch)


def test_the_pages_are_walked_by_the_keyboard_alone(open_dashboard, broker, serve):
    keys = [broker.submit("echo", id=str(n)).key for n in range(3)]
    at = serve(budgets=Budgets(suspect_ms=60_000))
    dashboard = open_dashboard("/", at=at)
    dashboard.await_live()
    page, press = dashboard.page, dashboard.page.keyboard.press

    def go(letter: str, view: str) -> bool:
        # Soon one after the other, or the first one is forgotten: on a busy machine it takes another try. Whether it
        # was soon enough the address tells at once, and the page later: another `j` would be the list's own.
        press("g")
        press(letter)
        return bool(page.evaluate("location.pathname") == f"/{view}")

    views = {"n": "nodes", "f": "failures", "u": "groups", "s": "streams", "j": "jobs"}
    for letter, view in views.items():
        until(lambda: go(letter, view))  # noqa: B023 - it is called at once
        expect(page.locator(f"#nav [data-page={view}]")).to_have_attribute("aria-current", "page")
        expect(page.locator(f".view[data-view={view}]")).to_be_visible()
    until(lambda: len(dashboard.painted()) == 3)
    newest = next(iter(dashboard.painted()))  # the list was there before its page: painted in order
    press("j")
    expect(dashboard.row(newest)).to_have_attribute("data-active", "")
    press("c")
    expect(page.locator("#dialog-no")).to_be_focused()
    press("Tab")
    press("Enter")
    dashboard.until_state(newest, "cancelled")
    press("Enter")
    expect(page.locator(".job-key")).to_have_text(newest)
    press("Escape")
    expect(page.locator(".view[data-view=jobs]")).to_be_visible()
    press("?")
    expect(page.locator("dialog")).to_contain_text("search the jobs")
    press("Escape")
    press("/")
    page.keyboard.type(keys[1].id)
    press("Escape")
    press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.locator(":focus-visible").count() <= 1


#: The name of what has the focus, and the style of the ring around it.
_FOCUSED = """() => {
    const at = document.activeElement;
    return [at.id || at.dataset.page || at.className || at.tagName, getComputedStyle(at).outlineStyle];
}"""


def test_who_tabs_reaches_the_content_and_every_control_in_it(open_dashboard, broker):
    """From the top: the way past the navigation, then the list and its filters, each with a ring that is seen."""
    report(broker, "7")
    dashboard = open_dashboard("/jobs")
    dashboard.await_live()
    page = dashboard.page
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        name, ring = page.evaluate(_FOCUSED)
        reached.add(name)
        assert name == "BODY" or ring != "none", name
    assert {
        "overview",
        "streams",
        "theme",
        "help",
        "search",
        "filter-engine",
        "grid-scroll",
    } <= reached
