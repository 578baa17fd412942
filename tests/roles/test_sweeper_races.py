"""What comes between a sweeper's look and its word: rivals, freezes, and whatever the job's holder says meanwhile."""

from __future__ import annotations

import pytest

from broker.roles.sweeper import ROLE
from broker.rules.event import Guess
from tests.roles.fleet import settle
from tests.roles.sweeping import (
    DUE,
    GRACE,
    GUESS,
    START,
    attentive,
    listened,
    placed,
    prepare,
    rules_of,
    running,
    shown,
    wait,
)
from tests.store.readers import until

# --- who leads --------------------------------------------------------------------------------------------------


def test_of_two_sweepers_one_leads_and_the_other_stands_by(fleet):
    fleet.workers_of("node-a")
    first = attentive(fleet)
    second = fleet.sweeper()
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    assert settle(second) == 0
    assert settle(first) == 1

    first.close()
    second._lead.doubt()
    assert settle(second) == 0  # it has not listened yet
    wait(fleet, GRACE)
    settle(second)
    assert shown(fleet, key)[0] == "queued"


def test_a_new_leader_fences_every_origin_before_it_judges_anybody(fleet):
    origins = [f"o{n:02}" for n in range(45)]
    for origin in origins:
        fleet.report("7", origin=origin)
    fleet.store.client.set(fleet.store.keys.of("broken").meta, "no such thing")
    fleet.store.client.hset(fleet.store.keys.origins, "broken", "1")
    fleet.sweeper().step()
    term = fleet.store.client.get(fleet.store.keys.term(ROLE))
    for origin in origins:
        assert fleet.store.client.hget(fleet.store.keys.of(origin).meta, f"term:{ROLE}") == term


def test_an_origin_that_came_later_is_fenced_before_the_first_word_there(fleet, monkeypatch):
    """Also where that word is refused."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7", origin="new")
    until(lambda: sweeper.step() or len(sweeper._jobs) == 1)
    wait(fleet, GUESS)
    meanwhile(monkeypatch, sweeper, lambda: fleet.finish(key))
    assert sweeper.step() == 0
    assert [refusal.rule for refusal in fleet.view.refusals(key)] == ["guess_outdated"]
    term = fleet.store.client.get(fleet.store.keys.term(ROLE))
    assert fleet.store.client.hget(fleet.store.keys.of("new").meta, f"term:{ROLE}") == term


@pytest.mark.parametrize("rule", DUE)
def test_a_sweeper_that_was_frozen_past_its_lease_writes_nothing_when_it_thaws(fleet, rule, caplog):
    what, patience = DUE[rule]
    fleet.workers_of("node-a")
    frozen = attentive(fleet)
    key = prepare(fleet, frozen, what)
    fleet.store.client.delete(fleet.store.keys.leader(ROLE))
    assert fleet.sweeper().step() == 0
    wait(fleet, patience)

    before = fleet.view.get(key)
    assert frozen.step() == 0
    assert fleet.view.get(key) == before
    assert [refusal.rule for refusal in fleet.view.refusals(key)] == ["stale_term"]
    assert "another sweeper leads now" in caplog.text
    assert frozen.step() == 0  # and asks from now on


def test_one_that_leads_again_knows_what_happened_meanwhile(fleet):
    fleet.workers_of("node-a", count=2)
    first = attentive(fleet)
    [before] = running(fleet, "1")
    settle(first)
    fleet.store.client.delete(fleet.store.keys.leader(ROLE))
    second = fleet.sweeper()
    settle(second)
    first._lead.doubt()
    assert settle(first) == 0
    fleet.finish(before)
    [meanwhile] = running(fleet, "2")

    second.close()
    first._lead.doubt()
    wait(fleet, GUESS)
    listened(fleet, first)
    assert shown(fleet, before)[0] == "completed"
    assert shown(fleet, meanwhile)[0] == "failed~"


# --- between its look and its word ------------------------------------------------------------------------------


def meanwhile(monkeypatch, sweeper, act):
    """Something happens after it looked, and before it says what it thinks of it."""
    say = sweeper._say

    def later(events):
        monkeypatch.undo()
        assert events
        act()
        return say(events)

    monkeypatch.setattr(sweeper, "_say", later)


@pytest.mark.parametrize("rule", ["guess_applied", "requeued", "lost"])
def test_a_job_that_was_completed_meanwhile_stays_so(fleet, monkeypatch, rule):
    what, patience = DUE[rule]
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    key = prepare(fleet, sweeper, what)
    wait(fleet, patience)
    meanwhile(monkeypatch, sweeper, lambda: fleet.finish(key, result="1"))
    assert sweeper.step() == 0
    assert shown(fleet, key) == ("completed", 1, "node-a")
    assert [refusal.rule for refusal in fleet.view.refusals(key)] == ["guess_outdated"]
    assert settle(sweeper) == 0


@pytest.mark.parametrize("rule", ["requeued", "lost"])
def test_a_holder_that_contradicted_meanwhile_has_the_whole_grace_again(fleet, monkeypatch, rule):
    what, patience = DUE[rule]
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    key = prepare(fleet, sweeper, what)
    wait(fleet, patience)
    meanwhile(monkeypatch, sweeper, lambda: fleet.reassert(key))
    assert sweeper.step() == 0
    assert shown(fleet, key) == ("running", 1, "node-a")
    assert [refusal.rule for refusal in fleet.view.refusals(key)] == ["guess_outdated"]
    wait(fleet, GUESS)
    assert settle(sweeper) == 1
    wait(fleet, GRACE - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    settle(sweeper)
    assert rules_of(fleet, key)[-1] == rule


def test_one_that_was_guessed_anew_meanwhile_has_the_whole_grace_of_the_new_guess(
    fleet, monkeypatch
):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    key = prepare(fleet, sweeper, "a guess")
    wait(fleet, GRACE)

    def guessed_anew():
        fleet.reassert(key)
        record = fleet.view.get(key)
        term = sweeper._lead.term
        fleet.say(Guess(key=key, rev=record.rev, last_seen=record.last_seen, term=term))

    meanwhile(monkeypatch, sweeper, guessed_anew)
    assert sweeper.step() == 0
    assert [refusal.rule for refusal in fleet.view.refusals(key)] == ["guess_outdated"]
    wait(fleet, GRACE - 1)
    assert settle(sweeper) == 0
    assert shown(fleet, key) == ("failed~", 1, "node-a")
    wait(fleet, 1)
    settle(sweeper)
    assert shown(fleet, key) == ("queued", 2, "")


@pytest.mark.parametrize("rule", ["guess_applied", "requeued", "lost"])
def test_a_single_beat_meanwhile_is_enough(fleet, monkeypatch, rule):
    """It changes no rev: what was last seen stands in the word itself, or beside the guess."""
    what, patience = DUE[rule]
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    key = prepare(fleet, sweeper, what)
    wait(fleet, patience)
    before = shown(fleet, key)
    meanwhile(monkeypatch, sweeper, lambda: fleet.see(key))
    assert sweeper.step() == 0
    assert shown(fleet, key) == before
    wait(fleet, GUESS - 1)
    assert settle(sweeper) == 0
    wait(fleet, 1)
    assert settle(sweeper) == 1
    assert rules_of(fleet, key)[-1] == "guess_applied"


def test_a_job_that_was_started_meanwhile_is_not_taken_back(fleet, monkeypatch):
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = placed(fleet, "7")
    wait(fleet, START)
    fleet.beat()
    meanwhile(monkeypatch, sweeper, lambda: fleet.start(key))
    assert sweeper.step() == 0
    assert shown(fleet, key) == ("running", 1, "node-a")
    assert settle(sweeper) == 0
    assert len(fleet.handed_over("node-a")) == 1


def test_a_word_that_is_sent_twice_is_said_once(fleet, monkeypatch):
    """As redis-py does where the answer got lost."""
    fleet.workers_of("node-a")
    sweeper = attentive(fleet)
    [key] = running(fleet, "7")
    wait(fleet, GUESS)
    apply = sweeper._view.apply

    def twice(events):
        apply(events)
        return apply(events)

    monkeypatch.setattr(sweeper._view, "apply", twice)
    assert settle(sweeper) == 1
    assert rules_of(fleet, key).count("guess_applied") == 1
    assert fleet.view.refusals(key) == []
