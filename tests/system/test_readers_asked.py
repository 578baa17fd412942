"""Readers that ask for some jobs, come back where they stood, and are rung; and who is told of every change."""

from __future__ import annotations

import itertools
import random
import threading
import time
from contextlib import closing

import pytest

from broker import Filter, Resync
from broker.readers.readers import Readers
from broker.rules.history import HISTORY_MAX
from broker.rules.replay import LISTED
from broker.rules.ring import SIZE
from broker.store.store import Store
from tests.store.readers import SECONDS_MAX, Desk, changes_until, key, kill, logged, report, until
from tests.store.test_watch_loss import delete, lose_all, lose_all_and_begin_anew, recreate, trim


def told(desk, readers):
    """Waits until all was told that was written."""
    until(lambda: logged(readers.records) == logged(desk.records()))


def follow(held, changes, wanted):
    for change in changes:
        held.pop(change.key, None)
        if wanted.fits(change.key, change.record):
            held[change.key] = change.record


def states(changes):
    return [(change.key.id, change.record and change.record.state) for change in changes]


class TestFilters:
    def test_the_list_and_what_follows_are_those_that_were_asked_for(self, desk, readers):
        desk.report_many("ab")
        desk.report("c", "queued")
        told(desk, readers)
        reader = readers.open(wanted=Filter(states={"running"}))
        assert set(reader.snapshot().records) == {key("a"), key("b")}
        desk.report("c")
        desk.report("a", "completed")
        desk.report("d", "queued")
        desk.remove("d")
        desk.remove("b")
        found = states(changes_until(reader, lambda told: len(told) == 3))
        assert found == [("c", "running"), ("a", "completed"), ("b", None)]
        told(desk, readers)
        assert reader.changes(0) == []

    def test_a_job_that_moves_to_another_node_leaves_the_ones_list(self, desk, readers):
        desk.report("a", node="n1", seq=1)
        told(desk, readers)
        first, second = (readers.open(wanted=Filter(node=node)) for node in ("n1", "n2"))
        assert len(first.snapshot().records) == 1
        assert second.snapshot().records == {}
        desk.report("a", node="n2", seq=2)
        for reader in (first, second):
            [change] = changes_until(reader, lambda told: told)
            assert change.record.node == "n2"
        desk.remove("a")
        assert states(changes_until(second, lambda told: told)) == [("a", None)]
        assert first.changes(0) == []

    def test_a_pair_that_is_removed_is_told_to_those_who_held_of_it(self, desk, readers):
        desk.report("7")
        told(desk, readers)
        mine = readers.open(wanted=Filter(engine="ollama"))
        other = readers.open(wanted=Filter(engine="process"))
        all_of_it = readers.open()
        for reader in (mine, other, all_of_it):
            reader.snapshot()
        desk.remove_pair("7")
        desk.remove_pair("8")  # nobody holds any of it: who asks for all is told by its bare name
        assert states(changes_until(all_of_it, lambda told: len(told) == 2)) == [
            ("7", None),
            ("8", None),
        ]
        assert states(mine.changes(0)) == [("7", None)]
        assert other.changes(0) == []

    @pytest.mark.parametrize("lose", [trim, delete, recreate, lose_all, lose_all_and_begin_anew])
    def test_under_any_loss_each_ends_with_the_list_as_it_asked_for_it(self, desk, readers, lose):
        """The relist tells what differs as changes; a filter must know of those that it lost by them."""
        for number in range(20):
            desk.report(number, ("running", "queued")[number % 2], node=f"n{number % 3}")
        told(desk, readers)
        questions = [Filter(states={"running"}), Filter(node="n1"), Filter(engine="none"), Filter()]
        asked = [(wanted, readers.open(wanted=wanted)) for wanted in questions]
        held = [dict(reader.snapshot().records) for _, reader in asked]
        desk.remove(3)
        desk.report(4, "completed")
        desk.report(5, "running", node="n1")
        lose(desk)
        desk.report("after", node="n1")
        truth = until(lambda: logged(readers.records) == logged(desk.records()) and desk.records())
        for (wanted, reader), mine in zip(asked, held, strict=True):
            follow(mine, reader.changes(0), wanted)
            expected = {one: record for one, record in truth.items() if wanted.fits(one, record)}
            assert logged(mine) == logged(expected)
        assert readers.drift == 0

    def test_what_it_did_not_ask_for_does_not_fill_its_ring(self, desk, readers):
        reader = readers.open(wanted=Filter(node="n1"))
        reader.snapshot()
        for at in range(0, SIZE + 200, 100):
            desk.report_many(range(at, at + 100), node="n2")
        desk.report("mine", node="n1")
        assert states(changes_until(reader, lambda told: told)) == [("mine", "running")]

    def test_random_readers_amid_random_writers_hold_what_they_asked_for(
        self, desk, redis_url, namespace, readers
    ):
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        done = threading.Event()

        def write(number, chance):
            with closing(Store.from_url(redis_url, namespace)) as store:
                mine = Desk(store, f"o{number}")
                for turn in itertools.count(1):
                    if done.is_set():
                        return
                    id = chance.randrange(30)
                    if chance.random() < 0.2:
                        mine.remove(id)
                    else:
                        state = chance.choice(["queued", "running", "completed"])
                        node = chance.choice(["n1", "n2"])
                        made = 1_000 + turn if chance.random() < 0.3 else 1_000
                        mine.report(id, state, node=node, seq=turn, created_at=made)

        writers = [
            threading.Thread(target=write, args=(number, random.Random(seed + number)))
            for number in (1, 2)
        ]
        for writer in writers:
            writer.start()
        options = {
            "states": [None, {"running"}, {"queued", "completed"}],
            "node": [None, "n1"],
            "origin": [None, "o1"],
        }
        asked = [
            Filter(**{name: chance.choice(values) for name, values in options.items()})
            for _ in range(8)
        ]
        opened = [readers.open(wanted=wanted) for wanted in asked]
        held = [dict(reader.snapshot().records) for reader in opened]
        resumed = lost = 0
        until_then = time.monotonic() + 3
        while time.monotonic() < until_then or resumed <= 20:
            at = chance.randrange(8)
            if chance.random() < 0.2:
                position = opened[at].position
                opened[at].close()
                done.wait(chance.choice([0, 0.01, 0.1]))
                try:
                    opened[at] = readers.open(wanted=asked[at], after=position)
                    resumed += 1
                except Resync:
                    opened[at] = readers.open(wanted=asked[at])
                    held[at] = dict(opened[at].snapshot().records)
                    lost += 1
            follow(held[at], opened[at].changes(chance.choice([0, 2])), asked[at])
        done.set()
        for writer in writers:
            writer.join()
        truth = {}
        for number in (1, 2):
            truth |= Desk(desk.store, f"o{number}").records()
        until(lambda: logged(readers.records) == logged(truth))
        for wanted, reader, mine in zip(asked, opened, held, strict=True):
            follow(mine, reader.changes(0), wanted)
            expected = {one: record for one, record in truth.items() if wanted.fits(one, record)}
            assert logged(mine) == logged(expected)
        print(f"{readers.position} changes, {resumed} came back, {lost} had to list")


class TestComingBack:
    def test_what_was_missed_comes_first_and_then_what_follows(self, desk, readers):
        reader = readers.open()
        held = dict(reader.snapshot().records)
        position = reader.position
        reader.close()
        desk.report_many("abc")
        desk.remove("b")
        told(desk, readers)
        again = readers.open(after=position)
        assert again.position == position
        follow(held, again.changes(0), Filter())
        assert logged(held) == logged(desk.records())
        assert again.position == readers.position
        assert again.cursor
        desk.report("d")
        assert states(changes_until(again, lambda told: told)) == [("d", "running")]

    def test_who_missed_nothing_is_told_nothing(self, desk, readers):
        desk.report("a")
        told(desk, readers)
        assert readers.open(after=readers.position).changes(0) == []

    def test_one_from_before_the_history_must_list(self, desk, reading):
        with Readers(reading, history_size=10) as readers:
            desk.report("a")
            told(desk, readers)
            position = readers.position
            for number in range(10):
                desk.report(number)
            told(desk, readers)
            assert len(readers.open(after=position).changes(0)) == 10
            desk.report("one more")
            told(desk, readers)
            with pytest.raises(Resync, match="not any more"):
                readers.open(after=position)
            assert len(readers._list.inboxes) == 1

    def test_one_of_another_process_must_list(self, desk, reading, redis_url, namespace):
        """Also where both stand at the same number."""
        with (
            Readers(reading) as first,
            closing(Store.from_url(redis_url, namespace)) as other,
            Readers(other) as second,
        ):
            desk.report("a")
            for readers in (first, second):
                told(desk, readers)
            assert first.position.split(".")[1] == second.position.split(".")[1]
            with pytest.raises(Resync):
                second.open(after=first.position)

    def test_a_position_from_before_the_first_list_brings_all_of_it(self, server):
        url = f"redis://127.0.0.1:{server.port}"
        with closing(Store.from_url(url)) as store:
            Desk(store).report_many("ab")
        kill(server)
        with Readers(Store.from_url(url)) as readers:
            position = readers.position
            assert not readers.is_listed
            server.start()
            until(lambda: readers.is_listed)
            assert len(readers.open(after=position).changes(0)) == 2


class TestTheBell:
    def test_it_rings_once_until_the_reader_looks(self, desk, readers):
        rung, other = [], readers.open()
        other.snapshot()  # the first list, which would ring as well
        reader = readers.open(bell=lambda: rung.append(time.monotonic()))
        reader.snapshot()
        for number in range(20):
            desk.report(number)
            changes_until(other, lambda told: told)
        assert len(rung) == 1
        assert len(reader.changes(0)) == 20
        desk.report("more")
        until(lambda: len(rung) == 2)
        reader.close()
        assert len(rung) == 3
        reader.close()
        readers.close()
        assert len(rung) == 3

    def test_it_rings_for_what_was_missed_for_the_overflow_and_for_the_end(self, desk, reading):
        with Readers(reading, ring_size=4) as readers:
            rung = threading.Event()
            first = readers.open()
            first.snapshot()
            desk.report("a")
            told(desk, readers)
            reader = readers.open(after=first.position, bell=rung.set)
            assert rung.is_set()
            reader.changes(0)
            rung.clear()
            desk.report_many(range(5))
            assert rung.wait(SECONDS_MAX)
            told(desk, readers)
            with pytest.raises(Resync):
                reader.changes(0)
            reader.snapshot()
            rung.clear()
            readers.close()
            assert rung.is_set()
            rung.clear()
            readers.open(bell=rung.set)
            assert rung.is_set()

    def test_it_does_not_ring_for_what_was_not_asked_for(self, desk, readers):
        rung = threading.Event()
        readers.open().snapshot()  # the first list, which would ring as well
        reader = readers.open(wanted=Filter(node="n1"), bell=rung.set)
        reader.snapshot()
        desk.report("a", node="n2")
        told(desk, readers)
        assert not rung.is_set()

    def test_one_that_fails_harms_nobody_and_is_told_of_once(self, desk, readers, caplog):
        def fail():
            raise RuntimeError("out of order")

        reader, other = readers.open("broken", bell=fail), readers.open()
        reader.snapshot()
        other.snapshot()
        for number in range(3):
            desk.report(number)
            changes_until(other, lambda told: told)
            assert states(reader.changes(0)) == [(str(number), "running")]
        reader.close()
        [warning] = [entry.getMessage() for entry in caplog.records]
        assert warning == "the bell of broken failed: RuntimeError('out of order')"


class TestBeingTold:
    def test_of_every_change_with_the_record_before_it(self, desk, reading):
        heard = []
        desk.report("a", "queued")
        with Readers(reading, told=lambda *what: heard.append(what)) as readers:
            until(lambda: readers.is_listed)
            desk.report("a")
            desk.remove("a")
            until(lambda: len(heard) == 3)
        steps = [
            (change.event, before and before.state, change.record and change.record.state)
            for change, before in heard
        ]
        assert steps == [
            (LISTED, None, "queued"),
            ("report", "queued", "running"),
            ("remove", "running", None),
        ]

    def test_what_it_raises_harms_no_reader_and_is_told_of_once(self, desk, reading, caplog):
        def fail(change, before):
            raise KeyError(change.key.id)

        with Readers(reading, told=fail) as readers:
            reader = readers.open()
            reader.snapshot()
            for number in range(3):
                desk.report(number)
                changes_until(reader, lambda told: told)
        warnings = [entry.getMessage() for entry in caplog.records]
        assert len(warnings) == 1
        assert "who was told of" in warnings[0]
        assert "KeyError" in warnings[0]

    def test_the_client_passes_it_on(self, broker):
        heard = threading.Event()
        with broker.readers(told=lambda *_: heard.set()):
            broker.submit("echo")
            assert heard.wait(SECONDS_MAX)


class TestHowItStands:
    def test_is_said(self, desk, server):
        url = f"redis://127.0.0.1:{server.port}"
        with closing(Store.from_url(url)) as store, Readers(Store.from_url(url)) as readers:
            until(lambda: readers.is_listed and not readers.is_behind)
            assert readers.trouble is None
            until(lambda: readers.age_seconds < 5)
            kill(server)
            until(lambda: readers.trouble)
            age = readers.age_seconds
            until(lambda: readers.age_seconds > age + 0.2)
            server.start()
            Desk(store).report("a")
            until(lambda: readers.trouble is None and readers.records)
            until(lambda: readers.age_seconds < 5)
            assert not readers.closed
        assert readers.closed

    def test_the_history_is_bounded(self, desk, readers):
        """In turns of one job, so that nothing else grows."""
        readers.open().snapshot()
        for turn in range(0, HISTORY_MAX + 300, 100):
            desk.view.apply(
                [report("a", seq=turn + number, node=str(number)) for number in range(1, 101)]
            )
        told(desk, readers)
        assert len(readers._list._history) == HISTORY_MAX
