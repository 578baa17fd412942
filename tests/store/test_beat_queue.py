"""A holder's beat, and the queue of what waits: on a real server and on fakeredis."""

from __future__ import annotations

import pytest

from broker.rules.index import PRIORITY_STEP
from broker.store.beat import Beat, beat
from broker.store.queue import DUE_MAX, move_due, ready
from tests.store.story import CREATED, Story
from tests.store.twins import NOW, ORIGIN, key


@pytest.fixture
def story(script):
    return Story(script)


@pytest.fixture
def server(script):
    return script.store


# --- beats ----------------------------------------------------------------------------------------


def test_a_beat_moves_last_seen_and_nothing_else(story, server):
    story.begin()
    before = story.twin.books()
    rev = story.record().rev
    story.wait(1_000)
    assert beat(server, key(), 1, "h1") == Beat(valid=True, desired="run", guessed=False)
    record = story.record()
    assert (record.last_seen, record.rev) == (NOW + 1_000, rev)
    assert story.twin.books().log == before.log


def test_a_beat_hears_the_users_wish(story, server):
    story.begin()
    story.cancel()
    assert beat(server, key(), 1, "h1") == Beat(valid=True, desired="cancel", guessed=False)


def test_a_beat_hears_of_a_guess_and_makes_it_outlive_its_grace(story, server):
    story.begin()
    story.guess()
    story.wait(1)
    assert beat(server, key(), 1, "h1") == Beat(valid=True, desired="run", guessed=True)
    assert story.requeue() == "refused guess_outdated"


@pytest.mark.parametrize("attempt, holder", [(2, "h1"), (1, "h2"), (1, "")])
def test_another_holder_is_told_to_stop(story, server, attempt, holder):
    story.begin()
    story.wait(5)
    assert not beat(server, key(), attempt, holder).valid
    assert story.record().last_seen == NOW


@pytest.mark.parametrize("how", ["finished", "requeued", "forced", "removed", "never"])
def test_an_attempt_that_is_over_is_invalid(story, server, how):
    if how != "never":
        story.begin()
    if how == "finished":
        story.finish()
    if how == "requeued":
        story.guess()
        story.requeue()
    if how == "forced":
        story.cancel(force=True)
    if how == "removed":
        story.remove(force=True)
    assert beat(server, key(), 1, "h1").valid is False
    assert (story.record() is None) == (how in {"removed", "never"})


def test_no_beat_makes_a_record(story, server):
    beat(server, key(), 1, "h1")
    assert server.client.exists(story.twin.keys.of_job(key().job).job) == 0


# --- the queue ------------------------------------------------------------------------------------


def test_the_best_come_first(story, server):
    story.submit(key=key("old"))
    story.submit(key=key("new"), created_at=CREATED + 1)
    story.submit(key=key("urgent"), created_at=CREATED + 2, priority=1)
    assert ready(server, ORIGIN, 2) == [key("urgent"), key("old")]
    assert len(ready(server, ORIGIN, 9)) == 3
    assert ready(server, ORIGIN, 0) == []


def test_what_is_due_becomes_ready_without_an_entry(story, server):
    story.submit(due=NOW + 10, priority=3)
    assert move_due(server, ORIGIN, NOW + 9) == 0
    before = story.twin.books()
    assert move_due(server, ORIGIN, NOW + 10) == 1
    books = story.twin.books()
    assert books.delayed == {}
    assert books.ready == {key(): NOW + 10 - 3 * PRIORITY_STEP}
    assert (books.log, books.records) == (before.log, before.records)
    story.wait(10)
    assert story.place() == "applied placed"
    assert story.twin.books().ready == {}


def test_a_step_moves_a_hundred_at_most(story, server):
    for number in range(DUE_MAX + 5):
        story.submit(key=key(str(number)), due=NOW + 1)
    assert move_due(server, ORIGIN, NOW + 1) == DUE_MAX
    assert move_due(server, ORIGIN, NOW + 1) == 5


def test_a_member_without_a_waiting_record_is_dropped(story, server):
    story.submit(due=NOW + 1)
    server.client.delete(story.twin.keys.of_job(key().job).job)
    assert move_due(server, ORIGIN, NOW + 1) == 0
    assert server.client.zcard(story.twin.keys.delayed) == 0
    assert server.client.zcard(story.twin.keys.ready) == 0


def test_a_member_that_went_meanwhile_is_left_alone(story, server):
    """It was read as due, and placed or cancelled before the script came."""
    story.submit()
    books = story.twin.keys
    keys = [books.delayed, books.ready, books.of_job(key().job).job]
    before = story.twin.books()
    assert server.scripts.run("due", keys, [NOW, key().job]) == 0
    assert story.twin.books() == before


def test_a_job_that_was_put_off_meanwhile_stays(story, server):
    story.submit(due=NOW + 5)
    books = story.twin.keys
    keys = [books.delayed, books.ready, books.of_job(key().job).job]
    assert server.scripts.run("due", keys, [NOW + 4, key().job]) == 0
    assert story.twin.books().delayed == {key(): NOW + 5}


def test_a_damaged_record_does_not_hold_up_the_others(story, server):
    story.submit(key=key("1"), due=NOW + 1)
    story.submit(key=key("2"), due=NOW + 1)
    name = story.twin.keys.of_job(key("1").job).job
    server.client.delete(name)
    server.client.set(name, "no hash")
    assert move_due(server, ORIGIN, NOW + 1) == 1
    assert ready(server, ORIGIN, 9) == [key("2")]
