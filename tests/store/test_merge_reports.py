"""Each row of the table of reports as a named case, for both twins: the first row that fits decides."""

from __future__ import annotations

import pytest

from broker.rules.event import AHEAD_MS_MAX, NUMBER_MAX
from tests.store.story import CREATED
from tests.store.twins import NOW, key

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "lost"},
        {"state": ""},
        {"seq": -1},
        {"seq": NUMBER_MAX + 1},
        {"started_at": -1},
        {"completed_at": NUMBER_MAX + 1},
        {"stale_after": NUMBER_MAX + 1},
        {"created_at": 0},
        {"created_at": -5},
        {"created_at": NUMBER_MAX},
        {"created_at": NOW + AHEAD_MS_MAX + 1},
    ],
    ids=str,
)
def test_row_1_invalid_writes_nothing(story, wrong):
    story.report("running")
    before = story.twin.books()
    assert story.report(**({"state": "completed"} | wrong)) == "refused invalid"
    assert story.twin.books() == before


def test_row_1_bounds_themselves_are_valid(story):
    created_at = NOW + AHEAD_MS_MAX
    assert story.report(created_at=created_at, seq=NUMBER_MAX) == "applied first_sighting"
    assert story.record().seq == NUMBER_MAX
    assert story.record().created_at == created_at


def test_row_2_tombstoned_by_the_identity(story):
    story.remove(removed_at=CREATED)
    assert story.report() == "refused tombstoned"
    assert story.report(created_at=CREATED + 1) == "applied first_sighting"


def test_row_2_tombstoned_by_the_pair(story):
    story.remove_pair(removed_at=CREATED)
    assert story.report(key=key(engine="other", run="r2")) == "refused tombstoned"
    assert story.report(key=key("70")) == "applied first_sighting"


def test_row_2_tombstoned_under_a_record_that_stays(story):
    """A removal older than the record leaves it; one of its own generation came by the pair: reports stay out."""
    story.report(created_at=CREATED + 5)
    assert story.remove_pair(removed_at=CREATED) == "applied removed"
    assert story.record() is not None
    assert story.report("running", created_at=CREATED) == "refused tombstoned"


def test_row_3_owned_here(story):
    story.submit()
    assert story.report("completed", seq=9) == "refused owned_here"
    assert story.record().state == "queued"


@pytest.mark.parametrize("state", ["queued", "running", "completed", "failed", "cancelled"])
def test_row_4_first_sighting_in_any_state(story, state):
    assert story.report(state, seq=4, model="m", by="me") == "applied first_sighting"
    record = story.record()
    assert (record.state, record.seq, record.model, record.by) == (state, 4, "m", "me")
    assert (record.rule, record.rev, record.kind) == ("first_sighting", "1-0", "reported")
    assert record.last_seen == NOW


def test_row_5_newer_generation_whatever_stood(story):
    story.report("completed", seq=9, model="m", error="e")
    story.cancel()
    assert story.report("queued", seq=1, created_at=CREATED + 1) == "applied newer_generation"
    record = story.record()
    assert (record.state, record.seq, record.error, record.model) == ("queued", 1, "", "")


def test_row_5_starts_everything_anew(story):
    story.report("running", seq=5)
    story.report("running", seq=5)
    story.cancel()
    story.guess()
    assert story.report("running", created_at=CREATED + 1) == "applied newer_generation"
    record = story.record()
    assert (record.desired, record.inferred, record.guessed_at) == ("run", False, 0)
    assert (record.seq, record.sightings) == (0, 0)


def test_row_6_older_generation(story):
    story.report("queued", created_at=CREATED + 1)
    assert story.report("completed", seq=9) == "refused older_generation"
    assert story.record().state == "queued"


def test_row_6_is_no_sighting(story):
    story.report(created_at=CREATED + 1)
    story.wait(5)
    story.report("completed")
    assert story.record().last_seen == NOW


@pytest.mark.parametrize(
    "late",
    [
        pytest.param({"state": "completed", "seq": 2}, id="stale_seq"),
        pytest.param({"state": "queued"}, id="lower_rank"),
        pytest.param({"state": "running", "seq": 3}, id="no_change"),
    ],
)
def test_from_row_7_on_every_report_is_a_sighting(story, late):
    story.report("running", seq=3)
    story.wait(5)
    assert not story.report(**late).startswith("applied")
    assert story.record().last_seen == NOW + 5


def guessed(story, state="running", seq=0):
    story.report("queued", seq=seq and seq - 1)
    story.report(state, seq=seq)
    assert story.guess() == "applied guess_applied"


def test_row_7_older_than_guess_by_number(story):
    guessed(story, seq=5)
    assert story.report("completed", seq=4) == "refused older_than_guess"
    assert story.record().inferred


def test_row_7_older_than_guess_by_rank(story):
    guessed(story)
    assert story.report("queued", node="node-b") == "refused older_than_guess"


def test_row_7_older_than_guess_by_its_mark(story):
    story.report("running", node="node-a")
    story.report("running", node="node-b")
    story.guess()
    assert story.report("running", node="node-a") == "refused older_than_guess"


def test_row_7_a_repeat_of_what_the_guess_replaced_clears_it(story):
    story.report("running", node="node-a")
    story.guess()
    assert story.report("running", node="node-a") == "applied guess_cleared"


def test_row_7_resync_is_never_a_repeat(story):
    story.report("running", node="node-a")
    story.report("running", node="node-b")
    story.guess()
    assert story.report("running", node="node-a", resync=True) == "applied guess_cleared"


@pytest.mark.parametrize("seq", [5, 6])
def test_row_8_guess_cleared_even_from_failed_back_to_running(story, seq):
    guessed(story, seq=5)
    assert story.record().state == "failed"
    assert story.report("running", seq=seq) == "applied guess_cleared"
    record = story.record()
    assert (record.state, record.inferred, record.guessed_at) == ("running", False, 0)


def test_row_8_an_unnumbered_word_clears_a_numbered_guess(story):
    guessed(story, seq=5)
    assert story.report("completed") == "applied guess_cleared"
    assert story.record().seq == 5


@pytest.mark.parametrize("known, seq", [(3, 3), (3, 0), (0, 3), (0, 0)])
def test_row_9_no_change_is_the_heartbeat(story, known, seq):
    story.report("running", seq=known)
    story.wait(7)
    assert story.report("running", seq=seq) == "duplicate no_change"
    record = story.record()
    assert (record.sightings, record.last_seen, record.seq) == (1, NOW + 7, known)
    assert len(story.log()) == 1


def test_row_10_seen(story):
    story.report("running", node="node-a")
    story.report("running", node="node-b")
    assert story.report("running", node="node-a") == "duplicate seen"
    assert (story.record().node, story.record().sightings) == ("node-b", 1)


def test_row_10_resync_is_heard_again(story):
    story.report("running", node="node-a")
    story.report("running", node="node-b")
    assert story.report("running", node="node-a", resync=True) == "applied repoint"


def test_row_10_a_refused_report_leaves_no_mark(story):
    story.report("running", node="node-b", seq=4)
    assert story.report("queued", node="node-a") == "refused lower_rank"
    assert story.report("queued", node="node-a") == "refused lower_rank"


def test_row_11_terminal(story):
    story.report("completed", seq=3)
    assert story.report("running", seq=4) == "refused terminal"


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_row_11_stale_seq(story, seq):
    story.report("queued", seq=3)
    assert story.report("running", seq=seq) == "refused stale_seq"


def test_row_11_higher_seq_even_if_the_rank_drops(story):
    story.report("running", node="node-a", seq=3)
    assert story.report("queued", node="node-b", seq=4) == "applied higher_seq"
    record = story.record()
    assert (record.state, record.node, record.seq) == ("queued", "node-b", 4)


@pytest.mark.parametrize("known, seq", [(0, 3), (3, 0), (0, 0)])
def test_row_12_higher_rank(story, known, seq):
    story.report("queued", seq=known)
    assert story.report("running", seq=seq) == "applied higher_rank"
    assert story.record().seq == max(known, seq)


@pytest.mark.parametrize("known, seq", [(0, 3), (3, 0), (0, 0)])
def test_row_12_lower_rank(story, known, seq):
    story.report("running", seq=known)
    assert story.report("queued", seq=seq) == "refused lower_rank"


@pytest.mark.parametrize("known, seq", [(0, 3), (3, 0), (0, 0)])
def test_row_13_terminal(story, known, seq):
    story.report("completed", seq=known)
    assert story.report("failed", seq=seq) == "refused terminal"


@pytest.mark.parametrize("known, seq", [(0, 3), (3, 0), (0, 0)])
def test_row_13_repoint(story, known, seq):
    story.report("running", node="node-a", seq=known)
    assert story.report("running", node="node-b", seq=seq) == "applied repoint"
    assert (story.record().node, story.record().seq) == ("node-b", max(known, seq))


def test_an_event_id_is_answered_like_the_first_before_any_guard(story):
    first = {"state": "running", "resync": True, "event_id": "x", "by": "me"}
    assert story.report(**first) == "applied first_sighting"
    story.report("completed", seq=2)
    assert story.report(**first) == "duplicate first_sighting"
    story.remove()
    assert story.report(**first) == "duplicate first_sighting"


def test_an_event_id_is_bound_to_its_job_and_generation(story):
    story.report("queued", event_id="x")
    assert story.report("queued", event_id="x", key=key("8")) == "applied first_sighting"
    assert (
        story.report("queued", event_id="x", created_at=CREATED + 1) == "applied newer_generation"
    )


def test_only_applied_events_leave_an_answer(story):
    story.report("running", seq=5)
    assert story.report("queued", seq=4, event_id="x") == "refused stale_seq"
    assert story.report("queued", seq=4, event_id="x") == "refused stale_seq"


def test_an_origin_that_re_asserts_once_is_expected_to_go_on(story):
    story.report("running")
    assert story.twin.books().stale_after is None
    story.report("running", resync=True)
    assert story.twin.books().stale_after == 0


def test_an_origin_says_how_long_it_may_be_silent_and_the_last_word_counts(story):
    story.report("running", stale_after=60_000)
    assert story.twin.books().stale_after == 60_000
    story.report("running", resync=True)
    assert story.twin.books().stale_after == 60_000
    story.report("running", stale_after=90_000)
    assert story.twin.books().stale_after == 90_000


def test_a_refused_report_is_a_promise_too_an_invalid_one_is_none(story):
    story.report("completed", seq=2)
    story.report("lost", resync=True)
    assert story.twin.books().stale_after is None
    assert story.report("running", seq=1, resync=True) == "refused terminal"
    assert story.twin.books().stale_after == 0
