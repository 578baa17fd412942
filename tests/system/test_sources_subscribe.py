"""What the source documents say of a receiver that may miss nothing: marked after it was handled, in order, alone.

The same cases as in test_sources_order.py and test_sources_watch.py, asked of subscriptions. What becomes of one that
is killed before, during and after its ack: tests/store/test_group_killed.py. Not here, for there is nothing to ask: a
subscriber's filter of states (W7), for it gets every event.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
import redis

from broker.errors import Invalid, Unavailable
from broker.rules.replay import rev_order
from broker.store.groups import Groups
from broker.store.parked import parked
from broker.store.store import Store
from broker.subscriptions.member import Member
from tests.clock import StillClock
from tests.store.readers import ORIGIN, changes_until, until
from tests.system.sources import Moments, frame, removal, trim

GROUP = "sink"


class Sink:
    """A handler that keeps what it is given, and fails where it is told to."""

    def __init__(self):
        self.told = []
        self.fails = Counter()  # id -> how often yet

    def __call__(self, delivery):
        self.told.append(delivery)
        if self.fails[delivery.id]:
            self.fails[delivery.id] -= 1
            raise OSError("the other side is away")

    @property
    def ids(self):
        return [one.id for one in self.told]

    @property
    def revs(self):
        return [one.rev for one in self.told]


@pytest.fixture
def sink():
    return Sink()


@pytest.fixture
def member(broker):
    """Makes members that step when they are told to, and do not wait before a retry."""
    made = []

    def make(handler, name=GROUP, **more):
        made.append(Member(broker.store, broker.config, name, handler, chance=lambda: 0.0, **more))
        return made[-1]

    yield make
    for one in made:
        one.leave()


def read_on(member, enough):
    def found():
        if not member.step():
            member.wait(50)
        return enough()

    until(found)


def say(broker, ids, state="running", seq=1, **info):
    told = broker.report_many(frame(state, "a", seq, id=str(id), **info) for id in ids)
    return [outcome.rev for outcome in told]


def test_49_an_event_counts_as_handled_only_after_its_handler_succeeded(broker, member, sink):
    say(broker, "789")
    sink.fails["8"] = 2
    one = member(sink)
    read_on(one, lambda: len(sink.told) >= 5)
    assert sink.ids == ["7", "8", "8", "8", "9"]
    assert [delivery.tries for delivery in sink.told] == [1, 1, 2, 3, 1]
    one.leave()
    again = Sink()
    say(broker, ["10"])
    read_on(member(again), lambda: again.told)
    assert again.ids == ["10"]


def test_49_one_that_failed_is_handed_over_again_by_whoever_takes_over(broker, member, sink):
    say(broker, "789")
    broker.store.clock = StillClock(broker.store.clock)  # else the one step might end early

    def fail_on_8(delivery):
        sink(delivery)
        if delivery.id == "8":
            first.close()
            raise OSError("the other side is away")

    first = member(fail_on_8)
    first.step()
    first.leave()
    again = Sink()
    read_on(member(again), lambda: len(again.told) >= 2)
    assert (sink.ids, again.ids) == (["7", "8"], ["8", "9"])


def test_49_a_call_to_redis_that_fails_at_any_moment_loses_and_repeats_nothing(
    broker, redis_url, namespace, monkeypatch
):
    revs = say(broker, range(5))

    def fail():
        raise redis.ConnectionError("cut off")

    with closing(Store.from_url(redis_url, namespace)) as store:
        store.clock = StillClock(store.clock)  # else a step might end early, and make fewer calls
        moments = Moments(store, monkeypatch)
        for name in ("first", "second"):  # the first one loads the scripts
            calls = moments.count(Member(store, broker.config, name, Sink()).step)
        assert calls > 8
        for number in range(calls):
            sink = Sink()
            one = Member(store, broker.config, f"{GROUP}-{number}", sink)
            moments.before(number, fail)
            with pytest.raises(Unavailable):
                one.step()
            read_on(one, lambda sink=sink: len(sink.told) >= 5)
            assert one.step() == 0
            assert sink.revs == revs


def test_50_of_members_of_one_name_exactly_one_handles_an_event_though_handlers_fail(broker):
    say(broker, ["before"])
    handled, lock = [], threading.Lock()

    def handle(delivery):
        if delivery.tries == 1 and delivery.id == "10":
            raise OSError("not now")
        with lock:
            handled.append(delivery.rev)

    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(broker.subscribe(GROUP, handle))
        revs = say(broker, range(25))
        until(lambda: len(handled) >= 26)
    assert handled[1:] == revs


def test_55_each_subscriber_gets_what_sixteen_threads_send_in_the_order_of_the_log(broker):
    say(broker, ["before"])
    sinks = [Sink() for _ in range(2)]

    def send(thread):
        for number in range(25):
            broker.report(frame("running", str(number), number + 1, id=str(thread)))

    with ExitStack() as stack:
        for number, one in enumerate(sinks):
            stack.enter_context(broker.subscribe(f"{GROUP}-{number}", one))
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(send, range(16)))
        for one in sinks:
            until(lambda one=one: len(one.told) >= 401)
    log = [entry.rev for entry in broker.log(ORIGIN).entries()]
    assert [one.revs for one in sinks] == [log, log]


def test_56_a_removal_that_comes_while_an_update_is_handled_is_told_after_it(broker, member):
    heard = []

    def handle(delivery):
        if not heard:
            broker.report(removal())
            broker.report(frame("completed", "a", 2))  # late: refused, and told to nobody
        heard.append((delivery.event, delivery.record and delivery.record.state))

    broker.report(frame("running", "a", 1))
    read_on(member(handle), lambda: len(heard) >= 2)
    assert heard == [("report", "running"), ("remove", None)]


def test_48_who_comes_late_is_told_also_what_ended_and_what_was_removed(broker, member, sink):
    say(broker, ["ended"], "completed")
    say(broker, ["removed"])
    broker.report(removal("removed"))
    read_on(member(sink), lambda: len(sink.told) >= 3)
    assert [(one.id, one.event) for one in sink.told] == [
        ("ended", "report"), ("removed", "report"), ("removed", "remove")
    ]  # fmt: skip


def test_W1_ten_subscribers_see_a_before_b_in_each_pair(broker):
    say(broker, ["before"])
    sinks = [Sink() for _ in range(10)]
    with ExitStack() as stack:
        for number, one in enumerate(sinks):
            stack.enter_context(broker.subscribe(f"{GROUP}-{number}", one))
        for id in range(50):
            say(broker, [id])
            say(broker, [id], "completed", 2)
        for one in sinks:
            until(lambda one=one: len(one.told) >= 101)
    expected = [(str(id), state) for id in range(50) for state in ("running", "completed")]
    for one in sinks:
        assert [(told.id, told.record.state) for told in one.told[1:]] == expected


@pytest.mark.parametrize("is_cut", [False, True], ids=["kept", "cut"])
def test_W2_a_subscriber_that_slept_gets_all_or_is_told_once_that_it_does_not(
    broker, member, sink, is_cut
):
    gone = []
    say(broker, ["before"])
    one = member(sink, on_gone=gone.append)
    read_on(one, lambda: sink.told)
    revs = say(broker, range(500))
    if is_cut:
        trim(broker.store, 100)
    kept = revs[-100:] if is_cut else revs
    read_on(one, lambda: len(sink.told) > len(kept))
    assert sink.revs[1:] == kept
    assert [loss.origin for loss in gone] == [ORIGIN] * is_cut
    [seen] = Groups(broker.store).seen(broker.store.clock.now())
    assert seen.gaps == is_cut


def test_W3_a_wedged_subscriber_holds_up_neither_sender_nor_others_and_then_gets_all(broker):
    say(broker, ["before"])
    wedged, freed, late, free = threading.Event(), threading.Event(), Sink(), Sink()

    def wedge(delivery):
        wedged.set()
        freed.wait(600)
        late(delivery)

    with (
        broker.subscribe("wedged", wedge),
        broker.subscribe("free", free),
        broker.watch() as watcher,
    ):
        assert wedged.wait(60)
        watcher.snapshot()
        revs = say(broker, range(500))
        until(lambda: len(free.told) >= 501)
        changes = changes_until(watcher, lambda told: len(told) >= 500)
        assert late.told == []
        freed.set()
        until(lambda: len(late.told) >= 501)
    assert free.revs[1:] == late.revs[1:] == [change.rev for change in changes] == revs


def test_W4_a_subscriber_closed_during_a_burst_ends_once_and_its_successor_goes_on_there(broker):
    say(broker, ["before"])
    done = threading.Event()

    def burst():
        number = 0
        while not done.is_set():
            say(broker, range(number, number + 10))
            number += 10

    first, second = Sink(), Sink()
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(burst)
        subscription = broker.subscribe(GROUP, first)
        until(lambda: len(first.told) > 20)
        subscription.close()
        closed_at = len(first.told)
        subscription.close()
        assert subscription.join(60)
        ended_at = len(first.told)
        assert ended_at <= closed_at + 1  # the one in hand
        done.set()
        sending.result()
    revs = [entry.rev for entry in broker.log(ORIGIN).entries()]
    with broker.subscribe(GROUP, second):
        until(lambda: len(first.told) + len(second.told) >= len(revs))
    assert len(first.told) == ended_at
    assert first.revs + second.revs == revs
    assert all(one.key and one.record for one in first.told + second.told)


def test_W6_readers_of_one_name_share_it_and_of_two_names_each_get_all(broker):
    for origin in ("desk", "nas"):
        broker.report(frame("running", "a", 1, originatedFrom=origin))
    shared, alone = Sink(), Sink()
    with (
        broker.subscribe("shared", shared),
        broker.subscribe("shared", shared),
        broker.subscribe("alone", alone),
    ):
        until(lambda: len(shared.told) >= 2 and len(alone.told) >= 2)
    assert sorted(shared.revs, key=rev_order) == sorted(alone.revs, key=rev_order)
    assert len(shared.told) == 2


def test_W6_who_subscribes_before_anything_is_there_gets_all_that_comes(broker, sink):
    with broker.subscribe(GROUP, sink):
        revs = say(broker, range(3))
        until(lambda: len(sink.told) >= 3)
    assert sink.revs == revs


@pytest.mark.parametrize("wrong", [{"name": "No Group"}, {"origins": ["No Origin"]}, {"tries": 0}])
def test_W7_what_cannot_be_is_refused(broker, sink, wrong):
    with pytest.raises(Invalid):
        broker.subscribe(**({"name": GROUP, "handler": sink} | wrong))


def test_W7_a_subscriber_of_one_origin_gets_its_removals_and_nothing_of_others(
    broker, member, sink
):
    for origin in ("desk", "nas"):
        broker.report(frame("running", "a", 1, originatedFrom=origin))
        broker.report(removal(originatedFrom=origin))
    one = member(sink, origins=["nas"])
    read_on(one, lambda: len(sink.told) >= 2)
    assert one.step() == 0
    assert [(told.origin, told.event) for told in sink.told] == [
        ("nas", "report"),
        ("nas", "remove"),
    ]


def test_W8_who_waits_at_a_quiet_origin_is_not_told_of_a_loss_that_is_none(broker, member, sink):
    gone = []
    for origin in ("desk", "quiet"):
        broker.report(frame("running", "a", 1, id="x", originatedFrom=origin))
    one = member(sink, on_gone=gone.append)
    read_on(one, lambda: len(sink.told) >= 2)
    for number in range(3):
        say(broker, range(number * 100, number * 100 + 100))
        read_on(one, lambda seen=2 + 100 * (number + 1): len(sink.told) >= seen)
        trim(broker.store, 0)
        trim(broker.store, 0, "quiet")
    broker.report(frame("completed", "a", 2, id="x", originatedFrom="quiet"))
    read_on(one, lambda: len(sink.told) >= 303)
    assert (sink.told[-1].origin, sink.told[-1].record.state, gone) == ("quiet", "completed", [])


def test_S11_one_event_that_cannot_be_read_and_one_that_cannot_be_handled_stop_no_other(
    broker, member, sink
):
    say(broker, "1")
    broker.store.client.xadd(broker.store.keys.of(ORIGIN).log, {"event": "report", "job": "none"})
    say(broker, "234")
    broker.report(removal("4"))  # told of a job that is gone by then
    sink.fails["3"] = 99
    read_on(member(sink, tries=3), lambda: sink.told and sink.told[-1].event == "remove")
    assert sink.ids == ["1", "2", "3", "3", "3", "4", "4"]
    kept = parked(broker.store, ORIGIN, GROUP)
    assert [(one.entry and one.entry.key(ORIGIN).id, one.tries) for one in kept] == [(None, 0), ("3", 3)]  # fmt: skip
    assert "the other side is away" in kept[1].reason


@pytest.mark.parametrize("how", ["below the floor", "deleted", "another epoch"])
def test_R1_R3_a_place_that_no_longer_fits_is_told_once_and_what_is_left_is_read(
    broker, member, sink, how
):
    gone = []
    say(broker, ["before"])
    one = member(sink, on_gone=gone.append)
    read_on(one, lambda: sink.told)
    left = say(broker, range(10))[-3:]
    if how == "below the floor":
        trim(broker.store, 3)
    else:
        broker.store.client.delete(broker.store.keys.of(ORIGIN).log)
        left = say(broker, ["after"]) if how == "another epoch" else []
    read_on(one, lambda: gone and len(sink.told) > len(left))
    if how == "deleted":
        left = say(broker, ["after"])
        read_on(one, lambda: len(sink.told) > 1)
    assert sink.revs[1:] == left
    assert len(gone) == 1


def test_R2_a_place_at_the_last_entry_that_was_cut_misses_nothing(broker, member, sink):
    gone = []
    revs = say(broker, range(5))
    one = member(sink, on_gone=gone.append)
    read_on(one, lambda: len(sink.told) >= 5)
    trim(broker.store, 0)
    revs += say(broker, ["after"])
    read_on(one, lambda: len(sink.told) >= 6)
    assert (sink.revs, gone) == (revs, [])


@pytest.mark.parametrize("how", ["trimmed", "deleted"])
def test_R4_R5_entries_that_go_while_they_are_pending_leave_nothing_pending(
    broker, member, sink, how
):
    gone = []
    log = broker.store.keys.of(ORIGIN).log
    revs = say(broker, range(6))

    def handle(delivery):
        if not sink.told:  # all six are pending now
            assert broker.store.client.xpending(log, GROUP)["pending"] == 6
            if how == "trimmed":
                trim(broker.store, 2)
            else:
                broker.store.client.xdel(log, *revs[1:4])
        sink(delivery)

    one = member(handle, on_gone=gone.append)
    read_on(one, lambda: sink.revs[-1:] == revs[-1:])
    one.leave()
    again = Sink()
    say(broker, ["after"])
    two = member(again, on_gone=gone.append)
    read_on(two, lambda: again.ids[-1:] == ["after"])
    assert broker.store.client.xpending(log, GROUP)["pending"] == 0
    assert again.ids == ["after"]
    assert sink.revs == sorted(set(sink.revs), key=rev_order)


def test_R6_a_lag_that_nobody_knows_is_unknown_and_not_none(broker, command, member, sink):
    say(broker, range(10))
    one = member(sink)
    read_on(one, lambda: len(sink.told) >= 10)
    more = say(broker, range(10, 20))
    broker.store.client.xdel(broker.store.keys.of(ORIGIN).log, more[5])
    [raw] = broker.store.client.xinfo_groups(broker.store.keys.of(ORIGIN).log)
    assert raw["lag"] is None
    [line] = command.ok("groups", "-o", "json").json
    assert line["lag_entries"] is None
    assert line["lag_ms"] is not None
    assert "?" in command.ok("groups").out


def test_R7_after_a_trim_past_what_was_unread_our_lag_ends_at_none(broker, member, sink):
    say(broker, ["before"])
    one = member(sink)
    read_on(one, lambda: sink.told)
    say(broker, range(20))
    trim(broker.store, 5)
    read_on(one, lambda: len(sink.told) >= 6)
    [seen] = Groups(broker.store).seen(broker.store.clock.now())
    assert (seen.lag.entries, seen.lag.ms, seen.lag.pending) == (0, 0, 0)
