"""What the user wants, who is refused before anything else, and what every event has in common: for both twins."""

from __future__ import annotations

import pytest

from broker.rules.index import PRIORITY_STEP
from tests.store.story import CREATED
from tests.store.twins import NOW, key

LEADERS = ("place", "unplace", "guess", "requeue", "lost", "prune")
HOLDERS = ("start", "reassert", "finish")
ALL = (*LEADERS, *HOLDERS, "cancel")


@pytest.mark.parametrize("verb", ALL)
def test_unknown(story, verb):
    assert getattr(story, verb)() == "refused unknown"


@pytest.mark.parametrize("verb", ALL)
def test_tombstoned(story, verb):
    story.submit()
    story.remove()
    assert getattr(story, verb)() == "refused tombstoned"


@pytest.mark.parametrize("verb", HOLDERS)
def test_a_newer_generation_than_the_tombstone_is_unknown(story, verb):
    story.remove(removed_at=CREATED)
    assert getattr(story, verb)(created_at=CREATED + 1) == "refused unknown"


@pytest.mark.parametrize("verb", sorted(set(ALL) - {"guess", "prune", "cancel"}))
def test_not_ours(story, verb):
    story.report("running")
    assert getattr(story, verb)() == "refused not_ours"


@pytest.mark.parametrize("verb", LEADERS)
def test_stale_term(story, verb):
    story.submit(key=key("8"))
    role = "place" if verb == "place" else "prune" if verb == "prune" else "guess"
    if role == "place":
        assert story.place(key=key("8"), rev="1-0", term=5) == "applied placed"
    elif role == "prune":
        story.report("completed", key=key("9"))
        assert story.prune(key=key("9"), rev="2-0", last_seen=NOW, term=5) == "applied pruned"
    else:
        story.report("running", key=key("9"))
        assert (
            story.guess(key=key("9"), rev="2-0", last_seen=NOW, term=5) == "applied guess_applied"
        )
    story.submit()
    assert getattr(story, verb)(term=4) == "refused stale_term"
    assert "stale_term" not in getattr(story, verb)(term=5)
    assert (
        story.twin.books().terms[{"place": "dispatcher", "prune": "janitor"}.get(role, "sweeper")]
        == 5
    )


@pytest.mark.parametrize("placed", [False, True])
def test_cancel_of_a_queued_job_ends_it_in_the_same_step(story, placed):
    story.submit()
    if placed:
        story.place()
    assert story.cancel() == "applied desired"
    found = story.record()
    assert (found.state, found.desired, found.attempt) == ("cancelled", "cancel", 2)
    assert story.start(attempt=1) == "refused terminal"


def test_cancel_of_a_running_job_is_a_wish(story):
    story.begin()
    assert story.cancel() == "applied desired"
    assert (story.record().state, story.record().desired) == ("running", "cancel")
    assert story.cancel() == "duplicate no_change"


@pytest.mark.parametrize("guess", [False, True])
def test_cancel_by_force_ends_it_and_fences_the_worker(story, guess):
    story.begin()
    story.cancel()
    if guess:
        story.guess()
    assert story.cancel(force=True) == "applied desired"
    found = story.record()
    assert (found.state, found.reason, found.attempt) == ("cancelled", "forced", 2)
    assert story.finish(attempt=1) == "refused terminal"


def test_cancel_of_a_reported_job_is_for_its_origin_to_read(story):
    story.report("queued", seq=3)
    assert story.cancel() == "applied desired"
    found = story.record()
    assert (found.state, found.desired, found.seq) == ("queued", "cancel", 3)
    assert story.report("running", seq=4) == "applied higher_seq"
    assert story.record().desired == "cancel"


def test_force_on_a_reported_job_is_not_ours(story):
    story.report("running")
    assert story.cancel(force=True) == "refused not_ours"


def test_cancel_too_late(story):
    story.report("completed")
    assert story.cancel() == "refused too_late"


def test_a_wish_only_climbs(story):
    story.begin()
    story.remove()
    assert story.cancel() == "duplicate no_change"
    assert story.cancel(desired="run") == "duplicate no_change"
    assert story.record().desired == "remove"


@pytest.mark.parametrize("verb", ["submit", "place", "start", "finish", "cancel"])
def test_every_event_sent_again_is_answered_like_the_first(story, verb):
    sent = []
    tell = story.tell

    def remember(event):
        sent.append(event)
        return tell(event)

    story.tell = remember
    id = {"event_id": "x"}
    story.submit(**(id if verb == "submit" else {}))
    for step in ("place", "start", "finish"):
        if verb in {"submit", "cancel"}:
            break
        getattr(story, step)(**(id if verb == step else {}))
        if step == verb:
            break
    if verb == "cancel":
        story.cancel(**id)
    event = sent[-1]
    rule = story.log()[-1].split()[1]
    story.remove(force=True)
    assert tell(event) == f"duplicate {rule}"


def test_seq_counts_every_applied_event_of_a_submitted_job(story):
    story.begin()
    story.guess()
    story.reassert()
    story.finish("failed", retryable=True)
    assert story.record().seq == len(story.log()) == 6


def test_ready_is_ordered_by_priority_then_age(story):
    story.submit(key=key("1"))
    story.submit(key=key("2"), created_at=CREATED + 1)
    story.submit(key=key("3"), created_at=CREATED + 2, priority=1)
    story.submit(key=key("4"), due=NOW + 5)
    books = story.twin.books()
    assert sorted(books.ready, key=books.ready.get) == [key("3"), key("1"), key("2")]
    assert books.ready[key("3")] == CREATED + 2 - PRIORITY_STEP
    assert books.delayed == {key("4"): NOW + 5}


def test_a_job_is_listed_by_what_it_is(story):
    story.submit()
    assert set(story.twin.books().ready) == {key()}
    story.place()
    assert story.twin.books().ready == {}
    story.start()
    assert story.twin.books().live == {key(): CREATED}
    story.finish("failed", retryable=True, due=NOW + 5)
    assert story.twin.books().delayed == {key(): NOW + 5}
    story.cancel()
    books = story.twin.books()
    assert (books.live, books.ready, books.delayed, books.done) == ({}, {}, {}, {key(): NOW})
