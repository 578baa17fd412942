"""Subscribing, as a program does it: every event, in order; what fails is retried, parked, and can be replayed."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time

import pytest

from broker import AsyncSubscription, Delivery, Gone, Invalid, Key
from broker.rules.event import Remove
from broker.store.parked import ask_replay, parked
from broker.subscriptions.member import Member
from broker.testing import MemoryBroker
from tests.clock import StillClock
from tests.store.readers import key, until
from tests.system.beats import Beats
from tests.system.subscriber import Ledger, desk_of, log_revs, sub, subscribed


def test_each_event_is_told_with_what_is_known_after_it(broker):
    ledger = Ledger()
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        queued = desk.report("7", "queued", seq=1)
        running = desk.report("7", "running", seq=2, node="nas")
        first, second = ledger.has(2)
        term = int(sub(broker, "g")["term"])
    assert second == Delivery(
        origin="desk",
        rev=running,
        key=Key("desk", "ollama", "", "7"),
        id="7",
        record=second.record,
        event="report",
        rule="higher_seq",
        by=second.by,
        generation=0,
        term=term,
        tries=1,
        replayed=False,
    )
    assert first.rev == queued
    assert [one.record.state for one in (first, second)] == ["queued", "running"]
    assert (second.record.node, second.record.rev) == ("nas", running)


def test_every_event_is_told_not_only_the_newest_of_a_job(broker):
    ledger = Ledger()
    desk = desk_of(broker)
    for seq in range(1, 251):
        desk.report("7", "queued", seq=seq, node=f"n{seq}")
    with broker.subscribe("g", ledger):
        ledger.has(250)
    assert [one.record.node for one in ledger.told] == [f"n{seq}" for seq in range(1, 251)]
    assert ledger.revs() == log_revs(broker)


def test_removals_are_told_exact_and_of_a_pair(broker):
    ledger = Ledger()
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        desk.report("7", created_at=1_000)
        desk.report("7", engine="lmstudio", created_at=1_000)
        desk.view.apply([Remove(key=key("7"), removed_at=2_000)])
        desk.remove_pair("7", removed_at=3_000)
        desk.remove_pair("a/b", removed_at=4_000)
        ledger.has(len(log_revs(broker)))
    gone = [(one.key, one.id, one.generation) for one in ledger.told if one.record is None]
    assert gone == [
        (key("7"), "7", 2_000),
        (key("7", engine="lmstudio"), "7", 3_000),
        (None, "a/b", 4_000),
    ]
    assert {one.rule for one in ledger.told if one.record is None} == {"removed"}


def test_what_was_refused_is_no_event(broker):
    ledger = Ledger()
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        desk.report("7", "running", seq=2)
        desk.report("7", "queued", seq=1)
        desk.report("7", "running", seq=2)
        desk.report("8")
        ledger.has(2)
    assert ledger.ids == ["7", "8"]


def test_a_group_goes_on_where_it_stood(broker):
    desk = desk_of(broker)
    before, after = Ledger(), Ledger()
    with broker.subscribe("g", before):
        desk.report_many("ab")
        before.has(2)
    desk.report_many("cd")
    with broker.subscribe("g", after):
        after.has(2)
    assert (before.ids, after.ids) == (["a", "b"], ["c", "d"])


def test_groups_are_told_all_each_for_itself(broker):
    desk = desk_of(broker)
    ledgers = [Ledger() for _ in range(3)]
    subscriptions = [broker.subscribe(f"g{at}", ledger) for at, ledger in enumerate(ledgers)]
    desk.report_many(range(50))
    for ledger, subscription in zip(ledgers, subscriptions, strict=True):
        ledger.has(50)
        subscription.close()
        assert subscription.join()
        assert ledger.revs() == log_revs(broker)


def test_several_origins_are_told_each_in_its_order(broker):
    ledger = Ledger()
    origins = [f"o{number}" for number in range(5)]
    with broker.subscribe("g", ledger) as subscription:
        for seq in (1, 2, 3):
            for origin in origins:
                desk_of(broker, origin).report_many(range(20), seq=seq, node=f"n{seq}")
        ledger.has(300)
        assert subscription.owned == origins
    for origin in origins:
        assert ledger.revs(origin) == log_revs(broker, origin)


def test_a_new_origin_is_found_within_a_second(broker):
    ledger, seconds = Ledger(), []
    desk_of(broker).report("a")
    with broker.subscribe("g", ledger):
        ledger.has(1)
        for number in range(5):
            with Beats(broker.store.client.ping) as passed:
                desk_of(broker, f"new{number}").report("b")
                ledger.has(2 + number)
            seconds.append(passed.seconds)
    assert statistics.median(seconds) < 1.0


def test_a_slow_backlog_keeps_no_origin_waiting(broker):
    def handler(delivery):
        if not ledger.told:
            desk_of(broker, "new").report("a")
        time.sleep(0.05)
        ledger(delivery)

    ledger = Ledger()
    origins = [f"o{number}" for number in range(8)]
    for origin in origins:
        desk_of(broker, origin).report_many(range(60))
    with broker.subscribe("g", handler):
        until(lambda: all(ledger.revs(origin) for origin in [*origins, "new"]))
    firsts = [[one.origin for one in ledger.told].index(origin) for origin in [*origins, "new"]]
    assert max(firsts) < 60  # each had its turn before one of them was through


def test_only_the_origins_that_are_named_are_told(broker):
    ledger = Ledger()
    with broker.subscribe("g", ledger, origins=["nas"]):
        desk_of(broker).report("a")
        desk_of(broker, "nas").report("b")
        ledger.has(1)
    assert ledger.ids == ["b"]
    assert sub(broker, "g") == {}


@pytest.mark.parametrize(
    "wrong",
    [{"name": "no spaces"}, {"origins": ["NAS"]}, {"origins": "nas"}, {"tries": 0}],
    ids=str,
)
def test_what_is_out_of_bounds_is_said_at_once(broker, wrong):
    with pytest.raises(Invalid):
        broker.subscribe(**{"name": "g", "handler": print} | wrong)


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_failed_event_is_tried_again_before_what_follows(broker):
    def handler(delivery):
        told.append((delivery.id, delivery.tries))
        if delivery.id == "b" and delivery.tries < 4:
            raise ValueError("not yet")

    told = []
    desk_of(broker).report_many("abc")
    with subscribed(broker, "g", handler):
        until(lambda: len(told) == 6)
    assert told == [("a", 1), ("b", 1), ("b", 2), ("b", 3), ("b", 4), ("c", 1)]
    assert parked(broker.store, "desk", "g") == []


def test_the_other_origins_flow_while_one_waits(broker):
    ledger = Ledger(fails=["bad"])
    desk_of(broker).report("bad")
    with subscribed(broker, "g", ledger, chance=lambda: 600):
        ledger.has(1)
        for number in range(20):
            desk_of(broker, "nas").report(number)
        until(lambda: len(ledger.revs("nas")) == 20)
        assert len(ledger.revs()) == 1  # the first retry comes in ten minutes


def test_retries_back_off(broker):
    broker.store.clock = clock = StillClock(broker.store.clock)
    ledger = Ledger(fails=["bad"])
    desk_of(broker).report("bad")
    member = Member(broker.store, broker.config, "g", ledger, chance=lambda: 0.2)
    member.step()
    for told, pause_ms in ((1, 200), (2, 400), (3, 800)):
        clock.ahead_ms += pause_ms - 1
        member.step()
        assert len(ledger.told) == told
        clock.ahead_ms += 1
        member.step()
        assert len(ledger.told) == told + 1


def test_after_so_many_tries_an_event_is_parked_and_the_rest_flows(broker):
    ledger = Ledger(fails="b")
    desk = desk_of(broker)
    desk.report_many("abc")
    with subscribed(broker, "g", ledger, tries=3):
        until(lambda: "c" in ledger.ids)
    assert ledger.ids == ["a", "b", "b", "b", "c"]
    [one] = parked(broker.store, "desk", "g")
    assert (one.rev, one.reason, one.tries) == (ledger.told[1].rev, "ValueError: not b", 3)
    assert one.entry.key("desk") == ledger.told[1].key


def test_one_that_cannot_be_read_and_one_that_always_fails_in_a_thousand(broker):
    ledger = Ledger(fails=["300"])
    desk = desk_of(broker)
    for at in range(0, 1_000, 50):
        desk.report_many(range(at, at + 50))
        if at == 600:
            foreign = broker.store.client.xadd(desk.keys.log, {"not": "ours"}).decode()
    with subscribed(broker, "g", ledger):
        ledger.reaches("999")
    once = [id for at, id in enumerate(ledger.ids) if id not in ledger.ids[:at]]
    assert once == [str(number) for number in range(1_000)]
    assert ledger.ids.count("300") == 5
    assert len(ledger.ids) == 1_004
    found = {one.rev: one.reason for one in parked(broker.store, "desk", "g")}
    assert list(found.values()) == ["ValueError: not 300", found[foreign]]
    assert "no entry of ours" in found[foreign]
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]


def test_tries_are_counted_across_restarts(broker):
    ledger = Ledger(fails="b")
    desk_of(broker).report("b")
    for turn in range(3):
        with subscribed(broker, "g", ledger, tries=3, chance=lambda: 0.999):
            ledger.has(turn + 1)
    assert [one.tries for one in ledger.told] == [1, 2, 3]
    assert [one.tries for one in parked(broker.store, "desk", "g")] == [3]


def test_parked_events_are_told_again_when_asked_for(broker):
    ledger = Ledger(fails="bd")
    desk = desk_of(broker)
    desk.report_many("abcd")
    with subscribed(broker, "g", ledger, tries=1):
        until(lambda: len(parked(broker.store, "desk", "g")) == 2)
        desk.report("e")
        until(lambda: "e" in ledger.ids)
        ledger.fails = {"d"}
        ask_replay(broker.store, "desk", "g")
        until(lambda: len(ledger.told) == 7)
        until(lambda: len(parked(broker.store, "desk", "g")) == 1)
        again = ledger.told[-2:]
        assert [(one.id, one.replayed, one.tries) for one in again] == [
            ("b", True, 2),
            ("d", True, 2),
        ]
        until(lambda: parked(broker.store, "desk", "g")[0].tries == 2)
        desk.report("f")
        until(lambda: "f" in ledger.ids)
    assert not ledger.told[-1].replayed
    assert ledger.ids.count("d") == 2  # not again, until it is asked for


def test_a_lost_log_is_told_once_and_reading_goes_on(broker):
    ledger, gone = Ledger(), []
    desk = desk_of(broker)
    desk.report_many("abc")
    with broker.subscribe("g", ledger):
        ledger.has(3)
    desk.report_many("defg")
    broker.log("desk").trim(2, 10**9)
    with broker.subscribe("g", ledger, on_gone=gone.append):
        until(lambda: "g" in ledger.ids)
        desk.report("h")
        until(lambda: "h" in ledger.ids)
    assert ledger.ids == list("abcfgh")
    assert [type(one) for one in gone] == [Gone]
    assert gone[0].origin == "desk"
    assert sub(broker, "g")["gaps"] == "1"


def test_a_loss_that_nobody_minds_is_logged(broker, caplog):
    ledger = Ledger()
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        desk.report("a")
        ledger.has(1)
    desk.report_many("bcd")
    broker.log("desk").trim(1, 10**9)
    with broker.subscribe("g", ledger):
        ledger.has(2)
    assert [record.message for record in caplog.records if "lost events" in record.message]


def test_a_loss_that_could_not_be_told_is_told_again(broker):
    ledger, told = Ledger(), []

    def on_gone(gone):
        told.append(gone)
        if len(told) < 3:
            raise OSError("not now")

    desk = desk_of(broker)
    desk.report("a")
    with broker.subscribe("g", ledger):
        ledger.has(1)
    desk.report_many("bcd")
    broker.log("desk").trim(1, 10**9)
    with subscribed(broker, "g", ledger, on_gone=on_gone):
        ledger.has(2)
    assert len(told) == 3
    assert ledger.ids == ["a", "d"]


# --- senders, asyncio, and a broker in memory --------------------------------------------------------------------


def test_sending_never_waits_for_a_reader(broker):
    ledger = Ledger(blocks=["0"])
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        desk.report("0")
        ledger.has(1)
        for number in range(1, 200):
            desk.report(number)
            broker.submit("e", {"n": number})
        assert ledger.ids == ["0"]  # all was sent while the reader had the first of it in hand
        ledger.go.set()
        ledger.has(399)


def test_a_handler_may_use_the_broker_itself(broker):
    def handler(delivery):
        told.append(delivery)
        if delivery.record and delivery.record.kind == "reported":
            broker.submit("e", {"of": delivery.id}, id=f"after-{delivery.id}")

    told = []
    with broker.subscribe("g", handler):
        desk_of(broker).report_many("ab")
        until(lambda: len(told) == 4)
    assert sorted(one.id for one in told) == ["a", "after-a", "after-b", "b"]


def test_a_coroutine_function_is_told_in_the_loop_one_after_the_other(broker):
    async def story():
        told, threads, inside, asked = [], set(), [], asyncio.Event()

        async def handler(delivery):
            inside.append(delivery)
            assert len(inside) == 1
            await asked.wait()
            await asyncio.sleep(0)
            told.append(delivery)
            threads.add(threading.get_ident())
            inside.clear()
            if delivery.id == "b" and delivery.tries == 1:
                raise ValueError("once")
            if delivery.id == "d":
                subscription.close()

        async with AsyncSubscription(broker, "g", handler) as subscription:
            await asyncio.to_thread(desk_of(broker).report_many, "abcde")
            assert not await subscription.join(0.01)
            asked.set()
            assert await subscription.join(60)
        assert subscription.ended
        assert threads == {threading.get_ident()}
        return [one.id for one in told]

    assert asyncio.run(story()) == ["a", "b", "b", "c", "d"]
    assert sub(broker, "g")["owner"] == ""


def test_a_loss_is_told_to_a_coroutine_function(broker):
    desk = desk_of(broker)
    desk.report("a")
    with broker.subscribe("g", ledger := Ledger()):
        ledger.has(1)
    desk.report_many("bcd")
    broker.log("desk").trim(1, 10**9)

    async def story():
        told = asyncio.Queue()
        async with AsyncSubscription(broker, "g", told.put, on_gone=told.put):
            return [await asyncio.wait_for(told.get(), 60) for _ in range(2)]

    gone, delivery = asyncio.run(story())
    assert (gone.origin, delivery.id) == ("desk", "d")


def run_and_only_close(story):
    """What asyncio.run does, but for the cancelling of what still runs."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(story)
    finally:
        loop.close()


@pytest.mark.parametrize("run", [asyncio.run, run_and_only_close])
def test_a_loop_that_is_closed_ends_its_subscription(broker, run):
    async def story():
        async def handler(delivery):
            begun.set()
            await asyncio.sleep(600)

        begun = asyncio.Event()
        subscription = AsyncSubscription(broker, "g", handler)
        await asyncio.wait_for(begun.wait(), 60)
        return subscription

    desk_of(broker).report("a")
    subscription = run(story())
    until(lambda: subscription.ended)
    assert sub(broker, "g")["owner"] == ""
    with broker.subscribe("g", ledger := Ledger()):
        assert ledger.has(1)[0].id == "a"


def test_a_broker_in_memory_tells_its_subscribers_the_same():
    with MemoryBroker() as memory:
        ledger = Ledger(fails="b")
        memory.engine("double", lambda ctx, n: n * 2)
        with subscribed(memory, "g", ledger, tries=2):
            job = memory.submit("double", 21)
            memory.run_jobs()
            desk_of(memory).report_many("abc")
            until(lambda: "c" in ledger.ids)
            until(lambda: len(ledger.revs("memory")) == 4)
        rules = [one.rule for one in ledger.told if one.key == job.key]
        assert rules == ["submitted", "placed", "started", "finished"]
        assert [one.id for one in ledger.told if one.origin == "desk"] == list("abbc")
        assert [one.reason for one in parked(memory.store, "desk", "g")] == ["ValueError: not b"]
        assert sub(memory, "g")["owner"] == ""
