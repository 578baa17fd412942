"""Where a job is listed, and by what: for both twins."""

from __future__ import annotations

import pytest

from tests.store.story import CREATED
from tests.store.twins import NOW, key


def listed(story):
    books = story.twin.books()
    return books.live, books.done


def test_a_live_report_is_listed_by_its_creation(story):
    story.report("running")
    assert listed(story) == ({key(): CREATED}, {})


@pytest.mark.parametrize("state", ["running", "completed"])
def test_a_newer_generation_is_listed_by_its_own_creation(story, state):
    story.report(state)
    story.report("running", created_at=CREATED + 5)
    assert listed(story) == ({key(): CREATED + 5}, {})


def test_what_ended_is_listed_by_when_it_says_it_did(story):
    story.report("completed", completed_at=CREATED + 7)
    assert listed(story) == ({}, {key(): CREATED + 7})


def test_what_ended_without_saying_when_is_listed_by_when_that_was_heard(story):
    story.report("running")
    story.wait(3)
    story.report("failed")
    assert listed(story) == ({}, {key(): NOW + 3})


def test_a_newer_generation_that_ended_too_is_listed_anew(story):
    story.report("completed", completed_at=CREATED + 7)
    story.report("failed", created_at=CREATED + 5, completed_at=CREATED + 9)
    assert listed(story) == ({}, {key(): CREATED + 9})


def test_a_guess_counts_as_live(story):
    story.report("running")
    story.guess()
    assert listed(story) == ({key(): CREATED}, {})
    story.report("completed", completed_at=CREATED + 7)
    assert listed(story) == ({}, {key(): CREATED + 7})


def test_a_pairs_generation_never_falls(story):
    """The second removal speaks of less, and still finds a job to take: those unseen stay buried as deep as before."""
    story.begin()
    assert story.remove_pair(removed_at=NOW) == "applied remove_requested"
    assert story.remove_pair(removed_at=CREATED, force=True) == "applied removed"
    assert story.twin.books().tombstones["7"] == NOW
