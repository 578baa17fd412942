"""The chronicle: one line for each change of a job, told once in the whole fleet, by whoever leads."""

from __future__ import annotations

import logging

import pytest
import redis

from broker.errors import Unavailable
from broker.roles.chronicle import Chronicle
from broker.rules.event import Guess, Intent, Place, Remove, RemovePair, Report, Requeue
from broker.rules.liveness import Budgets
from broker.store.connection import redis_errors
from broker.store.log import Log
from broker.store.store import Store
from tests.roles.fleet import ORIGIN, settle
from tests.store.readers import until


@pytest.fixture
def chronicles(fleet, caplog):
    caplog.set_level(logging.INFO, logger="broker.jobs")
    made = []

    def make(**options):
        store = Store.from_url(fleet.store.url, fleet.store.keys.namespace)
        made.append(Chronicle(store, budgets=Budgets(guess_ms=60_000), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
        one._store.close()


@pytest.fixture
def chronicle(chronicles, fleet):
    """One that leads, and knows the fleet's origin."""
    fleet.know_origin()
    made = chronicles()
    settle(made)
    return made


def lines(caplog):
    found = [record for record in caplog.records if record.name == "broker.jobs"]
    assert {(record.getMessage(), record.levelname) for record in found} <= {
        ("job changed", "INFO")
    }
    caplog.clear()
    return [vars(record) for record in found]


def brief(caplog):
    return [f"{line['from']} {line['to']} {line['rule']}" for line in lines(caplog)]


def told(chronicle, caplog):
    settle(chronicle)
    return brief(caplog)


def place(fleet, key):
    fleet.say(Place(key=key, node="node-a", rev=fleet.view.get(key).rev, term=1, by="dispatcher"))


def guess(fleet, key):
    record = fleet.view.get(key)
    fleet.say(Guess(key=key, rev=record.rev, last_seen=record.last_seen, term=1))


def test_a_jobs_life_is_a_line_for_each_change(fleet, chronicle, caplog):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    place(fleet, key)
    fleet.start(key)
    fleet.finish(key)
    fleet.say(Remove(key=key))
    assert told(chronicle, caplog) == [
        "new queued submitted",
        "queued queued placed",
        "queued running started",
        "running completed finished",
        "completed gone removed",
    ]


def test_a_line_names_all_that_a_search_may_ask_for(fleet, chronicle, caplog):
    key = fleet.submit("7")
    settle(chronicle)
    caplog.clear()
    place(fleet, key)
    settle(chronicle)
    [line] = lines(caplog)
    record = fleet.view.get(key)
    shown = {name: line[name] for name in (
        "job", "attempt", "from", "to", "seq", "rev", "by", "rule", "node", "engine")}  # fmt: skip
    assert shown == {
        "job": str(key), "attempt": 1, "from": "queued", "to": "queued", "seq": 2, "rev": record.rev,
        "by": "dispatcher", "rule": "placed", "node": "node-a", "engine": "echo",
    }  # fmt: skip


def test_no_line_holds_what_a_job_was_given_or_gave(fleet, chronicle, caplog):
    secret = "do not tell"
    key = fleet.submit("7", spec=f'{{"payload":"{secret}"}}')
    fleet.workers_of("node-a")
    place(fleet, key)
    fleet.start(key)
    fleet.finish(key, result=f'"{secret}"')
    fleet.report("8", "failed", error=secret, extras=f'{{"x":"{secret}"}}')
    settle(chronicle)
    found = lines(caplog)
    assert len(found) == 5
    assert secret not in str(found)


def test_a_guess_and_what_comes_of_it_are_told(fleet, chronicle, caplog):
    fleet.workers_of("node-a")
    key = fleet.submit("7", attempts=3)
    place(fleet, key)
    fleet.start(key)
    settle(chronicle)
    caplog.clear()
    guess(fleet, key)
    fleet.say(Requeue(key=key, rev=fleet.view.get(key).rev, term=1))
    assert told(chronicle, caplog) == ["running failed~ guess_applied", "failed~ queued requeued"]


def test_a_wish_is_told(fleet, chronicle, caplog):
    key = fleet.report("7", "running")
    settle(chronicle)
    caplog.clear()
    fleet.say(Intent(key=key))
    assert told(chronicle, caplog) == ["running running desired"]


def test_what_changes_nothing_is_not_told(fleet, chronicle, caplog):
    """Heartbeats are no entries; a report that only counts on says nothing new of the job."""
    key = fleet.report("7", "running", seq=1, created_at=1_000)
    settle(chronicle)
    caplog.clear()
    for seq in (1, 1, 2, 3):
        fleet.view.apply([Report(key=key, created_at=1_000, state="running", seq=seq)])
    fleet.say(Remove(key=key._replace(id="never heard of")))
    fleet.say(RemovePair(origin=ORIGIN, id="nor of this"))
    assert told(chronicle, caplog) == []


def test_what_was_there_before_is_no_news(fleet, chronicles, caplog):
    fleet.report_many(range(3))
    assert told(chronicles(), caplog) == []


def test_an_origin_that_comes_later_is_news_from_its_first_job_on(fleet, chronicle, caplog):
    """A watcher comes to know it by listing it."""
    fleet.report("7", "running", origin="newborn")
    chronicle._watcher._look_at = 0.0
    assert told(chronicle, caplog) == ["new running first_sighting"]


def test_what_was_missed_with_a_lost_log_is_told_as_it_was_found(fleet, chronicle, caplog):
    keys = fleet.report_many(range(2), "running", created_at=1_000)
    settle(chronicle)
    caplog.clear()
    books = fleet.store.keys.of(ORIGIN)
    fleet.report("0", "completed", created_at=1_000)
    fleet.say(Remove(key=keys[1]))
    fleet.store.client.delete(books.log)
    chronicle._watcher._look_at = 0.0
    assert sorted(told(chronicle, caplog)) == [
        "running completed higher_rank",
        "running gone removed",
    ]


def test_many_changes_between_two_turns_are_told_one_by_one(fleet, chronicle, caplog):
    keys = fleet.report_many(range(700), "queued", created_at=1_000)
    for state in ("running", "completed"):
        fleet.view.apply([Report(key=key, created_at=1_000, state=state) for key in keys])
    found = told(chronicle, caplog)
    assert len(found) == 2_100
    assert found.count("queued running higher_rank") == 700


def test_one_leads_and_the_other_tells_nothing(fleet, chronicle, chronicles, caplog):
    other = chronicles()
    fleet.report("7")
    settle(other)
    settle(chronicle)
    assert len(lines(caplog)) == 1
    assert other._watcher is None


def test_who_takes_over_goes_on_without_telling_anything_twice(
    fleet, chronicle, chronicles, caplog
):
    key = fleet.report("7", "queued", created_at=1_000)
    settle(chronicle)
    other = chronicles()
    settle(other)
    chronicle.close()
    other._lead.doubt()
    settle(other)
    assert brief(caplog) == ["new queued first_sighting"]
    fleet.view.apply([Report(key=key, created_at=1_000, state="running")])
    assert told(other, caplog) == ["queued running higher_rank"]


def test_who_was_frozen_and_replaced_tells_no_more(fleet, chronicle, chronicles, caplog):
    fleet.store.client.delete(fleet.store.keys.leader("chronicle"))
    other = chronicles()
    settle(other)
    fleet.report("7")
    chronicle._lead._renew_at = 0.0
    settle(chronicle)
    assert lines(caplog) == []
    settle(other)
    assert len(lines(caplog)) == 1


def test_where_such_lines_are_not_told_the_lead_is_left_to_others(fleet, chronicles, caplog):
    """Else whoever is quiet would take the word from all."""
    quiet = chronicles()
    caplog.set_level(logging.WARNING, logger="broker.jobs")
    settle(quiet)
    assert not fleet.store.client.exists(fleet.store.keys.leader("chronicle"))


def test_a_damaged_origin_hides_no_other(fleet, chronicle, caplog):
    fleet.report("1", origin="other")
    chronicle._watcher._look_at = 0.0
    settle(chronicle)
    caplog.clear()
    books = fleet.store.keys.of(ORIGIN)
    fleet.store.client.rename(books.log, books.log + ":kept")
    fleet.store.client.set(books.log, "no stream")
    fleet.report("2", origin="other")
    chronicle._watcher._look_at = 0.0
    assert told(chronicle, caplog) == ["new running first_sighting"]


def test_it_writes_its_lease_and_nothing_else(fleet, chronicle):
    def written():
        client = fleet.store.client
        names = client.scan_iter(f"{fleet.store.keys.namespace}:*")
        return {name: client.dump(name) for name in names if b":chronicle" not in name}

    fleet.report("7")
    before = written()
    settle(chronicle)
    chronicle.close()
    assert written() == before


def test_an_outage_loses_no_line(fleet, chronicle, caplog, monkeypatch):
    def away(*args, **options):
        with redis_errors():
            raise redis.ConnectionError("away")

    monkeypatch.setattr(Log, "read_on", away)
    fleet.report("7")
    with pytest.raises(Unavailable):
        until(lambda: chronicle.step() and False)
    monkeypatch.undo()
    caplog.set_level(logging.INFO, logger="broker.jobs")
    assert told(chronicle, caplog) == ["new running first_sighting"]
