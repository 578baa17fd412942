"""What a sweep does to a submitted or reported job, and what its holder says against it: each row, for both twins."""

from __future__ import annotations

import pytest

from broker.rules.bounds import WEEK_MS, Bounds
from tests.store.story import CREATED
from tests.store.twins import NOW, key


def record(story):
    found = story.record()
    return (found.state, found.node, found.attempt, found.holder)


def test_reassert(story):
    story.begin()
    story.guess()
    story.wait(3)
    assert story.reassert() == "applied guess_cleared"
    assert record(story) == ("running", "node-a", 1, "h1")
    found = story.record()
    assert (found.inferred, found.error, found.completed_at, found.last_seen) == (
        False,
        "",
        0,
        NOW + 3,
    )


def test_reassert_not_ready(story):
    story.begin()
    assert story.reassert() == "refused not_ready"


def test_unplace(story):
    story.submit(at_most_once=True, attempts=1)
    story.place()
    assert story.unplace() == "applied unplaced"
    assert record(story) == ("queued", "", 2, "")
    assert story.record().tries == 0


@pytest.mark.parametrize("why", ["unplaced", "started", "another_rev"])
def test_unplace_not_ready(story, why):
    story.submit()
    if why != "unplaced":
        story.place()
    if why == "started":
        story.start()
    assert story.unplace(**({"rev": "1-0"} if why == "another_rev" else {})) == "refused not_ready"


@pytest.mark.parametrize("kind", ["submitted", "reported"])
def test_guess(story, kind):
    story.begin() if kind == "submitted" else story.report("running", seq=7)
    seq = story.record().seq
    assert story.guess() == "applied guess_applied"
    found = story.record()
    assert (found.state, found.guessed_from, found.guessed_at) == ("failed", "running", NOW)
    assert found.seq == (seq + 1 if kind == "submitted" else 7)
    assert story.twin.books().live == {key(): CREATED}


def test_guess_of_a_queued_report(story):
    story.report("queued")
    assert story.guess() == "applied guess_applied"
    assert story.record().guessed_from == "queued"


@pytest.mark.parametrize("why", ["another_rev", "seen_since", "guessed", "queued"])
def test_guess_outdated(story, why):
    story.submit()
    if why != "queued":
        story.go_on()
    if why == "guessed":
        story.guess()
    told = {"another_rev": {"rev": "1-0"}, "seen_since": {"last_seen": NOW - 1}}.get(why, {})
    assert story.guess(**told) == "refused guess_outdated"


def test_a_guess_that_a_beat_outlived_may_be_made_again(story):
    """The holder beat once more, and died before it could reassert: without this the job would never end."""
    story.begin()
    story.guess()
    assert story.guess() == "refused guess_outdated"
    story.twin.overwrite(key(), last_seen=NOW + 1)
    assert story.requeue() == "refused guess_outdated"
    story.wait(9)
    assert story.guess() == "applied guess_applied"
    found = story.record()
    assert (found.guessed_from, found.guessed_at) == ("running", NOW + 9)
    assert story.requeue() == "applied requeued"


def test_a_reported_guess_stands_until_its_origins_word(story):
    story.report("running")
    story.guess()
    story.wait(1)
    assert story.report("queued") == "refused older_than_guess"
    assert story.guess() == "refused guess_outdated"


def test_guess_terminal(story):
    story.report("completed")
    assert story.guess() == "refused terminal"


def test_requeue(story):
    story.begin()
    story.guess()
    assert story.requeue(due=NOW + 4) == "applied requeued"
    assert record(story) == ("queued", "", 2, "")
    found = story.record()
    assert (found.deaths, found.due, found.inferred, found.guessed_at) == (1, NOW + 4, False, 0)


def test_lost(story):
    story.begin(attempts=1)
    story.guess()
    assert story.lost() == "applied lost"
    found = story.record()
    assert (found.state, found.reason, found.attempt, found.deaths) == ("failed", "lost", 2, 1)
    assert found.error == "node-a went offline"


def test_lost_when_no_more_wanted_is_cancelled(story):
    story.begin()
    story.cancel()
    story.guess()
    assert story.lost() == "applied lost"
    assert story.record().state == "cancelled"


def test_lost_at_the_third_death_is_poison(story):
    story.begin(attempts=9)
    for _ in range(2):
        story.guess()
        assert story.requeue() == "applied requeued"
        story.go_on()
    story.guess()
    assert story.requeue() == "refused guess_outdated"
    assert story.lost() == "applied lost"
    assert story.record().reason == "poison"


@pytest.mark.parametrize("options", [{"attempts": 1}, {"at_most_once": True}], ids=str)
def test_requeue_where_it_may_not_run_again(story, options):
    story.begin(**options)
    story.guess()
    assert story.requeue() == "refused guess_outdated"


def test_lost_where_it_may_run_again(story):
    story.begin()
    story.guess()
    assert story.lost() == "refused guess_outdated"


@pytest.mark.parametrize("verb", ["requeue", "lost"])
def test_a_sweep_of_what_moved_is_outdated(story, verb):
    story.begin(attempts=3 if verb == "requeue" else 1)
    assert getattr(story, verb)() == "refused guess_outdated"
    story.guess()
    assert getattr(story, verb)(rev="1-0") == "refused guess_outdated"


@pytest.mark.parametrize("verb", ["requeue", "lost"])
def test_a_sweep_of_what_ended_is_terminal(story, verb):
    story.begin()
    story.finish()
    assert getattr(story, verb)() == "refused terminal"


def test_prune_of_what_ended(story):
    story.begin()
    story.finish()
    assert story.prune() == "applied pruned"
    assert story.record() is None
    assert story.log()[-1] == "prune pruned"
    assert story.report() == "refused tombstoned"


def test_prune_of_a_reported_guess(story):
    story.report("running")
    story.guess()
    assert story.prune() == "applied pruned"


def test_prune_of_a_reported_job_after_long_silence(story):
    story.report("running")
    story.wait(WEEK_MS - 1)
    assert story.prune() == "refused guess_outdated"
    story.wait(1)
    assert story.prune() == "applied pruned"


def test_the_silence_after_which_a_reported_job_may_be_pruned_is_a_bound(story_with):
    story = story_with(Bounds(silence_ms_max=50))
    story.report("running")
    story.wait(49)
    assert story.prune() == "refused guess_outdated"
    story.wait(1)
    assert story.prune() == "applied pruned"


@pytest.mark.parametrize("why", ["another_rev", "seen_since", "live"])
def test_prune_outdated(story, why):
    story.begin()
    if why != "live":
        story.finish()
    told = {"another_rev": {"rev": "1-0"}, "seen_since": {"last_seen": NOW - 1}}.get(why, {})
    assert story.prune(**told) == "refused guess_outdated"
