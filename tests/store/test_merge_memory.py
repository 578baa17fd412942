"""What an origin's books forget, and how: tombstones leave a horizon, answers go by halves. For both twins."""

from __future__ import annotations

import pytest

from broker.rules.bounds import Bounds
from tests.store.story import CREATED
from tests.store.twins import NOW, key


@pytest.fixture
def buried(story_with):
    """Two tombstones fit; the third put the horizon at the lowest of them."""
    story = story_with(Bounds(tombstones_max=2))
    for number in (1, 2, 3):
        story.remove(key=key(f"t{number}"), removed_at=CREATED + number)
    return story


def test_the_lowest_tombstone_goes_and_raises_the_horizon(buried):
    books = buried.twin.books()
    assert books.tombstones == {"ollama//t2": CREATED + 2, "ollama//t3": CREATED + 3}
    assert books.horizon == CREATED + 1


@pytest.mark.parametrize("id", ["t1", "never seen"])
def test_nothing_new_comes_from_below_the_horizon(buried, id):
    for created_at in (CREATED, CREATED + 1):
        assert buried.report(key=key(id), created_at=created_at) == "refused tombstoned"
        assert buried.submit(key=key(id), created_at=created_at) == "refused tombstoned"
    assert buried.report(key=key(id), created_at=CREATED + 2) == "applied first_sighting"


def test_a_submission_above_the_horizon_is_taken(buried):
    assert buried.submit(created_at=CREATED + 2) == "applied submitted"


def test_a_record_that_stands_below_the_horizon_is_heard(story_with):
    story = story_with(Bounds(tombstones_max=1))
    story.report("queued", seq=1)
    for number in (1, 2):
        story.remove(key=key(f"t{number}"), removed_at=CREATED + number)
    assert story.twin.books().horizon == CREATED + 1
    assert story.report("running", seq=2) == "applied higher_seq"


def test_a_tombstone_below_all_others_goes_at_once(buried):
    buried.remove(key=key("old"), removed_at=CREATED - 5)
    assert set(buried.twin.books().tombstones) == {"ollama//t2", "ollama//t3"}
    assert buried.twin.books().horizon == CREATED + 1


def test_the_horizon_never_falls(buried):
    buried.remove(key=key("new"), removed_at=CREATED + 9)
    assert buried.twin.books().horizon == CREATED + 2
    buried.remove(key=key("old"), removed_at=CREATED - 5)
    assert buried.twin.books().horizon == CREATED + 2


def test_an_event_of_no_generation_meets_any_tombstone(story):
    story.remove(removed_at=CREATED)
    assert story.cancel() == "refused tombstoned"
    assert story.finish(created_at=CREATED + 1) == "refused unknown"


@pytest.fixture
def forgetful(story_with):
    """Two answers make a half, and no half is younger than 50 ms."""
    return story_with(Bounds(answers_max=2, answers_ms_min=50))


def answer(story, number):
    return story.report("queued", key=key(f"a{number}"), created_at=CREATED, seq=1, event_id="x")


def test_answers_turn_when_the_half_is_full(forgetful):
    for number in (1, 2, 3):
        answer(forgetful, number)
    books = forgetful.twin.books()
    assert len(books.answers_old) == 2
    assert len(books.answers) == 1
    assert books.turned_at == NOW


def test_a_repeat_is_found_in_either_half(forgetful):
    for number in (1, 2, 3):
        answer(forgetful, number)
    for number in (1, 2, 3):
        assert answer(forgetful, number) == "duplicate first_sighting"


def test_a_half_is_never_turned_while_the_last_turn_is_young(forgetful):
    for number in range(1, 9):
        forgetful.wait(7)
        answer(forgetful, number)
    for number in range(1, 9):
        assert answer(forgetful, number) == "duplicate first_sighting"
    forgetful.wait(7)
    answer(forgetful, 9)
    assert len(forgetful.twin.books().answers) == 7  # 49 ms since the turn
    forgetful.wait(1)
    answer(forgetful, 10)
    assert len(forgetful.twin.books().answers) == 0
    assert len(forgetful.twin.books().answers_old) == 8
    assert answer(forgetful, 1) == "duplicate no_change"  # forgotten: told by its number


def test_an_event_without_a_mark_turns_them_as_well(forgetful):
    for number in (1, 2, 3, 4):
        answer(forgetful, number)
    forgetful.wait(50)
    forgetful.report("queued", seq=1, key=key("unmarked"))
    assert forgetful.twin.books().answers == {}


def test_two_turns_later_an_answer_is_forgotten(forgetful):
    for number in (1, 2, 3, 4):
        answer(forgetful, number)
        forgetful.wait(50)
    assert set(forgetful.twin.books().answers_old) == {
        f"ollama//a{number} {CREATED} #x" for number in (3, 4)
    }
