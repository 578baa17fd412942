"""The state machine of a producer: what there is to say of a job, and in which order it is numbered."""

from __future__ import annotations

import pytest

from broker.errors import Invalid
from broker.rules.course import Course
from broker.rules.key import Key


@pytest.fixture
def course():
    made = Course(Key("desk", "ollama", "r1", "1"), created_at=1000, model="llama3")
    made.create()
    return made


def said(report):
    """What a report says, in short; None where there was nothing to say."""
    return report and (report.seq, report.state, report.node, report.started_at)


def test_the_typical_stream_is_queued_queued_on_a_node_running_completed():
    course = Course(Key("desk", "ollama", "r1", "1"), created_at=1000, model="m", requester="me")
    stream = [
        course.create(), course.dispatch("a"), course.start(2000), course.finish(3000, "completed")
    ]  # fmt: skip
    assert [said(report) for report in stream] == [
        (1, "queued", "", 0), (2, "queued", "a", 0), (3, "running", "a", 2000), (4, "completed", "a", 2000)
    ]  # fmt: skip
    assert {(r.key, r.created_at, r.model, r.requester) for r in stream} == {
        (course.key, 1000, "m", "me")
    }
    assert [report.completed_at for report in stream] == [0, 0, 0, 3000]


def test_a_failover_queues_the_job_on_the_other_node(course):
    course.dispatch("a")
    course.start(2000)
    moved = [course.dispatch("b"), course.start(4000), course.finish(5000, "completed")]
    assert [said(report) for report in moved] == [
        (4, "queued", "b", 0), (5, "running", "b", 4000), (6, "completed", "b", 4000)
    ]  # fmt: skip


def test_repointing_to_where_it_waits_says_nothing(course):
    course.dispatch("a")
    assert course.repoint("a") is None
    assert course.seq == 2


def test_repointing_to_where_it_runs_says_nothing(course):
    course.dispatch("a")
    course.start(2000)
    assert course.repoint("a") is None
    assert (course.state, course.started_at) == ("running", 2000)


@pytest.mark.parametrize("node", ["b", ""])
def test_a_running_job_that_moves_is_queued_with_started_at_cleared(course, node):
    course.dispatch("a")
    course.start(2000)
    assert said(course.repoint(node)) == (4, "queued", node, 0)


def test_a_new_attempt_on_the_node_where_it_runs_queues_it_with_started_at_cleared(course):
    course.dispatch("a")
    course.start(2000)
    assert said(course.dispatch("a")) == (4, "queued", "a", 0)
    assert course.attempt == 2


def test_a_new_attempt_on_the_node_where_it_waits_counts_and_says_nothing(course):
    course.dispatch("a")
    assert course.dispatch("a") is None
    assert course.attempt == 2


@pytest.mark.parametrize(
    "prepare, late",
    [
        (["a", "b"], {"attempt": 1}),
        (["a", "b"], {"node": "a"}),
        (["a", ""], {"node": "a", "attempt": 1}),
        (["a", ""], {"attempt": 1}),
        (["a", ""], {}),
    ],
    ids=["abandoned attempt", "other node", "between, named", "between, numbered", "between"],
)
def test_a_late_start_changes_nothing(course, prepare, late):
    for node in prepare:
        if node:
            course.dispatch(node)
        else:
            course.repoint("")
    before = course.seq
    assert course.start(9000, **late) is None
    assert (course.seq, course.state, course.started_at) == (before, "queued", 0)


def test_a_second_start_keeps_the_first_ones_time(course):
    course.dispatch("a")
    course.start(2000, "a", 1)
    assert course.start(3000, "a", 1) is None
    assert course.started_at == 2000


def test_a_job_that_was_never_dispatched_may_start_where_its_program_runs_it(course):
    assert said(course.start(2000)) == (2, "running", "", 2000)


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_nothing_is_said_after_the_terminal_word(course, state):
    assert said(course.finish(2000, state, "why")) == (2, state, "", 0)
    late = [
        course.finish(3000, "failed"), course.dispatch("a"), course.repoint("b"), course.repoint(""),
        course.start(4000), course.start(4000, "a", 1),
    ]  # fmt: skip
    assert late == [None] * 6
    assert (course.seq, course.state, course.completed_at, course.error) == (2, state, 2000, "why")
    assert course.attempt == 0


def test_only_a_terminal_state_is_an_end(course):
    with pytest.raises(Invalid, match="running"):
        course.finish(2000, "running")
    assert not course.ended


@pytest.mark.parametrize("say", ["dispatch", "repoint"])
def test_a_node_out_of_bounds_changes_nothing(course, say):
    with pytest.raises(Invalid):
        getattr(course, say)("Not A Node")
    assert (course.seq, course.attempt, course.node) == (1, 0, "")


@pytest.mark.parametrize("error", ["\ud800", "x" * 3_000_000, "\x00" * 200_000, "é" * 99])
def test_no_error_text_keeps_the_terminal_word_from_being_said(course, error):
    report = course.finish(2000, "failed", error)
    assert report.state == "failed"
    assert 0 < len(report.error.encode()) <= 64


def test_a_long_model_is_cut_on_the_record_and_kept_whole_beside_it():
    report = Course(Key("desk", "e", "", "1"), created_at=1, model="m" * 99).create()
    assert (len(report.model), "m" * 99 in report.extras) == (64, True)
