"""One member, step by step: what it does when Redis fails in between, and when it says that it falls behind."""

from __future__ import annotations

import itertools

import pytest

from broker import Broker, settings
from broker.errors import Unavailable
from broker.rules.bounds import Bounds
from broker.store.parked import ask_replay, parked
from broker.subscriptions.leases import Held
from broker.subscriptions.member import Member
from tests.clock import StillClock
from tests.store.readers import until
from tests.system.subscriber import Ledger, broker_with, desk_of, log_revs, sub

MINUTE = 60_000


@pytest.fixture(autouse=True)
def clock(store):
    """It stands still, else a step might end early: the turn of an origin is over after 100 ms."""
    store.clock = StillClock(store.clock)
    return store.clock


def member(broker, handler, **more):
    return Member(broker.store, broker.config, "g", handler, **{"chance": lambda: 0.5} | more)


class Away:
    """Scripts of some names do not reach Redis, or their answers do not come back."""

    def __init__(self, store, monkeypatch):
        self.before, self.after = set(), set()
        run = store.scripts.run

        def failing(name, keys, args):
            if name in self.before:
                raise Unavailable(f"{name} was not sent")
            answer = run(name, keys, args)
            if name in self.after:
                raise Unavailable(f"the answer to {name} was lost")
            return answer

        monkeypatch.setattr(store.scripts, "run", failing)


@pytest.fixture
def away(broker, monkeypatch):
    return Away(broker.store, monkeypatch)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_ack_that_failed_is_given_again_without_the_handler(broker, away, when):
    desk_of(broker).report_many("ab")
    ledger = Ledger()
    one = member(broker, ledger)
    getattr(away, when).add("ack")
    with pytest.raises(Unavailable):
        one.step()
    with pytest.raises(Unavailable):
        one.step()
    getattr(away, when).clear()
    one.step()
    assert ledger.ids == ["a", "b"]
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]


def test_nor_is_it_called_again_when_its_lease_lapsed_meanwhile(broker, away, clock):
    desk_of(broker).report_many("ab")
    ledger = Ledger()
    one = member(broker, ledger)
    away.before = {"ack"}
    with pytest.raises(Unavailable):
        one.step()
    away.before = {"ack", "claim"}
    clock.ahead_ms += 10 * one.lease_ms
    with pytest.raises(Unavailable):
        one.step()
    away.before.clear()
    one.step()
    assert ledger.ids == ["a", "b"]


@pytest.mark.parametrize("fails", ["", "a"])
def test_what_is_told_again_is_told_with_all_that_followed_it(broker, clock, fails):
    """Redis lost its last second: whoever was told a, b must not be told a alone, as if that were the newest."""
    desk_of(broker).report_many("ab")
    ledger = Ledger()
    one = member(broker, ledger, tries=1)
    one.step()
    begin = dict.fromkeys(("acked", "sent"), "0-0")
    broker.store.client.hset(broker.store.keys.of("desk").sub("g"), mapping=begin)
    clock.ahead_ms += 1_000
    ledger.fails = set(fails)
    one.step()
    assert ledger.ids == ["a", "b", "a", "b"]


def test_a_lease_that_lapsed_between_two_events_stops_the_second(broker, clock, monkeypatch):
    desk_of(broker).report_many("abc")
    ledgers = Ledger(), Ledger()
    frozen, other = (member(broker, ledger) for ledger in ledgers)
    run = broker.store.scripts.run

    def then_freeze(name, keys, args):
        answer = run(name, keys, args)
        if name == "ack" and not ledgers[1].told:
            clock.ahead_ms += frozen.lease_ms
            other.step()
        return answer

    monkeypatch.setattr(broker.store.scripts, "run", then_freeze)
    frozen.step()
    frozen.step()
    assert [ledger.ids for ledger in ledgers] == [["a"], ["b", "c"]]


def test_a_log_that_was_lost_is_found_out_without_a_ring(broker, clock):
    desk = desk_of(broker)
    desk.report_many("ab")
    ledger, gone = Ledger(), []
    one = member(broker, ledger, on_gone=gone.append)
    one.step()
    broker.store.client.delete(desk.keys.log)
    desk.report("c")
    clock.ahead_ms += 1_000
    one.step()
    one.step()
    assert ledger.ids == ["a", "b", "c"]
    assert len(gone) == 1


@pytest.mark.parametrize("script", ["claim", "fetch", "park", "fail", "release"])
def test_a_lost_answer_costs_no_event_and_no_order(broker, away, clock, script):
    desk_of(broker).report_many("abc")
    ledger = Ledger(fails="b")
    one = member(broker, ledger, tries=1)
    away.after.add(script)
    for _ in range(2):
        try:
            one.step()
        except Unavailable:
            clock.ahead_ms += 1_000
    away.after.clear()
    for _ in range(5):
        one.step()
        clock.ahead_ms += 1_000
    assert list(dict.fromkeys(ledger.ids)) == ["a", "b", "c"]
    assert ledger.ids.count("a") == ledger.ids.count("c") == 1
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]


def test_a_lease_whose_taking_was_not_answered_is_used_all_the_same(broker, away):
    desk_of(broker).report("a")
    ledger = Ledger()
    one = member(broker, ledger)
    away.after.add("claim")
    with pytest.raises(Unavailable):
        one.step()
    away.after.clear()
    one.step()
    assert ledger.ids == ["a"]


def test_what_the_handler_raises_beside_exceptions_comes_out_and_counts_as_a_try(broker):
    def handler(delivery):
        raise SystemExit(3)

    desk_of(broker).report("a")
    one = member(broker, handler, tries=2)
    for tries in ("1", "2"):
        with pytest.raises(SystemExit):
            one.step()
        assert sub(broker, "g")["tries"] == tries
        one.leave()
        one = member(broker, handler, tries=2)
    one.step()  # it is parked unseen, so that whoever restarts it gets on
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]


def test_so_does_what_it_raises_when_it_is_told_a_parked_event_again(broker, clock):
    def handler(delivery):
        if delivery.replayed:
            raise SystemExit(3)
        raise ValueError("not now")

    desk_of(broker).report("a")
    one = member(broker, handler, tries=1)
    one.step()
    ask_replay(broker.store, "desk", "g")
    clock.ahead_ms += 1_000
    with pytest.raises(SystemExit):
        one.step()
    clock.ahead_ms += 1_000
    one.step()  # it is not told once more by itself
    assert [found.tries for found in parked(broker.store, "desk", "g")] == [2]


def test_a_loss_is_told_once_though_passing_over_it_failed(broker, away, clock):
    desk = desk_of(broker)
    ledger, gone = Ledger(), []
    one = member(broker, ledger, on_gone=gone.append)
    desk.report("a")
    one.step()
    broker.store.client.delete(desk.keys.log)
    desk.report("b")
    away.before.add("skip")
    for _ in range(2):
        clock.ahead_ms += 1_000
        with pytest.raises(Unavailable):
            one.step()
    away.before.clear()
    one.step()
    one.step()
    assert (len(gone), ledger.ids) == (1, ["a", "b"])


def test_a_loss_is_told_again_where_another_one_followed_before_it_was_passed_over(
    broker, away, clock
):
    desk = desk_of(broker)
    gone, others = [], []
    one = member(broker, Ledger(), on_gone=gone.append)
    other = member(broker, Ledger(), on_gone=others.append)
    desk.report("a")
    one.step()

    def lose(id):
        broker.store.client.delete(desk.keys.log)
        desk.report(id)
        clock.ahead_ms += 1_000

    lose("b")
    away.before.add("skip")
    with pytest.raises(Unavailable):
        one.step()
    away.before.clear()
    clock.ahead_ms += one.lease_ms
    other.step()
    other.step()
    assert (len(gone), len(others)) == (1, 1)
    other.leave()
    lose("c")
    one.step()
    one.step()
    assert len(gone) == 2


def test_a_flush_is_told_by_whoever_takes_over_though_it_never_owned_the_origin(broker, clock):
    desk = desk_of(broker)
    desk.report_many("ab")
    gone, ledger = [], Ledger()
    owner, other = member(broker, print), member(broker, ledger, on_gone=gone.append)
    owner.step()
    other.step()
    broker.store.client.flushall()
    desk.view._known.clear()
    desk.report("c")
    clock.ahead_ms += 1_000
    for _ in range(3):
        other.step()
    assert [one.origin for one in gone] == ["desk"]
    assert (ledger.ids, sub(broker, "g")["gaps"]) == (["c"], "1")


def test_an_owner_of_old_has_a_new_term_though_redis_forgot_its_successor(broker, clock):
    """Redis lost its last second, and what was done elsewhere under the successor's term was not undone."""
    desk_of(broker).report("a")
    name, ledgers = broker.store.keys.of("desk").sub("g"), (Ledger(), Ledger())
    first, second = (member(broker, ledger) for ledger in ledgers)
    first.step()
    before = broker.store.client.hgetall(name)
    first._leases.release_all()
    clock.ahead_ms += 500
    desk_of(broker).report("b")
    second.step()
    broker.store.client.hset(name, mapping=before)
    clock.ahead_ms += 500
    first.step()
    assert [one.ids for one in ledgers] == [["a", "b"], ["b"]]
    assert ledgers[0].told[-1].term > ledgers[1].told[-1].term


def test_parked_events_that_go_for_good_are_told(store, namespace, caplog):
    bounds = Bounds(parked_max=1)
    broker = Broker(store, settings(namespace=namespace, node="desk", bounds=bounds))
    desk_of(broker).report_many("abc")
    member(broker, Ledger(fails="abc"), tries=1).step()
    told = [one.message for one in caplog.records if "lost" in one.message]
    assert told == ["group g lost 1 parked entries of desk"] * 2
    assert sub(broker, "g")["evicted"] == "2"


# --- falling behind ---------------------------------------------------------------------------------------------------


@pytest.fixture
def warned(caplog):
    def count():
        found = [one.message for one in caplog.records if "falls behind" in one.message]
        caplog.clear()
        return found

    return count


def test_it_warns_once_a_minute_while_it_falls_behind(broker, clock, warned):
    desk_of(broker).report("a")
    one = member(broker, Ledger(fails="a"), chance=lambda: 0.999, tries=99)
    one.step()
    for second in range(181):
        one.watch_lag()
        clock.ahead_ms += 1_000
        if second == 30:
            assert warned() == []
    told = warned()
    assert len(told) == 3
    assert "group g falls behind: its next event of desk is 60 s old, 60 s more" in told[0]


def test_who_has_nothing_to_read_has_no_lag(broker, clock, warned):
    desk_of(broker).report("a")
    one = member(broker, Ledger())
    one.step()
    for _ in range(200):
        clock.ahead_ms += 1_000
        one.watch_lag()
    assert warned() == []


def test_what_is_dealt_with_while_its_age_is_read_is_not_as_old_as_the_epoch(
    broker, clock, warned, monkeypatch
):
    """The other thread may take it away between any two reads."""
    desk_of(broker).report("a")
    one = member(broker, Ledger(fails="a"), tries=99)
    one.step()
    one.watch_lag()
    clock.ahead_ms += MINUTE
    reads = itertools.chain([clock.now() - MINUTE], itertools.repeat(0))
    monkeypatch.setattr(Held, "unread_ms", property(lambda held: next(reads)))
    one.watch_lag()
    [told] = warned()
    assert "its next event of desk is 60 s old, 60 s more" in told


def test_a_subscription_says_so_while_its_handler_is_stuck(broker, clock, namespace, caplog):
    broker = broker_with(broker.store, namespace, lease_ms=300)
    desk_of(broker).report("a")
    ledger = Ledger(blocks="a")
    with broker.subscribe("g", ledger):
        ledger.has(1)

        def falls_behind():
            clock.ahead_ms += 10_000
            return "falls behind" in caplog.text

        until(falls_behind)
        ledger.go.set()
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]
