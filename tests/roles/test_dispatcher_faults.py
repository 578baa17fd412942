"""What goes wrong around a dispatcher: nodes that are out, events in between, deaths, rivals, damage."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from broker.errors import Unavailable
from broker.roles import dispatcher as dispatcher_module
from broker.roles.dispatcher import ROLE
from broker.roles.handoff import Handoff
from broker.rules.event import Intent
from broker.rules.liveness import Budgets
from broker.store.lease import Lease
from tests.roles.fleet import ORIGIN, settle
from tests.store.readers import until

# --- nodes that are out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["drained", "dead"])
def test_a_flagged_node_gets_nothing_new_until_it_is_resumed(fleet, flag):
    fleet.workers_of("node-a")
    fleet.nodes.set_flag("node-a", flag)
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher()
    assert settle(dispatcher) == 0

    fleet.nodes.set_flag("node-a", None)
    assert settle(dispatcher) == 1
    assert fleet.node_of(key) == "node-a"


def test_a_silent_worker_offers_no_slot(fleet):
    fleet.workers_of("node-a", count=2)
    fleet.clock.ahead_ms += 3_500
    fleet.beat(fleet.workers[1].name)
    keys = fleet.submit_many(range(2))

    assert settle(fleet.dispatcher()) == 1
    assert len(fleet.placed(keys)) == 1


def test_the_job_of_a_silent_worker_holds_no_slot_of_its_successor(fleet):
    fleet.workers_of("node-a")
    first, second = fleet.submit_many(range(2))
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    fleet.start(first)
    fleet.clock.ahead_ms += 3_500
    assert settle(dispatcher) == 0
    fleet.workers[0] = replace(fleet.workers[0], name="successor")
    fleet.beat()

    assert settle(dispatcher) == 1
    assert fleet.node_of(second) == "node-a"


def test_nor_does_that_of_a_worker_nobody_remembers(fleet):
    fleet.workers_of("node-a")
    first, second = fleet.submit_many(range(2))
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    fleet.start(first)
    fleet.nodes.remove("node-a")
    fleet.workers[0] = replace(fleet.workers[0], name="successor")
    fleet.beat()

    assert settle(dispatcher) == 1
    assert fleet.node_of(second) == "node-a"


# --- what happens meanwhile -------------------------------------------------------------------------------------


def test_a_job_cancelled_before_its_place_is_never_handed_over(fleet):
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    fleet.say(Intent(key=key))
    fleet.workers_of("node-a")

    assert settle(dispatcher) == 0
    assert fleet.view.get(key).state == "cancelled"
    assert fleet.handed_over("node-a") == []


def test_a_cancel_between_choice_and_place_wins(fleet, monkeypatch):
    fleet.workers_of("node-a")
    key, other = fleet.submit_many(range(2))
    dispatcher = fleet.dispatcher()
    apply = dispatcher._view.apply

    def cancelled_just_before(places):
        monkeypatch.setattr(dispatcher._view, "apply", apply)
        fleet.say(Intent(key=key))
        return apply(places)

    monkeypatch.setattr(dispatcher._view, "apply", cancelled_just_before)
    settle(dispatcher)
    assert fleet.view.get(key).state == "cancelled"
    assert fleet.handed_over("node-a") == [] or fleet.handed_over("node-a") == [str(other)]
    settle(dispatcher)
    assert fleet.handed_over("node-a") == [str(other)]


def test_a_delayed_job_is_placed_when_it_is_due(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7", due=fleet.clock.now() + 10_000)
    dispatcher = fleet.dispatcher()
    assert settle(dispatcher) == 0
    assert fleet.ready() == []

    fleet.clock.ahead_ms += 10_001
    fleet.beat()
    settle(dispatcher)
    assert fleet.node_of(key) == "node-a"


def test_delayed_jobs_become_ready_though_nobody_takes_them(fleet):
    keys = [fleet.submit(n, due=fleet.clock.now() + 10_000) for n in range(250)]
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    fleet.clock.ahead_ms += 10_001

    settle(dispatcher)
    assert sorted(fleet.ready()) == sorted(key.id for key in keys)


def test_a_requeued_job_waits_for_its_backoff_and_is_handed_over_as_a_new_attempt(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    fleet.start(key)
    fleet.queue("node-a").empty()
    fleet.finish(key, "failed", retryable=True, due=fleet.clock.now() + 5_000)
    assert settle(dispatcher) == 0

    fleet.clock.ahead_ms += 5_001
    fleet.beat()
    settle(dispatcher)
    [job] = fleet.queue("node-a").jobs
    assert job.args[2] == 2


def test_one_damaged_record_stops_nobody_else(fleet):
    fleet.workers_of("node-a", count=3)
    bad, good = fleet.submit_many(range(2))
    dispatcher = fleet.dispatcher()
    fleet.store.client.hset(fleet.store.keys.of_job(bad).job, "attempt", "many")
    fleet.store.client.hset(fleet.store.keys.of_job(bad).job, "seq", "x")

    settle(dispatcher)
    assert fleet.node_of(good) == "node-a"


def test_one_damaged_origin_stops_nobody_else(fleet):
    fleet.workers_of("node-a", count=3)
    key = fleet.submit("7")
    bad = fleet.submit("8", origin="bad")
    books = fleet.store.keys.of("bad")
    dispatcher = fleet.dispatcher()
    fleet.store.client.delete(books.ready)
    fleet.store.client.set(books.ready, "no zset")

    settle(dispatcher)
    assert fleet.placed([key, bad]) == [key]


# --- nothing is lost between place and hand-off -----------------------------------------------------------------


class Dies(Exception):
    """What a SIGKILL would be."""


class DyingHandoff(Handoff):
    """Dies before it hands over anything."""

    def enqueue(self, key, record):
        raise Dies


def test_a_dispatcher_killed_between_place_and_hand_off_loses_nothing(fleet):
    fleet.workers_of("node-a", count=2)
    keys = fleet.submit_many(range(2))
    dying = fleet.dispatcher(handoff=DyingHandoff(fleet.store.keys.namespace, fleet.store.url))
    with pytest.raises(Dies):
        dying.step()
    assert fleet.placed(keys) == keys
    assert fleet.handed_over("node-a") == []
    fleet.store.client.delete(fleet.store.keys.leader(ROLE))  # its lease ran out

    settle(fleet.dispatcher())
    assert sorted(fleet.handed_over("node-a")) == [str(key) for key in keys]
    assert fleet.log().count("placed") == 2


def test_a_hand_off_that_failed_is_made_good_by_the_same_leader(fleet, monkeypatch):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher()
    enqueue = dispatcher._handoff.enqueue

    def away(*_):
        monkeypatch.setattr(dispatcher._handoff, "enqueue", enqueue)
        raise Unavailable("away")

    monkeypatch.setattr(dispatcher._handoff, "enqueue", away)
    with pytest.raises(Unavailable):
        dispatcher.step()
    settle(dispatcher)
    assert fleet.handed_over("node-a") == [str(key)]


def test_handing_over_again_is_harmless(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    for _ in range(3):
        dispatcher = fleet.dispatcher()
        settle(dispatcher)
        dispatcher.close()
        fleet.dispatchers.remove(dispatcher)

    assert fleet.handed_over("node-a") == [str(key)]
    assert fleet.log() == ["submitted", "placed"]


def test_a_placed_job_that_does_not_start_is_handed_over_again(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher(budgets=Budgets(guess_ms=60_000, start_ms=0))
    settle(dispatcher)
    [job] = fleet.queue("node-a").jobs
    job.delete()  # RQ's memory is lost
    fleet.queue("node-a").empty()
    assert fleet.handed_over("node-a") == []

    dispatcher.step()
    assert fleet.handed_over("node-a") == [str(key)]


def test_a_hand_off_that_a_worker_took_and_never_began_is_handed_over_again(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher(budgets=Budgets(guess_ms=60_000, start_ms=0))
    settle(dispatcher)
    queue = fleet.queue("node-a")
    fleet.store.client.lmove(queue.key, queue.intermediate_queue_key)  # and there it died

    dispatcher.step()
    dispatcher.step()
    assert fleet.handed_over("node-a") == [str(key)]


def test_what_has_started_is_not_handed_over_again(fleet):
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    dispatcher = fleet.dispatcher(budgets=Budgets(guess_ms=60_000, start_ms=0))
    settle(dispatcher)
    fleet.start(key)
    [job] = fleet.queue("node-a").jobs
    job.delete()

    settle(dispatcher)
    assert fleet.handed_over("node-a") == []


# --- who leads --------------------------------------------------------------------------------------------------


def test_of_two_dispatchers_one_leads_and_the_other_stands_by(fleet):
    fleet.workers_of("node-a", count=2)
    fleet.know_origin()
    first, second = fleet.dispatcher(), fleet.dispatcher()
    settle(first)
    fleet.submit_many(range(2))

    assert second.step() == 0
    assert not second.leads
    assert first.leads
    assert settle(first) == 2


def test_a_leader_that_closes_is_followed_at_once(fleet):
    fleet.workers_of("node-a")
    first = fleet.dispatcher()
    second = fleet.dispatcher()
    settle(first)
    fleet.dispatchers.remove(first)
    first.close()
    fleet.submit("7")

    assert settle(second) == 1


def test_a_frozen_leader_is_refused_by_its_term_and_steps_down(fleet):
    fleet.workers_of("node-a", count=2)
    fleet.know_origin()
    frozen = fleet.dispatcher()
    settle(frozen)
    fleet.store.client.delete(
        fleet.store.keys.leader(ROLE)
    )  # its lease ran out while it was frozen
    heir = fleet.dispatcher()
    assert heir.step() == 0
    key = fleet.submit("7")

    assert frozen.step() == 0
    assert not frozen.leads
    assert fleet.node_of(key) == ""
    [refusal] = fleet.view.refusals(key)
    assert refusal.rule == "stale_term"
    assert settle(heir) == 1
    assert frozen.step() == 0
    assert fleet.log() == ["submitted", "submitted", "placed"]


def test_a_new_leader_fences_every_origin_before_it_writes_anything(fleet):
    for origin in ("a", "b"):
        fleet.submit("7", origin=origin)
    dispatcher = fleet.dispatcher()
    dispatcher.step()

    term = fleet.store.client.get(fleet.store.keys.term(ROLE))
    for origin in ("a", "b"):
        meta = fleet.store.keys.of(origin).meta
        assert fleet.store.client.hget(meta, f"term:{ROLE}") == term


def test_a_lease_that_lapsed_and_was_taken_again_is_a_new_term(fleet):
    """It knows the jobs still: to list them anew would take longer than a lease lasts, with enough of them."""
    fleet.workers_of("node-a")
    fleet.know_origin()
    dispatcher = fleet.dispatcher(budgets=Budgets(guess_ms=60_000))
    settle(dispatcher)
    office, before = dispatcher._office, dispatcher._office.term
    fleet.store.client.delete(fleet.store.keys.leader(ROLE))
    dispatcher._lead.doubt()
    fleet.submit("7")

    assert settle(dispatcher) == 1
    assert dispatcher._office is office
    assert office.term > before


def test_a_listing_that_outlasts_the_lease_is_made_before_it(fleet, monkeypatch):
    """Two dispatchers that list for longer than a lease lasts must not depose each other for ever."""
    fleet.workers_of("node-a")
    key = fleet.submit("7")
    listed = []

    def list_slowly(office, now, catch_up=dispatcher_module._catch_up):
        if office not in listed:
            listed.append(office)
            threading.Event().wait(0.3)
        catch_up(office, now)

    monkeypatch.setattr(dispatcher_module, "_catch_up", list_slowly)
    first, second = (fleet.dispatcher(budgets=Budgets(guess_ms=200)) for _ in range(2))
    # As often as a machine that stands still lets so short a lease run out elsewhere.
    until(lambda: first.step() or second.step() or fleet.node_of(key))

    assert fleet.node_of(key) == "node-a"
    assert listed


def test_one_that_stands_by_takes_over_without_a_listing(fleet):
    fleet.workers_of("node-a")
    fleet.know_origin()
    first, second = fleet.dispatcher(), fleet.dispatcher()
    settle(first)
    assert second.step() == 0
    office = second._office
    first.close()
    key = fleet.submit("7")
    second._lead.doubt()

    assert settle(second) == 1
    assert second._office is office
    assert fleet.node_of(key) == "node-a"


def test_a_lease_of_somebody_else_keeps_it_out(fleet):
    Lease(fleet.store, ROLE, "somebody", 60_000).hold()
    fleet.workers_of("node-a")
    fleet.submit("7")
    dispatcher = fleet.dispatcher()

    assert settle(dispatcher) == 0
    assert not dispatcher.bell(0.0)


def test_the_bell_rings_when_a_job_comes(fleet):
    fleet.workers_of("node-a")
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    fleet.submit("7")

    assert dispatcher.bell(60)
    assert dispatcher.step() == 1


def test_a_log_that_was_lost_is_listed_anew(fleet):
    fleet.workers_of("node-a")
    first, second = fleet.submit_many(range(2))
    dispatcher = fleet.dispatcher()
    settle(dispatcher)
    assert fleet.placed([first, second]) == [first]
    for name in fleet.store.client.keys(f"{fleet.store.keys.of(ORIGIN).prefix}:*"):
        fleet.store.client.delete(name)
    third = fleet.submit("third")

    settle(dispatcher)
    assert fleet.node_of(third) == "node-a"


# --- a leader that does not hear of what it wrote ---------------------------------------------------------------


@pytest.fixture
def deaf(fleet, monkeypatch):
    """A leader of three slots and four jobs, to whom the logs tell nothing more."""
    fleet.workers_of("node-a", count=3)
    fleet.know_origin()
    keys = fleet.submit_many(range(4))
    dispatcher = fleet.dispatcher(budgets=Budgets(guess_ms=60_000, start_ms=0))
    office = dispatcher._open_office()
    dispatcher._lead.hold()
    dispatcher._begin_term(office)
    monkeypatch.setattr(office, "follow", lambda now: True)
    return dispatcher, keys


def test_its_own_places_hold_their_slots_before_the_log_tells(fleet, deaf):
    dispatcher, keys = deaf
    assert dispatcher.step() == 3
    dispatcher.step()

    assert fleet.placed(keys) == keys[:3]


def test_a_refused_place_is_looked_at_and_let_go(fleet, deaf):
    dispatcher, keys = deaf
    fleet.say(Intent(key=keys[0]))
    dispatcher.step()

    assert dispatcher._office.load.get(keys[0]) is None
    assert fleet.placed(keys) == keys[1:3]
    dispatcher.step()
    assert fleet.placed(keys) == keys[1:4]


def test_a_started_job_is_not_handed_over_again_though_it_looks_placed(fleet, deaf):
    dispatcher, keys = deaf
    dispatcher.step()
    fleet.start(keys[0])
    for job in fleet.queue("node-a").jobs:
        job.delete()
    fleet.queue("node-a").empty()
    dispatcher.step()

    assert fleet.handed_over("node-a") == [str(key) for key in keys[1:3]]
