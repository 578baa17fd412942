"""What a running subscription makes of a Redis that is flushed, killed, full, or holds what it should not."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from broker.errors import Unavailable
from broker.store.parked import parked
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.subscriptions.member import Member
from broker.subscriptions.subscription import REST_SECONDS, _Trouble
from tests.ports import free_port
from tests.store.readers import until
from tests.system.subscriber import Ledger, broker_with, desk_of, log_revs, sub, subscribed


@pytest.fixture
def server(tmp_path):
    """A server of its own, that loses nothing when it is killed, on a port that stays the same."""
    options = {"appendfsync": "always"}
    with PrivateRedis(tmp_path / "redis", port=free_port(), options=options) as made:
        yield made


@pytest.fixture
def own_broker(server):
    store = Store.from_url(f"redis://127.0.0.1:{server.port}")
    with broker_with(store, "broker", lease_ms=5_000) as made:
        yield made


def kill(server):
    os.kill(server.pid, signal.SIGKILL)
    server.stop()


def errors(store):
    """How many commands failed so far, lost groups included."""
    found = store.client.info("errorstats")
    return sum(one["count"] for one in found.values())


def test_a_group_that_was_destroyed_is_made_again_where_it_stood(broker):
    ledger = Ledger()
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        desk.report_many("ab")
        ledger.has(2)
        for id in "cde":
            broker.store.client.xgroup_destroy(desk.keys.log, "g")
            desk.report(id)
            until(lambda id=id: id in ledger.ids)
        assert broker.store.client.xinfo_groups(desk.keys.log)[0]["name"] == b"g"
    assert ledger.ids == list("abcde")


def test_a_flush_is_told_and_repaired_without_spinning(own_broker, caplog):
    ledger, gone = Ledger(), []
    desk = desk_of(own_broker)
    client = own_broker.store.client
    with own_broker.subscribe("g", ledger, on_gone=gone.append):
        for id in "abc":
            desk.report(id)
        ledger.has(3)
        client.flushall()
        client.config_resetstat()
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 1.5)
        failed = errors(own_broker.store)
        calls = sum(one["calls"] for one in client.info("commandstats").values())
        seconds = time.monotonic() - begun
        assert failed < 20 * seconds
        assert calls < 300 * seconds
        desk.view._known.clear()
        desk.report("d")
        until(lambda: "d" in ledger.ids)
        desk.report("e")
        until(lambda: "e" in ledger.ids)
    assert ledger.ids == list("abcde")
    assert [one.origin for one in gone] == ["desk"]
    assert ledger.told[-1].term > ledger.told[0].term


def test_a_log_that_was_deleted_is_told(broker):
    ledger, gone = Ledger(), []
    desk = desk_of(broker)
    with broker.subscribe("g", ledger, on_gone=gone.append):
        desk.report_many("ab")
        ledger.has(2)
        broker.store.client.delete(desk.keys.log)
        desk.report("c")
        until(lambda: "c" in ledger.ids)
    assert ledger.ids == ["a", "b", "c"]
    assert len(gone) == 1


def test_a_group_removed_under_its_member_goes_on_where_it_stood(broker):
    ledger = Ledger()
    desk = desk_of(broker)
    with broker.subscribe("g", ledger):
        desk.report_many("ab")
        ledger.has(2)
        broker.store.client.delete(desk.keys.sub("g"))
        broker.store.client.xgroup_destroy(desk.keys.log, "g")
        desk.report("c")
        until(lambda: "c" in ledger.ids)
    assert ledger.ids == ["a", "b", "c"]


def test_a_group_removed_under_who_owned_its_origin_before_the_log_began_goes_on_where_it_stood(
    store, namespace
):
    """The lease is renewed long after: what stands in the log is known since it was fetched."""
    ledger, gone, broker = Ledger(), [], broker_with(store, namespace, 600_000)
    desk = desk_of(broker)
    with broker.subscribe("g", ledger, origins=["desk"], on_gone=gone.append) as subscription:
        until(lambda: subscription.owned == ["desk"])
        desk.report_many("ab")
        ledger.has(2)
        broker.store.client.delete(desk.keys.sub("g"))
        desk.report("c")
        until(lambda: "c" in ledger.ids)
    assert ledger.ids == ["a", "b", "c"]
    assert gone == []


def test_redis_killed_and_restarted_costs_no_event_and_no_order(server, own_broker, caplog):
    ledger = Ledger()
    desk = desk_of(own_broker)
    with own_broker.subscribe("g", ledger) as subscription:
        for turn in range(3):
            for number in range(10):
                desk.report(f"{turn}-{number}")
            ledger.has(10 * turn + 5)
            kill(server)
            server.start()
        desk.report("last")
        until(lambda: ledger.ids[-1] == "last")
        assert not subscription.ended
    assert ledger.revs() == log_revs(
        own_broker
    )  # nothing twice either: an ack that failed is given again
    told = [one.message for one in caplog.records]
    assert len([line for line in told if "trying on" in line]) <= 3  # once an outage


def test_who_handled_what_a_power_cut_took_is_told_once(server, own_broker):
    """Log and subscription fall back together: nothing is missing, but something was told that is no longer so."""
    ledger, gone = Ledger(), []
    desk = desk_of(own_broker)
    [file] = (server.data_dir / "appendonlydir").glob("*.incr.aof")
    with own_broker.subscribe("g", ledger, on_gone=gone.append):
        desk.report_many("ab")
        ledger.has(2)
        until(lambda: sub(own_broker, "g")["acked"] == ledger.told[-1].rev)
        kept = file.stat().st_size
        desk.report("c")
        ledger.has(3)
        until(lambda: sub(own_broker, "g")["acked"] == ledger.told[-1].rev)
        kill(server)
        os.truncate(file, kept)
        server.start()
        until(lambda: gone)
        desk.report("d")
        until(lambda: "d" in ledger.ids)
        until(lambda: sub(own_broker, "g")["acked"] == ledger.told[-1].rev)
    assert ledger.ids == list("abcd")
    assert [one.why for one in gone] == ["rolled back, after it was handled"]
    [seen] = own_broker.groups()
    assert seen.gaps == 1


def test_who_follows_an_owner_tells_what_a_power_cut_took_from_the_group(server):
    """The owner does not live to tell it. Who stood by looks at Redis before it takes over, and sees what is left."""
    told, gone = [], []
    [file] = (server.data_dir / "appendonlydir").glob("*.incr.aof")
    store = Store.from_url(f"redis://127.0.0.1:{server.port}")
    with broker_with(store, "broker", lease_ms=500) as broker:
        owner = Member(store, broker.config, "g", told.append)
        standby = Member(store, broker.config, "g", told.append, on_gone=gone.append)
        desk = desk_of(broker)
        desk.report_many("ab")
        until(lambda: owner.step() >= 0 and len(told) == 2)
        kept = file.stat().st_size
        desk.report("c")
        until(lambda: owner.step() >= 0 and len(told) == 3)
        until(lambda: sub(broker, "g")["acked"] == told[-1].rev)
        standby._leases.look()
        kill(server)
        os.truncate(file, kept)
        server.start()
        until(lambda: steps(standby) and gone)
        desk.report("d")
        until(lambda: steps(standby) and told[-1].id == "d")
    assert [one.id for one in told] == list("abcd")
    assert [one.why for one in gone] == ["rolled back, after it was handled"]


def steps(member):
    """One step, also where Redis is not there yet."""
    with suppress(Unavailable):
        member.step()
    return True


def test_an_outage_is_told_once_and_closing_in_it_ends_it(server, own_broker, caplog):
    ledger = Ledger()
    with own_broker.subscribe("g", ledger) as subscription:
        desk_of(own_broker).report("a")
        ledger.has(1)
        kill(server)
        until(lambda: "trying on" in caplog.text)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 1)
        subscription.close()
        assert subscription.join(60)
    assert len([one for one in caplog.records if "trying on" in one.message]) == 1
    assert "left to lapse" in caplog.text


def test_what_both_threads_meet_at_once_is_told_once(monkeypatch):
    def fail():
        both.wait(60)
        raise Unavailable("not now")

    def tell(*words, **more):
        told.append(words)
        time.sleep(0.1)  # as long as the other one needs to come here, too

    both, told, trouble, closed = threading.Barrier(2), [], _Trouble("g"), threading.Event()
    closed.set()
    monkeypatch.setattr("broker.subscriptions.subscription._log.warning", tell)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(trouble.meets, [fail, fail], [closed, closed]))
    assert len(told) == 1


@pytest.mark.parametrize("error", [Unavailable("not now"), ValueError("our own mistake")])
def test_what_fails_at_once_is_neither_the_end_nor_tried_without_one(broker, monkeypatch, error):
    def failing(member):
        steps.append(member)
        raise error

    steps = []
    monkeypatch.setattr("broker.subscriptions.member.Member.step", failing)
    with broker.subscribe("g", print):
        until(lambda: len(steps) >= 2)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 0.5)
    assert len(steps) < 10  # its pauses double: for the tenth it would take 11 s


def test_a_bell_that_rings_without_end_is_not_answered_without_end(broker, monkeypatch):
    def step(member):
        steps.append(member)
        return one_step(member)

    steps, one_step = [], Member.step
    monkeypatch.setattr("broker.subscriptions.member.Member.step", step)
    monkeypatch.setattr("broker.store.doorbell.Doorbell.wait", lambda bell, logs, ms: list(logs))
    desk_of(broker).report("a")
    begun = time.monotonic()
    with broker.subscribe("g", ledger := Ledger()):
        ledger.has(1)
        until(lambda: time.monotonic() - begun > 1)
    seconds = time.monotonic() - begun
    assert len(steps) < 10 + 2 * seconds / REST_SECONDS  # it rests after every second one


def test_a_full_redis_lets_readers_read_on(own_broker):
    ledger = Ledger()
    desk = desk_of(own_broker)
    for at in range(0, 300, 100):
        desk.report_many(range(at, at + 100))
    client = own_broker.store.client
    with own_broker.subscribe("g", ledger):
        ledger.has(1)
        client.config_set("maxmemory", "1mb")
        ledger.has(300)
        until(lambda: sub(own_broker, "g")["acked"] == log_revs(own_broker)[-1])
        client.config_set("maxmemory", "0")
    assert ledger.revs() == log_revs(own_broker)


def test_an_origin_whose_keys_are_damaged_stops_no_other(broker, caplog, monkeypatch):
    monkeypatch.setattr("broker.subscriptions.leases.DAMAGED_MS", 10)
    ledger = Ledger()
    client, keys = broker.store.client, broker.store.keys
    for origin in ("one", "two", "three"):
        desk_of(broker, origin).report("a")
    client.set(keys.of("one").sub("g"), "no hash")
    client.delete(keys.of("two").log)
    client.set(keys.of("two").log, "no stream")
    with broker.subscribe("g", ledger):
        ledger.has(1)
        for number in range(20):
            desk_of(broker, "three").report(number)
        until(lambda: len(ledger.revs("three")) == 21)
        before = errors(broker.store)
        until(lambda: errors(broker.store) >= before + 4)  # both are tried again
    assert {one.origin for one in ledger.told} == {"three"}
    told = [one.message for one in caplog.records if "cannot read" in one.message]
    assert len(told) == 2  # once for each


def test_a_damaged_origin_is_read_on_once_it_is_mended(broker, monkeypatch):
    monkeypatch.setattr("broker.subscriptions.leases.DAMAGED_MS", 100)
    ledger = Ledger()
    desk = desk_of(broker)
    desk.report("a")
    broker.store.client.set(desk.keys.sub("g"), "no hash")
    desk_of(broker, "nas").report("b")
    with broker.subscribe("g", ledger):
        ledger.has(1)
        broker.store.client.delete(desk.keys.sub("g"))
        ledger.has(2)
    assert ledger.ids == ["b", "a"]


def test_a_parking_that_failed_is_made_good_with_its_own_reason(own_broker, monkeypatch):
    monkeypatch.setattr("broker.subscriptions.leases.DAMAGED_MS", 100)
    ledger = Ledger(fails="b")
    desk = desk_of(own_broker)
    client = own_broker.store.client
    desk.report_many("abc")
    client.set(desk.keys.parked("g"), "no stream")
    with subscribed(own_broker, "g", ledger, tries=2):
        until(lambda: ledger.ids.count("b") == 2)
        client.delete(desk.keys.parked("g"))
        until(lambda: "c" in ledger.ids)
    assert ledger.ids == ["a", "b", "b", "c"]
    [one] = parked(own_broker.store, "desk", "g")
    assert (one.rev, one.reason) == (ledger.told[1].rev, "ValueError: not b")
