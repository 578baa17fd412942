"""Each sentence on removals as a named case, for both twins: in either form, by whoever, seen or not yet seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.rules.event import AHEAD_MS_MAX, NUMBER_MAX
from tests.store.story import CREATED
from tests.store.twins import NOW, key

FORMS = ("remove", "remove_pair")
either_form = pytest.mark.parametrize("form", FORMS)


def tombstones(story):
    return story.twin.books().tombstones


@either_form
@pytest.mark.parametrize("removed_at", [-1, NUMBER_MAX, NUMBER_MAX + 1, NOW + AHEAD_MS_MAX + 1])
def test_row_1_holds_for_removed_at(story, form, removed_at):
    story.report()
    assert getattr(story, form)(removed_at=removed_at) == "refused invalid"
    assert story.record() is not None
    assert not tombstones(story)


@either_form
def test_a_removal_may_come_first(story, form):
    """The first story of the sources: remove before started, on an empty store, must not make a ghost."""
    assert getattr(story, form)(removed_at=CREATED) == "applied removed"
    assert story.report("running") == "refused tombstoned"
    assert story.twin.books().records == {}
    assert story.log() == ["remove removed"]


def test_the_generation_is_removed_at_else_the_records_else_ingest(story):
    story.report(key=key("1"))
    story.remove(key=key("1"))
    story.report(key=key("2"))
    story.remove(key=key("2"), removed_at=CREATED + 5)
    story.remove(key=key("3"))
    assert tombstones(story) == {"ollama//1": CREATED, "ollama//2": CREATED + 5, "ollama//3": NOW}


def test_a_broad_removal_buries_the_pair_as_well(story):
    story.report()
    assert story.remove_pair() == "applied removed"
    assert tombstones(story) == {"ollama//7": CREATED, "7": NOW}


def test_a_broad_removal_takes_every_engine_and_run_but_no_other_id(story):
    shared = [key(run="r1"), key(engine="lmstudio"), key()]
    others = [key("70"), key("17"), key("7/")]
    for one in shared + others:
        story.report(key=one)
    assert story.remove_pair() == "applied removed"
    books = story.twin.books()
    assert set(books.records) == set(others)
    assert [(job, rule) for _, _, job, rule, *_ in books.log[-3:]] == [
        ("lmstudio//7", "removed"),
        ("ollama//7", "removed"),
        ("ollama/r1/7", "removed"),
    ]


@either_form
def test_a_record_created_after_removed_at_stays(story, form):
    story.report(created_at=CREATED)
    answer = getattr(story, form)(removed_at=CREATED - 1)
    assert answer == ("refused older_generation" if form == "remove" else "applied removed")
    assert story.record() is not None


@either_form
def test_a_record_created_at_removed_at_goes(story, form):
    story.report(created_at=CREATED)
    assert getattr(story, form)(removed_at=CREATED) == "applied removed"
    assert story.record() is None


@either_form
def test_where_no_record_was_one_entry_is_logged_all_the_same(story, form):
    getattr(story, form)(removed_at=CREATED)
    [(rev, event, job, rule, _, generation, record)] = story.twin.books().log
    assert (rev, event, rule, generation, record) == ("1-0", "remove", "removed", CREATED, None)
    assert job == ("ollama//7" if form == "remove" else "7")


@either_form
@pytest.mark.parametrize("removed_at", [0, CREATED, CREATED - 1])
def test_a_repeat_is_seen_logs_nothing_and_leaves_the_generation(story, form, removed_at):
    getattr(story, form)(removed_at=CREATED)
    before = story.twin.books()
    story.wait(5)
    assert getattr(story, form)(removed_at=removed_at) == "duplicate seen"
    assert replace(story.twin.books(), counts=before.counts) == before


@either_form
def test_a_later_removal_raises_the_generation(story, form):
    getattr(story, form)(removed_at=CREATED)
    assert getattr(story, form)(removed_at=CREATED + 9) == "applied removed"
    assert story.report(created_at=CREATED + 9) == "refused tombstoned"


def test_the_two_forms_do_not_stand_for_each_other(story):
    story.remove(removed_at=CREATED)
    assert story.remove_pair(removed_at=CREATED) == "applied removed"


@either_form
def test_a_reported_job_goes_at_once(story, form):
    story.report("running")
    assert getattr(story, form)() == "applied removed"
    assert story.record() is None


def test_a_removal_that_names_a_rev_takes_that_record_and_no_other(story):
    story.report("queued")
    as_seen = story.record().rev
    story.report("running")
    assert story.remove(rev=as_seen, force=True) == "refused guess_outdated"
    assert story.record().state == "running"
    assert story.remove(rev=story.record().rev, force=True) == "applied removed"
    assert story.record() is None


def test_where_that_record_is_gone_it_leaves_no_tombstone(story):
    story.report("running", key=key("8"))
    assert story.remove(rev=story.record(key("8")).rev) == "refused guess_outdated"
    assert story.report("running") == "applied first_sighting"


@either_form
def test_a_guess_of_a_reported_job_goes_at_once(story, form):
    story.report("running")
    story.guess()
    assert getattr(story, form)() == "applied removed"


@either_form
def test_a_submitted_job_that_ended_goes_at_once(story, form):
    story.begin()
    story.finish()
    assert getattr(story, form)() == "applied removed"
    assert story.log()[-1] == "remove removed"


@either_form
@pytest.mark.parametrize("placed", [False, True])
def test_a_queued_one_is_cancelled_then_removed_in_one_step(story, form, placed):
    story.submit()
    if placed:
        story.place()
    assert getattr(story, form)() == "applied removed"
    *_, cancelled, removed = story.twin.books().log
    told = cancelled[-1]
    assert (told["state"], told["desired"], told["rule"], told["attempt"]) == (
        "cancelled", "remove", "desired", "2",
    )  # fmt: skip
    assert removed[3] == "removed"
    assert story.start() == "refused tombstoned"


@either_form
@pytest.mark.parametrize("guess", [False, True])
def test_a_running_one_is_asked_to_end_first(story, form, guess):
    story.begin()
    if guess:
        story.guess()
    assert getattr(story, form)() == "applied remove_requested"
    assert story.record().desired == "remove"
    story.wait(1)
    assert getattr(story, form)() == "duplicate no_change"


@either_form
@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_its_terminal_word_carries_the_removal_out(story, form, state):
    story.begin()
    getattr(story, form)()
    assert story.finish(state, result="1") == "applied finished"
    assert story.record() is None
    assert story.log()[-2:] == ["finish finished", "finish removed"]
    assert tombstones(story)["ollama//7"] == CREATED


def test_the_sweepers_terminal_word_carries_it_out_too(story):
    story.begin()
    story.remove()
    story.guess()
    assert story.lost() == "applied lost"
    assert story.record() is None
    assert story.log()[-2:] == ["lost lost", "lost removed"]


@either_form
@pytest.mark.parametrize("state", ["queued", "running"])
def test_force_takes_a_live_one_at_once_and_fences_its_worker(story, form, state):
    story.begin() if state == "running" else story.submit()
    assert getattr(story, form)(force=True) == "applied removed"
    assert story.finish(attempt=1) == "refused tombstoned"


def test_a_broad_removal_of_running_ones_alone_is_a_request(story):
    story.begin()
    assert story.remove_pair() == "applied remove_requested"
    assert tombstones(story) == {"7": NOW}


def test_a_broad_removal_of_some_is_a_removal(story):
    story.begin()
    story.report(key=key(engine="other"))
    assert story.remove_pair() == "applied removed"
    assert set(story.twin.books().records) == {key()}


@either_form
def test_an_event_id_answers_for_a_removal(story, form):
    assert getattr(story, form)(removed_at=CREATED, event_id="x") == "applied removed"
    assert getattr(story, form)(removed_at=CREATED, event_id="x") == "duplicate removed"


@either_form
def test_a_removal_leaves_no_listing_behind(story, form):
    for one in (key(), key("8"), key("9")):
        story.submit(key=one, due=NOW + 50 if one.id == "8" else 0)
    story.report("completed", key=key("10"))
    for id in ("7", "8", "9", "10"):
        getattr(story, form)(**({"key": key(id)} if form == "remove" else {"id": id}))
    books = story.twin.books()
    assert (books.live, books.done, books.ready, books.delayed) == ({}, {}, {}, {})


def test_a_later_broad_removal_does_not_call_a_running_job_gone(story):
    """It buries a newer generation for those unseen; the job itself still waits for its holder's word."""
    story.begin()
    story.remove_pair(removed_at=CREATED)
    assert story.remove_pair(removed_at=CREATED + 1) == "applied remove_requested"
    assert story.record().desired == "remove"
    assert story.finish("cancelled") == "applied finished"
    assert story.record() is None
