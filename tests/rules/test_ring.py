"""What waits for a reader: the newest of each job, in order, bounded, and either whole or given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.rules.key import Key
from broker.rules.record import REPORTED, Record
from broker.rules.replay import Change
from broker.rules.ring import SIZE, Ring


def change(id, number=1, *, gone=False):
    rev = f"{number}-0"
    record = None if gone else Record(kind=REPORTED, state="running", created_at=1, rev=rev)
    return Change(Key("desk", "ollama", "", str(id)), record, rev, "test", "test", "")


def begun(size):
    ring = Ring(size)
    ring.begin()
    return ring


def by_job(changes):
    """The last one of each job, where it happened."""
    found = {}
    for told in changes:
        found.pop(told.key, None)
        found[told.key] = told
    return found


def ids(changes):
    return [change.key.id for change in changes]


def test_whoever_has_not_listed_yet_is_kept_nothing():
    ring = Ring(2)
    assert ring.is_lost
    assert not ring.put(by_job([change("a")]))
    assert ring.take() == []
    ring.begin()
    assert not ring.is_lost


def test_what_was_put_is_taken_once_in_its_order():
    ring = begun(3)
    told = [change("b", 1), change("a", 2), change("c", 3)]
    assert ring.put(by_job(told))
    assert len(ring) == 3
    assert ring.take() == told
    assert ring.take() == []


def test_of_one_job_only_the_newest_is_kept_and_stands_where_that_happened():
    ring = begun(2)
    ring.put(by_job([change("a", 1), change("b", 2), change("a", 3)]))
    assert ring.take() == [change("b", 2), change("a", 3)]


def test_a_removal_supersedes_and_is_superseded():
    ring = begun(1)
    ring.put(by_job([change("a", 1), change("a", 2, gone=True)]))
    assert [told.record for told in ring.take()] == [None]
    ring.put(by_job([change("a", 3, gone=True), change("a", 4)]))
    assert [told.rev for told in ring.take()] == ["4-0"]


def test_a_full_ring_takes_what_replaces_what_it_holds():
    ring = begun(2)
    assert ring.put(by_job([change("a", 1), change("b", 2)]))
    assert ring.put(by_job([change("a", number) for number in range(3, 1_000)]))
    assert ids(ring.take()) == ["b", "a"]


def test_one_job_too_many_drops_all_of_it_and_what_follows_until_the_reader_begins_anew():
    ring = begun(2)
    assert not ring.put(by_job([change("a", 1), change("b", 2), change("c", 3), change("d", 4)]))
    assert ring.is_lost
    assert ring.take() == []
    assert not ring.put(by_job([change("a", 5)]))
    assert len(ring) == 0
    ring.begin()
    assert ring.put(by_job([change("a", 6)]))
    assert ids(ring.take()) == ["a"]


def test_beginning_anew_forgets_what_the_new_list_already_shows():
    ring = begun(2)
    ring.put(by_job([change("a", 1)]))
    ring.begin()
    assert ring.take() == []


class TestWhatIsMissed:
    """Of what happened, by a reader that asked for some of it."""

    def test_is_what_it_asked_for(self):
        newest = by_job([change("a", 1), change("b", 2)])
        asked = by_job([change("b", 2)])
        assert begun(2).missed(asked, newest) == asked
        assert begun(2).missed({}, newest) == {}

    def test_is_what_replaces_what_it_has_not_taken_and_stands_where_that_happened(self):
        ring = begun(4)
        ring.put(by_job([change("a", 1), change("b", 2)]))
        newest = by_job([change("c", 3), change("a", 4), change("d", 5)])
        missed = ring.missed(by_job([change("d", 5)]), newest)
        assert list(missed.values()) == [change("a", 4), change("d", 5)]
        ring.put(missed)
        assert ring.take() == [change("b", 2), change("a", 4), change("d", 5)]


def test_it_is_filling_from_the_half_on():
    ring = begun(4)
    ring.put(by_job([change("a", 1)]))
    assert not ring.is_filling
    ring.put(by_job([change("b", 2)]))
    assert ring.is_filling
    ring.take()
    assert not ring.is_filling


def test_it_holds_a_thousand_jobs_by_itself():
    ring = Ring()
    ring.begin()
    assert ring.put(by_job([change(number, number) for number in range(SIZE)]))
    assert not ring.put(by_job([change("one more", SIZE)]))


@given(
    st.integers(1, 6),
    st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 8), st.booleans()))),
)
def test_who_follows_it_and_lists_when_told_always_holds_the_truth(size, acts):
    """None: the reader takes. Whatever is coalesced or dropped, after each taking reader and truth are the same."""
    ring = begun(size)
    truth, held = {}, {}
    for number, act in enumerate([*acts, None], 1):
        if act is not None:
            told = change(act[0], number, gone=act[1])
            follow(truth, [told])
            ring.put(by_job([told]))
            assert len(ring) <= size
            continue
        if ring.is_lost:
            ring.begin()
            held = dict(truth)
        taken = ring.take()
        numbers = [int(told.rev.split("-")[0]) for told in taken]
        assert numbers == sorted(numbers)
        assert len(set(ids(taken))) == len(taken)
        follow(held, taken)
        assert held == truth


def follow(held, changes):
    for told in changes:
        if told.record is None:
            held.pop(told.key, None)
        else:
            held[told.key] = told.record
