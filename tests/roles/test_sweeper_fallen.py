"""What RQ keeps of a worker that was killed after it told its job's end, and before it threw RQ's notes away."""

from __future__ import annotations

import pytest

from tests.roles.fleet import settle
from tests.roles.sweeping import GUESS, START, attentive, placed, wait
from tests.roles.test_sweeper import rq_is_empty, rq_keys, take_in_hand

__all__ = ["rq_is_empty"]


@pytest.fixture
def sweeper(fleet, rq_is_empty):
    fleet.workers_of("node-a", count=2)
    return attentive(fleet)


def in_hand(fleet, *ids):
    keys = placed(fleet, *ids)
    for key, worker in zip(keys, fleet.workers, strict=False):
        take_in_hand(fleet, key, worker.name)
        fleet.start(key, worker.name)
    return keys


def test_the_notes_of_an_ended_attempt_go_with_its_worker(fleet, sweeper):
    [key] = in_hand(fleet, "1")
    fleet.finish(key)
    settle(sweeper)
    assert len(rq_keys(fleet)) >= 5  # its worker is about to throw them away
    wait(fleet, GUESS)
    settle(sweeper)
    assert rq_keys(fleet) == []


def test_the_notes_of_a_running_attempt_stay_until_it_is_given_up(fleet, sweeper):
    in_hand(fleet, "1")
    before = rq_keys(fleet)
    wait(fleet, GUESS)
    settle(sweeper)
    assert rq_keys(fleet) == before


def test_the_notes_of_a_worker_that_beats_are_its_own(fleet, sweeper):
    ended, other = in_hand(fleet, "1", "2")
    for key in (ended, other):
        fleet.finish(key)
    wait(fleet, GUESS)
    fleet.beat(fleet.workers[0].name)
    settle(sweeper)
    left = {name for name in rq_keys(fleet) if name.startswith("rq:job:")}
    assert len(left) == 1
    [job] = left
    assert fleet.store.client.hget(job, "description").decode() == str(other)


def test_one_that_falls_silent_again_is_cleared_away_again(fleet, sweeper):
    wait(fleet, GUESS)
    settle(sweeper)
    fleet.beat()
    settle(sweeper)
    [key] = in_hand(fleet, "1")
    fleet.finish(key)
    wait(fleet, GUESS)
    settle(sweeper)
    assert rq_keys(fleet) == []


def test_what_rq_noted_of_a_hand_off_that_nobody_began_goes_with_the_attempt(fleet, sweeper):
    placed(fleet, "1")
    queue = fleet.queue("node-a")
    id = fleet.store.client.lmove(queue.key, queue.intermediate_queue_key).decode()
    queue.intermediate_queue.set_first_seen(id)
    wait(fleet, START)
    fleet.beat()
    settle(sweeper)
    assert queue.intermediate_queue.get_first_seen(id) is None
    assert rq_keys(fleet) == []
