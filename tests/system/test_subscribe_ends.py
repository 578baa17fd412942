"""How a subscription ends: closed from anywhere, at any moment, without an error, an empty event or a lost one."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from broker.store.store import Store
from broker.subscriptions.member import Member
from broker.subscriptions.subscription import Subscription
from tests.clock import StillClock
from tests.store.readers import until
from tests.system.subscriber import ROOT, Ledger, broker_with, desk_of, hold_on, log_revs, sub

TURNS = 12


@pytest.fixture
def bursting(broker):
    """An origin about which something is told without end."""
    done = threading.Event()
    desk = desk_of(broker)

    def burst():
        number = 0
        while not done.is_set():
            desk.report_many(range(number, number + 5))
            number += 5

    thread = threading.Thread(target=burst)
    thread.start()
    yield desk
    done.set()
    thread.join()


@pytest.fixture
def sleepy(redis_url, namespace, monkeypatch):
    """A client whose subscriptions sleep for minutes, where others sleep for a second at most."""
    for name in ("broker.store.doorbell.SLEEP_MS_MAX", "broker.subscriptions.leases.LOOK_MS_MAX",
                 "broker.subscriptions.subscription.WAIT_MS_MAX"):  # fmt: skip
        monkeypatch.setattr(name, 300_000)
    with closing(Store.from_url(f"{redis_url}?socket_timeout=600", namespace)) as store:
        yield broker_with(store, namespace, lease_ms=900_000)


def test_closing_in_mid_burst_ends_it_at_once_and_the_next_one_goes_on(broker, bursting, caplog):
    revs = []
    for turn in range(TURNS):
        ledger = Ledger()
        subscription = broker.subscribe("g", ledger)
        ledger.has(5)
        time.sleep(0.003 * turn)  # close at another moment of the burst each turn
        subscription.close()
        begun = len(ledger.told)
        assert subscription.join(60)
        assert len(ledger.told) <= begun + 1  # the one that was just being begun
        subscription.close()
        assert subscription.join()
        told = len(ledger.told)
        assert all(one.key and one.record and one.rev for one in ledger.told)
        revs += ledger.revs()
        assert sub(broker, "g")["owner"] == ""
        assert len(ledger.told) == told
    assert revs == log_revs(broker)[: len(revs)]
    # What another test left to asyncio may be told at any moment.
    assert [one for one in caplog.records if one.name.startswith("broker")] == []


def test_closing_inside_the_handler_finishes_that_event_and_begins_no_other(broker):
    desk_of(broker).report_many("abc")
    told = []

    def handler(delivery):
        told.append(delivery.id)
        subscription.close()  # it would never return if it waited for what ends after this
        assert not subscription.ended

    ready = threading.Event()
    subscription = broker.subscribe("g", lambda delivery: ready.wait(60) and handler(delivery))
    ready.set()
    assert subscription.join(60)
    assert told == ["a"]
    assert sub(broker, "g")["acked"] == log_revs(broker)[0]
    assert sub(broker, "g")["owner"] == ""


def test_closing_before_it_has_looked_at_all(broker):
    desk_of(broker).report("a")
    for _ in range(10):
        with broker.subscribe("g", print) as subscription:
            subscription.close()
            assert subscription.join(60)
    member = Member(broker.store, broker.config, "g", Ledger())
    member.close()
    with Subscription(member) as subscription:
        assert subscription.join(60)
    assert subscription.ended


def test_closing_while_it_sleeps_wakes_it(sleepy):
    desk_of(sleepy).report("a")
    ledger = Ledger()
    for turn in range(5):
        subscription = sleepy.subscribe(f"g{turn}", ledger)
        ledger.has(turn + 1)
        until(lambda: sleepy.store.client.info("clients")["blocked_clients"])
        subscription.close()
        assert subscription.join(60)


def test_closing_while_it_waits_for_a_retry(sleepy):
    desk_of(sleepy).report("a")
    ledger = Ledger(fails="a")
    member = Member(sleepy.store, sleepy.config, "g", ledger, chance=lambda: 600)  # ten minutes
    with Subscription(member) as subscription:
        ledger.has(1)
        subscription.close()
        assert subscription.join(60)
    assert sub(sleepy, "g")["tries"] == "1"


def test_an_event_in_hand_is_finished_and_its_lease_kept_until_then(store, namespace):
    store.clock = clock = StillClock(store.clock)
    broker = broker_with(store, namespace, lease_ms=300)
    desk_of(broker).report_many("ab")
    ledger, other = Ledger(blocks="a"), Ledger()
    subscription = broker.subscribe("g", ledger)
    ledger.has(1)
    subscription.close()
    assert not subscription.join(0.01)
    with broker.subscribe("g", other) as standby:
        hold_on(broker, "g", standby)
        assert other.told == []
        ledger.go.set()
        assert subscription.join(60)
        clock.ahead_ms += 300  # the other one looks again
        other.has(1)
    assert (ledger.ids, other.ids) == (["a"], ["b"])


def test_a_handler_cannot_wait_for_its_own_end(broker):
    desk_of(broker).report("a")
    told, ready = [], threading.Event()

    def handler(delivery):
        ready.wait(60)
        with pytest.raises(RuntimeError, match="close it"):
            subscription.join()
        told.append(delivery.id)

    with broker.subscribe("g", handler) as subscription:
        ready.set()
        until(lambda: told)


def test_what_ended_it_is_raised_by_join(broker):
    def handler(delivery):
        raise SystemExit(3)

    desk_of(broker).report("a")
    subscription = broker.subscribe("g", handler)
    with pytest.raises(SystemExit):
        subscription.join()
    assert sub(broker, "g")["owner"] == ""


def test_no_thread_and_no_connection_is_left(broker):
    desk_of(broker).report("a")
    threads, clients = set(threading.enumerate()), len(broker.store.client.client_list())
    for _ in range(5):
        with broker.subscribe("g", print):
            pass
    assert set(threading.enumerate()) <= threads
    until(lambda: len(broker.store.client.client_list()) <= clients + 2)


WAITING = r"""
import os
from broker import Broker

def say(line):
    os.write(1, line.encode() + b"\n")

with Broker.from_url() as broker, broker.subscribe("g", lambda told: say(told.id)) as subscription:
    try:
        say("waiting")
        subscription.join()
    except KeyboardInterrupt:
        say("interrupted")
        raise
"""


def test_control_c_ends_a_program_that_joins(broker, redis_url):
    desk_of(broker).report("a")
    environment = {
        "PYTHONPATH": str(ROOT),
        "REDIS_URL": redis_url,
        "BROKER_NAMESPACE": broker.config.namespace,
    }
    program = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert {program.stdout.readline() for _ in range(2)} == {"a\n", "waiting\n"}
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    assert out == "interrupted\n"
    assert err.strip().endswith("KeyboardInterrupt")
    assert sub(broker, "g")["owner"] == ""
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]
