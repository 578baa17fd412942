"""Random changes, random questions: what each reader holds is, whenever it looks, the list as it asked for it.

Against the very list that readers share, without Redis: what is random here is what Redis would tell.
"""

from __future__ import annotations

import threading

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from broker.errors import Resync
from broker.readers.reader import Reader
from broker.readers.shared import Inbox, SharedList
from broker.rules.filter import Filter
from broker.rules.key import Key
from broker.rules.record import REPORTED, Record
from broker.rules.replay import Change, differences

ORIGINS, ENGINES, NODES = ("desk", "shelf"), ("ollama", "process"), ("", "n1", "n2")
STATES = ("queued", "running", "failed")
KEYS = [Key(origin, engine, "", id) for origin in ORIGINS for engine in ENGINES for id in "ab"]
#: One that names a pair, of which nothing is held.
PAIR = Key("desk", "", "", "z")

some = st.one_of
#: Each is a few milliseconds: not so many as of what is pure.
EXAMPLES = min(settings.default.max_examples, 1_000)
filters = st.builds(
    Filter,
    states=some(st.none(), st.frozensets(st.sampled_from(STATES))),
    node=some(st.none(), st.sampled_from(NODES)),
    engine=some(st.none(), st.sampled_from(ENGINES)),
    origin=some(st.none(), st.sampled_from(ORIGINS)),
)
values = some(st.none(), st.tuples(st.sampled_from(STATES), st.sampled_from(NODES), st.booleans()))
one_change = st.tuples(st.sampled_from([*KEYS, PAIR]), values)
acts = some(
    st.tuples(st.just("told"), st.lists(one_change, min_size=1, max_size=6)),
    st.tuples(st.just("listed anew"), st.dictionaries(st.sampled_from(KEYS), values)),
    st.tuples(st.sampled_from(["looks", "lists", "leaves and comes back"]), st.integers(0, 2)),
)


class Shared:
    """The list, and the truth that it is told."""

    def __init__(self, ring_size, history_size):
        self.list = SharedList(history_size)
        self.ring_size = ring_size
        self.truth = {}
        self.number = 0
        self.list.follow([], {}, is_listed=True)

    def open(self, wanted, after=None):
        inbox = Inbox("it", self.list.lock, self.ring_size, wanted)
        self.list.join(inbox, after)
        return Reader(self.list, inbox, after or "")

    def record(self, value):
        self.number += 1
        state, node, is_guess = value
        guess = {"guessed_from": "running", "guessed_at": 1} if is_guess else {}
        rev = f"{self.number}-0"
        return Record(kind=REPORTED, state=state, node=node, created_at=1, rev=rev, **guess)

    def tell(self, wanted):
        changes = []
        for key, value in wanted:
            record = self.record(value) if value and key != PAIR else None
            changes.append(Change(key, record, f"{self.number}-0", "e", "r", ""))
            self.follow(self.truth, changes[-1])
        self.list.follow(changes, {}, is_listed=True)

    def list_anew(self, found):
        """As after a loss: what differs is told, what vanished comes last."""
        found = {key: self.record(value) for key, value in found.items() if value}
        changes = differences(self.truth, found, f"{self.number}-0")
        self.truth = found
        self.list.follow(changes, {}, is_listed=True)

    @staticmethod
    def follow(held, change):
        held.pop(change.key, None)
        if change.record is not None:
            held[change.key] = change.record


class Held:
    """Does as a reader of some jobs should."""

    def __init__(self, shared, wanted):
        self.shared, self.wanted = shared, wanted
        self.fits = (wanted or Filter()).fits
        self.reader = shared.open(wanted)
        self.lists()

    def lists(self):
        self.records = dict(self.reader.snapshot().records)

    def looks(self):
        try:
            changes = self.reader.changes(0)
        except Resync:
            event("overflow")
            self.lists()
            return
        assert len({change.key for change in changes}) == len(changes)
        for change in changes:
            if self.fits(change.key, change.record):
                self.records[change.key] = change.record
            else:
                self.records.pop(change.key, None)

    def comes_back(self):
        self.reader.close()
        try:
            self.reader = self.shared.open(self.wanted, self.reader.position)
            event("resumed")
        except Resync:
            event("not held any more")
            self.reader = self.shared.open(self.wanted)
            self.lists()

    def is_true(self):
        expected = {
            key: record for key, record in self.shared.truth.items() if self.fits(key, record)
        }
        assert self.records == expected


@settings(max_examples=EXAMPLES)
@given(
    st.integers(1, 8),
    st.integers(0, 20),
    st.lists(some(st.none(), filters), min_size=3, max_size=3),
    st.lists(acts, max_size=40),
)
def test_whoever_follows_holds_the_list_as_it_asked_for_it(ring, history, wanted, acts):
    shared = Shared(ring, history)
    readers = [Held(shared, one) for one in wanted]
    for act, value in acts:
        if act == "told":
            shared.tell(value)
        elif act == "listed anew":
            shared.list_anew(value)
        else:
            reader = readers[value]
            if act == "lists":
                reader.lists()
            elif act != "looks":
                reader.comes_back()
            reader.looks()
            reader.is_true()
    for reader in readers:
        reader.looks()
        reader.is_true()
        reader.looks()  # and nothing is told twice
        assert reader.reader.changes(0) == []
    assert shared.list.records == shared.truth


@settings(max_examples=EXAMPLES)
@given(filters, st.lists(one_change, max_size=30), st.integers(0, 30))
def test_a_reader_is_told_of_no_job_that_never_fitted(wanted, changes, at):
    """Nor of one that went out of the filter before it looked last."""
    shared = Shared(50, 50)
    shared.tell(changes[:at]) if changes[:at] else None
    reader = Held(shared, wanted)
    fitted = set(reader.records)
    for key, value in changes[at:]:
        shared.tell([(key, value)])
        if wanted.fits(key, shared.truth.get(key)):
            fitted.add(key)
    assert {change.key for change in reader.reader.changes(0)} <= fitted


def test_of_a_job_that_waits_for_its_reader_the_newest_is_told_though_it_fits_no_more():
    shared = Shared(8, 8)
    running = shared.open(Filter(states={"running"}))
    running.snapshot()
    for state in ("running", "failed", "queued"):
        shared.tell([(KEYS[0], (state, "n1", False))])
    [change] = running.changes(0)
    assert change.record.state == "queued"
    shared.tell([(KEYS[0], ("running", "n1", False)), (KEYS[0], ("failed", "n1", False))])
    shared.tell([(KEYS[0], None)])
    [change] = running.changes(0)
    assert change.record is None


def test_a_position_of_another_list_is_not_held():
    mine, other = Shared(8, 8), Shared(8, 8)
    for one in (mine, other):
        one.tell([(KEYS[0], ("running", "n1", False))])
    with mine.list.lock:
        position = mine.list.position
    assert len(position) <= 40
    assert set(position) <= set("0123456789abcdef.")
    mine.open(None, position)
    for wrong in (
        position.replace(".", ".9"),
        position + "0",
        position[:-1] + "-1",
        position[1:],
        "",
        ".",
        "a" * 5_000,
        position + "\n",
        position[:-1] + "\N{ARABIC-INDIC DIGIT ONE}",
    ):
        with pytest.raises(Resync):
            mine.open(None, wrong)
    with pytest.raises(Resync):
        other.open(None, position)
    assert len(mine.list.inboxes) == 1


def test_what_was_missed_beyond_a_ring_is_listed_again():
    shared = Shared(2, 100)
    reader = Held(shared, Filter(states={"running"}))
    with pytest.raises(Resync, match="more changed since"):
        back(shared, reader, [(key, ("running", "n1", False)) for key in KEYS[:3]])
    assert len(shared.list.inboxes) == 1
    # Of jobs that it did not ask for any number may have changed.
    reader.lists()
    back(shared, reader, [(key, ("failed", "n1", False)) for key in KEYS[3:]] * 5)


def back(shared, reader, changes):
    position = reader.reader.position
    shared.tell(changes)
    return shared.open(reader.wanted, position)


def test_one_that_is_shared_by_threads_is_rung_outside_of_the_lock():
    """A bell may look at once: were the lock held, it would wait for itself."""
    shared = Shared(8, 8)
    told = []
    inbox = Inbox("it", shared.list.lock, 8, None, lambda: told.append(reader.changes(0)))
    shared.list.join(inbox, None)
    reader = Reader(shared.list, inbox, "")
    reader.snapshot()
    telling = threading.Thread(
        target=shared.tell, args=([(KEYS[0], ("running", "n1", False))],), daemon=True
    )
    telling.start()
    telling.join(60)
    assert not telling.is_alive()
    assert [change.key for [change] in told] == [KEYS[0]]
