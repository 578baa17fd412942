"""`/metrics`: what Prometheus reads is true, and comes also while Redis is away."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from contextlib import closing

import httpx
import pytest

from broker import AsyncBroker, Broker
from broker import settings as settings_of
from broker.rules.event import Guess, Intent, Place, Remove, Report
from broker.rules.liveness import Budgets
from broker.store.audited import Audited, AuditSeen
from broker.store.lease import Lease
from broker.store.log import Log
from broker.store.store import Store
from broker.store.watch import Watcher
from broker.web import metrics
from broker.web.gauges import Grown
from broker.web.hub import Hub
from broker.web.metrics import LOOK_SECONDS_MAX, Meter
from broker.web.timings import NAMES_MAX, Names
from tests.roles.fleet import ORIGIN, Fleet
from tests.store.members import Owner
from tests.store.readers import ORIGIN as READ
from tests.store.readers import kill
from tests.web import follower
from tests.web.asking import BEARER, TOKEN
from tests.web.scraping import OPEN_METRICS, listed, scrape, scrape_until


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A Redis that answers does so in time, however long this machine stands still."""
    monkeypatch.setattr(metrics, "LOOK_SECONDS_MAX", 60.0)


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.close()


@pytest.fixture
def broker(store, namespace):
    return Broker(store, settings_of(namespace=namespace, node=ORIGIN))


def place(fleet, key, node="node-a"):
    fleet.say(Place(key=key, node=node, rev=fleet.view.get(key).rev, term=1))
    return key


def start(fleet, key):
    fleet.start(place(fleet, key))
    return key


def finish(fleet, key, **more):
    fleet.finish(start(fleet, key), **more)
    return key


def guess(fleet, key):
    record = fleet.view.get(key)
    fleet.say(Guess(key=key, rev=record.rev, last_seen=record.last_seen, term=1))


def is_age_of(at_ms, seconds, before):
    """Whether what happened then was so old at some moment since `before`, as far as two clocks agree."""
    return before - 5 < at_ms / 1000 + seconds < time.time() + 5


def tell_stories(fleet):
    """Jobs in every state, by every way."""
    now = fleet.clock.now()
    fleet.workers_of("node-a", count=9)
    fleet.workers_of("node-b", engine="thumb", count=2)
    fleet.submit("waits", created_at=now - 60_000)
    fleet.submit_many(["ready", "also"])
    fleet.submit("later", due=now + 3_600_000)
    place(fleet, fleet.submit("placed"))
    start(fleet, fleet.submit("running"))
    guess(fleet, start(fleet, fleet.submit("guess")))
    fleet.say(Intent(key=start(fleet, fleet.submit("to be cancelled"))))
    fleet.say(Intent(key=fleet.submit("cancelled")))
    for n in range(3):
        finish(fleet, fleet.submit(f"done-{n}"))
    finish(fleet, fleet.submit("failed"), state="failed", error="exit code 9")
    place(fleet, fleet.submit("thumb", engine="thumb"), "node-b")
    for n, state in enumerate(("queued", "running", "running", "completed")):
        key = fleet.report(n, state, node="gpu", seq=2, created_at=now)
        fleet.view.apply([Report(key=key, created_at=now, state="queued", seq=1)])
    fleet.say(Remove(key=fleet.report("gone", "running")))


def test_each_number_is_that_of_the_store(fleet, broker, serve):
    url = serve(budgets=Budgets(suspect_ms=600_000))  # nobody falls silent, however long it takes
    tell_stories(fleet)
    before = time.time()
    page = scrape_until(
        url, lambda page: len(broker.jobs()) == sum(page.all("broker_jobs").values())
    )
    jobs = broker.jobs()
    records = [(job.key, job.record) for job in jobs]
    assert page.all("broker_jobs") == Counter((record.believed,) for _, record in records)
    assert page.all("broker_engine_jobs") == Counter(
        (key.engine, record.believed) for key, record in records
    )
    assert page.all("broker_node_jobs") == Counter(
        (record.node, record.believed) for _, record in records if record.node
    )
    books = broker.store.keys.of(ORIGIN)
    client = broker.store.client
    assert page.get("broker_ready_jobs") == client.zcard(books.ready) == 3
    assert page.get("broker_delayed_jobs") == client.zcard(books.delayed) == 1
    assert page.get("broker_placed_jobs") == 2
    assert page.get("broker_guessed_jobs") == sum(record.inferred for _, record in records) == 1
    waits = fleet.clock.begun_at - 60_000
    assert is_age_of(waits, page.get("broker_oldest_ready_age_seconds"), before)
    assert page.all("broker_wanted") == {("echo",): 6, ("thumb",): 1}
    assert page.all("broker_occupied") == {("echo",): 4, ("thumb",): 1}
    assert page.all("broker_slots") == {("echo",): 9, ("thumb",): 2}
    assert page.get("broker_log_entries") == client.xlen(books.log)
    assert page.get("broker_log_longest_entries") == client.xlen(books.log)
    used = client.memory_usage(books.log, samples=0)
    assert 0.7 * used < page.get("broker_log_bytes") < 1.3 * used
    counts = {
        tuple(name.split(":")[1:]): int(count)
        for name, count in text_of(client.hgetall(books.meta)).items()
        if name.startswith("n:")
    }
    assert page.all("broker_events_total") == counts
    assert counts["refused", "stale_seq"] == 3


def text_of(found):
    return {name.decode(): value.decode() for name, value in found.items()}


def test_a_job_that_somebody_cancels_is_wanted_no_more_and_holds_its_slot_as_long_as_it_runs(
    fleet, url
):
    """Else a fleet grows for jobs that nobody wants, or shrinks below those that run."""
    fleet.workers_of("node-a", count=2)
    keys = fleet.submit_many(range(47))
    start(fleet, keys[0])
    page = scrape_until(url, lambda page: page.get("broker_occupied", engine="echo"))
    assert page.get("broker_wanted", engine="echo") == 47
    for key in keys:
        fleet.say(Intent(key=key))
    page = scrape_until(url, lambda page: page.get("broker_wanted", engine="echo") == 0)
    assert page.get("broker_occupied", engine="echo") == 1
    fleet.finish(keys[0], state="cancelled")
    page = scrape_until(url, lambda page: page.get("broker_occupied", engine="echo") == 0)
    assert page.get("broker_jobs", state="cancelled") == 47


def test_a_running_job_whose_worker_fell_silent_is_doubted(fleet, url):
    fleet.workers_of("node-a")
    key = start(fleet, fleet.submit("7"))
    fleet.clock.ahead_ms = 600_000
    fleet.beat()
    page = scrape_until(url, lambda page: page.get("broker_occupied", engine="echo"))
    assert page.get("broker_doubted_jobs") == 0
    fleet.clock.ahead_ms = -60_000
    fleet.beat()
    # Longer ago than its start, which counts as a beat.
    scrape_until(url, lambda page: page.get("broker_doubted_jobs") == 1)
    fleet.clock.ahead_ms = 600_000
    fleet.beat()
    assert scrape(url).get("broker_doubted_jobs") == 0
    assert fleet.view.get(key).state == "running"


def test_waits_and_runs_are_those_of_the_records(fleet, url):
    listed(url)
    fleet.workers_of("node-a", count=3)
    keys = fleet.submit_many(range(3))
    for key in keys:
        finish(fleet, key, state="failed" if key == keys[0] else "completed")
    # They are read in turn while the process counts: each of them has to be awaited.
    page = scrape_until(
        url,
        lambda page: (
            page.all("broker_job_wait_seconds_count") == {("echo",): 3}
            and page.all("broker_job_run_seconds_count")
            == {("completed", "echo"): 2, ("failed", "echo"): 1}
        ),
    )
    records = fleet.view.get_many(keys)
    waits = sum(max(0, record.started_at - record.created_at) for record in records) / 1000
    runs = sum(record.completed_at - record.started_at for record in records[1:]) / 1000
    assert page.get("broker_job_wait_seconds_sum", engine="echo") == pytest.approx(waits)
    assert page.get("broker_job_run_seconds_sum", engine="echo", end="completed") == pytest.approx(
        runs
    )


def test_no_job_is_counted_before_all_are_listed(fleet, serve, monkeypatch):
    """Else a fleet would look empty whenever a serve starts."""
    fleet.report("7")
    go_on, changes = threading.Event(), Watcher.changes

    def late(watcher, wait_ms):
        go_on.wait(30)
        return changes(watcher, wait_ms)

    monkeypatch.setattr(Watcher, "changes", late)
    url = serve()
    page = scrape(url)
    assert (page.get("broker_up"), page.get("broker_watch_listed")) == (1, 0)
    assert page.get("broker_jobs", state="queued") is None
    assert page.get("broker_log_entries") == 1
    go_on.set()
    assert listed(url).get("broker_jobs", state="running") == 1


def test_a_look_at_a_part_of_the_list_counts_no_job_though_the_list_is_whole_by_then(
    fleet, serve, monkeypatch
):
    fleet.report("7")
    go_on, changes, look = threading.Event(), Watcher.changes, metrics.overview

    def late(watcher, wait_ms):
        go_on.wait(60)
        return changes(watcher, wait_ms)

    def slow(broker, records, **told):
        found = look(broker, records, **told)
        go_on.set()
        follower.listed(url)
        return found

    monkeypatch.setattr(Watcher, "changes", late)
    url = serve()
    monkeypatch.setattr(metrics, "overview", slow)
    page = scrape(url)
    assert page.get("broker_watch_listed") == 0
    assert page.get("broker_jobs", state="running") is None


def test_what_was_there_before_is_in_no_histogram(fleet, serve):
    fleet.workers_of("node-a", count=3)
    finish(fleet, fleet.submit("7"))
    page = listed(serve())
    assert page.get("broker_jobs", state="completed") == 1
    assert page.all("broker_job_run_seconds_count") == {}


def test_groups_are_told_over_all_origins(store, url):
    fleet = Fleet(store)
    keys = [fleet.report(n, origin=READ) for n in range(5)]
    owner = Owner(store, "a", name="mail", lease_ms=600_000)
    owner.group.look([READ])
    revs = owner.fetch()
    owner.park(revs[0])
    owner.ack(revs[1])
    page = scrape_until(url, lambda page: page.get("broker_group_lag_entries", group="mail") == 3)
    assert len(keys) == len(revs) == 5
    before = time.time()
    lag = scrape(url).get("broker_group_lag_seconds", group="mail")
    assert is_age_of(int(revs[2].split("-")[0]), lag, before)
    assert page.get("broker_group_parked_entries", group="mail") == 1
    assert page.get("broker_group_unread_origins", group="mail") == 0
    owner.release()
    scrape_until(url, lambda page: page.get("broker_group_unread_origins", group="mail") == 1)
    fleet.close()


def test_what_an_auditor_found_and_who_leads_is_told(store, url):
    at = store.clock.now() - 60_000
    seen = AuditSeen(
        at=at, took_ms=120, ghosts=1, missing=2, stuck=3, drift=4, unread=5, repaired=6
    )
    assert scrape(url).get("broker_audit_age_seconds") == float("inf")
    for _ in range(2):
        Audited(store).tell(seen)
    term = Lease(store, "sweeper", "x", 600_000).hold()
    before = time.time()
    page = scrape(url)
    assert is_age_of(at, page.get("broker_audit_age_seconds"), before)
    assert page.get("broker_audit_round_seconds") == 0.12
    gauges = [
        page.get(f"broker_audit_{name}")
        for name in ("ghosts", "missing", "stuck", "drift", "unread")
    ]
    assert gauges == [1, 2, 3, 4, 5]
    assert page.all("broker_audit_findings_total") == {
        ("ghosts",): 2, ("missing",): 4, ("stuck",): 6, ("drift",): 8,
    }  # fmt: skip
    assert page.get("broker_audit_repairs_total") == 12
    assert page.all("broker_leader_held") == {("sweeper",): 1}
    assert page.all("broker_leader_term") == {("sweeper",): term}


def test_what_is_trimmed_counts_and_a_log_that_begins_anew_takes_nothing_back(fleet, url):
    fleet.report_many(range(10))
    while Log(fleet.store, ORIGIN).trim(4, 10**9):
        pass
    page = scrape(url)
    assert (page.get("broker_log_entries"), page.get("broker_log_trimmed_entries_total")) == (4, 6)
    fleet.store.client.delete(fleet.store.keys.of(ORIGIN).log)
    fleet.report("new")
    page = scrape(url)
    assert (page.get("broker_log_entries"), page.get("broker_log_trimmed_entries_total")) == (1, 6)


def test_a_total_never_falls_whatever_part_of_it_is_lost():
    total = Grown()
    for part, count in (("a", 100), ("b", 7), ("a", 110), ("a", 3), ("a", 5), ("b", 7)):
        total.tell(part, count)
    assert total.totals == {(): 110 + 7 + 3 + 2}


def test_labels_are_bounded_and_a_name_that_goes_makes_room():
    names = Names(3)
    assert names.keep(["d", "c", "b", "a"]) == {"a": "a", "b": "b", "c": "c", "d": "other"}
    assert names.keep(["d", "c", "b"]) == {"b": "b", "c": "c", "d": "d"}
    assert names.keep(["a", "d", "c", "b"])["a"] == "other"
    assert [names.label(name) for name in "bdax"] == ["b", "d", "other", "other"]


def test_many_engines_and_nodes_share_one_label(fleet, url):
    count = NAMES_MAX + 20
    for n in range(count):
        fleet.report(n, "running", node=f"node-{n}")
        fleet.submit(f"s{n}", engine=f"engine-{n}")
    page = scrape_until(url, lambda page: page.get("broker_jobs", state="queued") == count)
    for name in ("broker_node_jobs", "broker_engine_jobs", "broker_wanted"):
        values = {labels[0]: value for labels, value in page.all(name).items()}
        assert len(values) == NAMES_MAX + 1
    assert page.get("broker_node_jobs", node="other", state="running") == 20


def test_hostile_names_are_labels_like_any(fleet, url):
    name = 'a"b\\c\nd{}é'
    fleet.submit("7", engine=name)
    scrape_until(url, lambda page: page.get("broker_wanted", engine=name) == 1)


def test_openmetrics_comes_where_it_is_asked_for(fleet, url):
    fleet.submit("7")
    page = scrape(url, OPEN_METRICS)
    assert page.type.startswith("application/openmetrics-text")
    assert page.get("broker_up") == 1
    assert scrape(url).type.startswith("text/plain")


def test_a_damaged_part_hides_no_other(fleet, url):
    fleet.report("7", origin="well")
    fleet.report("8")
    keys = fleet.store.keys
    for name in (keys.groups, keys.audit, keys.of(ORIGIN).live, keys.of(ORIGIN).log, keys.workers):
        fleet.store.client.delete(name)
        fleet.store.client.set(name, "of another type")
    page = scrape(url)
    assert page.get("broker_up") == 1
    assert page.get("broker_damaged_keys") >= 3
    assert page.get("broker_log_entries") == 1
    assert page.get("broker_events_total", outcome="applied", rule="first_sighting") == 2


def test_without_redis_it_says_so_at_once_and_goes_on_when_it_is_back(serve, server, namespace):
    redis = f"redis://127.0.0.1:{server.port}"
    url = serve(redis)
    with closing(Store.from_url(redis, namespace)) as store, closing(Fleet(store)) as fleet:
        fleet.report("7")
        listed(url)
        kill(server)
        began = time.monotonic()
        page = scrape(url)
        assert time.monotonic() - began < 20  # Redis stays away for as long as we wait
        assert page.get("broker_up") == 0
        assert page.get("process_open_fds") > 0
        assert not page.all("broker_jobs")
        server.start()
        page = scrape_until(url, lambda page: page.get("broker_up") and page.all("broker_jobs"))
        assert page.get("broker_jobs", state="running") == 1


def test_a_redis_that_hangs_holds_no_scrape_for_long(serve, server, monkeypatch):
    url = serve(server.url)
    listed(url)
    monkeypatch.setattr(metrics, "LOOK_SECONDS_MAX", LOOK_SECONDS_MAX)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            began = time.monotonic()
            assert scrape(url).get("broker_up") == 0
            assert time.monotonic() - began < 10 * LOOK_SECONDS_MAX
    finally:
        os.kill(server.pid, signal.SIGCONT)
    scrape_until(url, lambda page: page.get("broker_up"))


def test_scrapes_at_once_wait_for_redis_together(broker, monkeypatch):
    """One after the other, the last of many would have waited for longer than Prometheus does."""

    async def scrape_all():
        here = asyncio.Barrier(3)

        async def look(self):
            await here.wait()

        monkeypatch.setattr(Meter, "_look", look)
        with broker.readers() as readers:
            meter = Meter(Hub(AsyncBroker(broker), readers))
            async with asyncio.timeout(60):
                return await asyncio.gather(*(meter.page("") for _ in range(3)))

    for text, _ in asyncio.run(scrape_all()):
        assert b"\nbroker_up 0.0\n" in text


def test_it_is_guarded_like_the_rest_and_counts_what_is_asked(serve):
    url = serve(token=TOKEN)
    assert httpx.get(f"{url}/metrics", trust_env=False, timeout=60).status_code == 401
    httpx.request("BREW", f"{url}/livez", trust_env=False, timeout=60)
    page = scrape(url, **dict([BEARER]))
    assert page.get("broker_http_requests_total", method="GET", status="401") == 1
    assert page.all("broker_http_requests_total").keys() >= {("GET", "401")}
    assert {labels[0] for labels in page.all("broker_http_requests_total")} <= {"GET", "other"}
