"""Submit, place, start and finish: each row as a named case, for both twins."""

from __future__ import annotations

import pytest

from broker.rules.event import Submit
from tests.store.story import CREATED
from tests.store.twins import NOW, key


def record(story):
    found = story.record()
    return (found.state, found.node, found.attempt, found.holder)


def test_submit(story):
    options = {"attempts": 5, "priority": 7, "timeout": 900, "model": "m", "requester": "r"}
    assert (
        story.submit(**options, at_most_once=True, retry_of="desk/ollama//1", by="me")
        == "applied submitted"
    )
    found = story.record()
    assert (found.kind, found.state, found.attempt, found.seq) == ("submitted", "queued", 1, 1)
    assert (found.attempts, found.priority, found.timeout, found.at_most_once) == (5, 7, 900, 1)
    assert (found.model, found.requester, found.retry_of) == ("m", "r", "desk/ollama//1")
    assert (found.rev, found.submit_rev, found.last_seen) == ("1-0", "1-0", NOW)


def test_submit_again_is_answered_with_the_first_rev(story):
    story.begin()
    event = Submit(key=key(), created_at=CREATED, digest="d1")
    [answer] = story.twin.apply([event])
    assert answer == ("duplicate", "submitted", "1-0")


def test_submit_of_another_payload_is_a_conflict(story):
    story.submit()
    assert story.submit(digest="d2") == "refused conflict"


def test_submit_over_a_reported_record_is_a_conflict(story):
    story.report()
    assert story.submit() == "refused conflict"


@pytest.mark.parametrize("form", ["remove", "remove_pair"])
def test_submit_below_a_tombstone(story, form):
    getattr(story, form)(removed_at=CREATED)
    assert story.submit() == "refused tombstoned"
    assert story.submit(created_at=CREATED + 1) == "applied submitted"


def test_place(story):
    story.submit()
    assert story.place() == "applied placed"
    assert record(story) == ("queued", "node-a", 1, "")
    assert story.record().placed_at == NOW


@pytest.mark.parametrize("why", ["placed", "not_due", "another_rev", "cancelled", "running"])
def test_place_not_ready(story, why):
    story.submit(due=NOW + 1 if why == "not_due" else 0)
    if why in {"placed", "running"}:
        story.place()
    if why == "running":
        story.start()
    if why == "cancelled":
        story.cancel()
    rev = {"rev": "9-0"} if why == "another_rev" else {}
    if why == "another_rev":
        story.report(key=key("8"))
        rev = {"rev": "2-0"}
    assert story.place(**rev) == "refused not_ready"


def test_place_when_due(story):
    story.submit(due=NOW + 1)
    story.wait(1)
    assert story.place() == "applied placed"


def test_start(story):
    story.begin()
    assert record(story) == ("running", "node-a", 1, "h1")
    found = story.record()
    assert (found.tries, found.worker, found.started_at, found.seq) == (1, "w1", NOW, 3)


def test_start_terminal(story):
    story.begin()
    story.finish()
    assert story.start() == "refused terminal"


@pytest.mark.parametrize("wrong", [{"attempt": 2}, {"created_at": CREATED + 1}], ids=str)
def test_start_stale_attempt(story, wrong):
    story.submit()
    story.place()
    assert story.start(**wrong) == "refused stale_attempt"


def test_start_held(story):
    story.begin()
    assert story.start(holder="h2") == "refused held"


def test_start_cancelled(story):
    """A wish ends a queued job in its own step; should a record ever say otherwise, the worker is told to keep off."""
    story.submit()
    story.place()
    story.twin.overwrite(key(), desired="cancel")
    assert story.start() == "refused cancelled"


@pytest.mark.parametrize("why", ["unplaced", "elsewhere"])
def test_start_not_ready(story, why):
    story.submit()
    if why == "elsewhere":
        story.place(node="node-b")
    assert story.start(node="node-a") == "refused not_ready"


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_finish(story, state):
    story.begin()
    assert story.finish(state, error="e", reason="boom") == "applied finished"
    found = story.record()
    assert (found.state, found.completed_at, found.holder) == (state, NOW, "h1")
    assert (found.error, found.reason) == (("", "") if state == "completed" else ("e", "boom"))


def test_finish_after_a_guess_is_accepted(story):
    story.begin()
    story.guess()
    assert story.finish() == "applied finished"
    assert story.record().inferred is False


def test_finish_retryable_is_requeued(story):
    story.begin()
    assert story.finish("failed", retryable=True, due=NOW + 9, error="e") == "applied requeued"
    assert record(story) == ("queued", "", 2, "")
    found = story.record()
    assert (found.due, found.tries, found.error, found.deaths) == (NOW + 9, 1, "e", 0)


@pytest.mark.parametrize("options", [{"attempts": 1}, {"at_most_once": True}], ids=str)
def test_finish_retryable_with_no_try_left_fails(story, options):
    story.begin(**options)
    assert story.finish("failed", retryable=True) == "applied finished"
    assert story.record().state == "failed"


def test_finish_retryable_when_no_more_wanted_is_cancelled(story):
    story.begin()
    story.cancel()
    assert story.finish("failed", retryable=True) == "applied finished"
    assert story.record().state == "cancelled"


def test_finish_of_one_that_died_counts_a_death(story):
    story.begin()
    story.finish("failed", retryable=True, died=True)
    assert story.record().deaths == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_the_third_death_is_poison_before_tries(story, wanted):
    story.begin(attempts=9)
    for _ in range(2):
        assert story.finish("failed", retryable=True, died=True) == "applied requeued"
        story.go_on()
    if not wanted:
        story.cancel()
    assert story.finish("failed", retryable=True, died=True) == "applied finished"
    found = story.record()
    assert (found.state, found.reason) == ("failed" if wanted else "cancelled", "poison")


@pytest.mark.parametrize("verb", ["finish", "reassert"])
def test_holder_terminal(story, verb):
    story.begin()
    story.finish()
    assert getattr(story, verb)() == "refused terminal"


@pytest.mark.parametrize("verb", ["finish", "reassert"])
@pytest.mark.parametrize("wrong", [{"attempt": 2}, {"created_at": CREATED + 1}], ids=str)
def test_holder_stale_attempt(story, verb, wrong):
    story.begin()
    assert getattr(story, verb)(**wrong) == "refused stale_attempt"


@pytest.mark.parametrize("verb", ["finish", "reassert"])
def test_holder_held(story, verb):
    story.begin()
    assert getattr(story, verb)(holder="h2") == "refused held"


@pytest.mark.parametrize("verb", ["finish", "reassert"])
@pytest.mark.parametrize("holder", ["", "h1"])
def test_holder_held_where_nobody_holds(story, verb, holder):
    story.submit()
    assert getattr(story, verb)(holder=holder) == "refused held"
