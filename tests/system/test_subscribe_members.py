"""The members of a group: they share the origins, and take over from one that was closed, killed or frozen."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from broker.store.parked import parked
from broker.subscriptions.member import INTERRUPTED, Member
from tests.clock import StillClock
from tests.store.readers import until
from tests.system.beats import Beats
from tests.system.subscriber import (
    Ledger,
    Process,
    broker_with,
    desk_of,
    hold_on,
    lines,
    log_revs,
    sub,
)

#: Two of them may pass until somebody follows: one lapses, and all but a look of the second is left to a slow machine.
LEASE_MS = 5_000
#: No machine stands still for so long: who lives keeps its leases.
PATIENT_MS = 600_000


@pytest.fixture
def broker(store, namespace):
    return broker_with(store, namespace, LEASE_MS)


@pytest.fixture
def started(broker, redis_url, tmp_path):
    """Starts subscribers in processes of their own; kills what is left of them."""
    made = []

    def start(group, *deadly):
        made.append(Process(broker, redis_url, group, tmp_path / group, *deadly))
        return made[-1]

    yield start
    for process in made:
        process.kill()


def stands_still(pid):
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def even(broker, *subscriptions):
    counts = [len(one.owned) for one in subscriptions]
    return max(counts) - min(counts) <= 1 and sum(counts) == len(broker.origins())


def test_members_share_the_origins_and_nothing_is_told_twice(store, namespace):
    def report():
        reports.append(len(reports))
        for origin in origins:
            desk_of(broker, origin).report(reports[-1])

    broker = broker_with(store, namespace, PATIENT_MS)
    ledgers = [Ledger(), Ledger(), Ledger()]
    origins, reports = [f"o{number}" for number in range(9)], []
    with broker.subscribe("g", ledgers[0]) as first:
        report()
        until(lambda: first.owned == origins)
        with (
            broker.subscribe("g", ledgers[1]) as second,
            broker.subscribe("g", ledgers[2]) as third,
        ):
            until(lambda: report() or even(broker, first, second, third))
            report()
            until(lambda: sum(len(one.told) for one in ledgers) == 9 * len(reports))
            until(lambda: sorted(first.owned + second.owned + third.owned) == origins)
    assert all(ledger.told for ledger in ledgers)
    told = [(one.origin, one.rev) for ledger in ledgers for one in ledger.told]
    assert len(set(told)) == len(told)
    for origin in origins:
        assert sorted(rev for name, rev in told if name == origin) == log_revs(broker, origin)
        for ledger in ledgers:
            assert ledger.revs(origin) == sorted(ledger.revs(origin))


def test_two_subscriptions_of_one_group_in_one_process_share_like_any_other(store, namespace):
    broker = broker_with(store, namespace, PATIENT_MS)
    ledgers = Ledger(), Ledger()
    for origin in ("desk", "nas"):
        desk_of(broker, origin).report("a")
    with broker.subscribe("g", ledgers[0]) as one, broker.subscribe("g", ledgers[1]) as other:
        until(lambda: len(one.owned) == len(other.owned) == 1)
        assert sorted(one.owned + other.owned) == ["desk", "nas"]
        until(lambda: len(ledgers[0].told + ledgers[1].told) == 2)  # who owns has not yet told
    assert sorted(ledgers[0].ids + ledgers[1].ids) == ["a", "a"]


def test_a_closed_member_is_followed_at_once_and_the_next_term_is_higher(store, namespace):
    broker = broker_with(store, namespace, PATIENT_MS)
    desk = desk_of(broker)
    ledgers = Ledger(), Ledger()
    first = broker.subscribe("g", ledgers[0])
    desk.report("a")
    ledgers[0].has(1)
    with broker.subscribe("g", ledgers[1]):
        desk.report("b")
        ledgers[0].has(2)
        first.close()
        desk.report("c")
        ledgers[1].has(1)  # and not after a lease of ten minutes
        assert first.join()
    assert (ledgers[0].ids, ledgers[1].ids) == (["a", "b"], ["c"])
    assert ledgers[1].told[0].term > ledgers[0].told[0].term


def test_a_killed_member_is_followed_within_two_budgets(broker, started):
    desk = desk_of(broker)
    process = started("g")
    desk.report_many(range(10))
    until(lambda: len(process.lines) == 10)
    until(lambda: sub(broker, "g")["acked"] == log_revs(broker)[-1])
    ledger = Ledger()
    with broker.subscribe("g", ledger) as standby:
        until(lambda: standby._member._leases.look_at)
        process.kill()
        with Beats(broker.store.client.ping) as passed:
            desk.report("next")
            told = ledger.has(1)[0]
        assert passed.seconds < 2 * LEASE_MS / 1000
    assert told.id == "next"
    assert told.term > process.lines[-1].term


def test_a_member_killed_in_the_middle_is_followed_without_a_gap(broker, started):
    desk = desk_of(broker)
    process = started("g")
    for at in range(0, 2_000, 100):
        desk.report_many(range(at, at + 100))
    until(lambda: len(process.lines) > 20)
    process.kill()
    before = [line.rev for line in process.lines]
    assert len(before) < 2_000  # it was killed with entries in hand
    with broker.subscribe("g", ledger := Ledger()):
        ledger.reaches("1999")
    # What was told, but not yet acked, is told once more: one entry at most.
    after = ledger.revs()
    assert (before[:-1] if before[-1] == after[0] else before) + after == log_revs(broker)


def test_a_frozen_member_is_followed_and_thaws_into_nothing(broker, started, store, namespace):
    desk = desk_of(broker)
    process = started("g")
    for at in range(0, 2_000, 100):
        desk.report_many(range(at, at + 100))
    until(lambda: len(process.lines) > 20)
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: stands_still(process.pid))
    before = [line.rev for line in process.lines]
    assert len(before) < 1_900  # it was frozen with entries in hand
    ledger = Ledger()
    with broker_with(store, namespace, PATIENT_MS).subscribe("g", ledger) as standby:
        with Beats(broker.store.client.ping) as passed:
            ledger.has(1)
        assert passed.seconds < 2 * LEASE_MS / 1000
        os.kill(process.pid, signal.SIGCONT)
        ledger.reaches("1999")
        assert standby.owned == ["desk"]
    desk.report("next")
    until(lambda: process.lines[-1].id == "next")
    # The thawed one finished what it had in hand, and told nothing more until it was the owner again.
    thawed = process.lines[len(before) :]
    assert len(thawed) <= 2
    assert thawed[-1].term > ledger.told[-1].term > process.lines[0].term
    log = log_revs(broker)
    assert ledger.revs() == log[-1 - len(ledger.told) : -1]
    assert before == log[: len(before)]
    assert len(before) + len(ledger.told) + 1 - len(log) in (0, 1)


def test_who_was_frozen_in_its_handler_cannot_ack_what_another_one_did(broker):
    broker.store.clock = clock = StillClock(broker.store.clock)
    desk = desk_of(broker)
    desk.report_many("abc")
    told = []
    other_ledger = Ledger()
    other = Member(broker.store, broker.config, "g", other_ledger)

    def handler(delivery):
        told.append(delivery)
        clock.ahead_ms += LEASE_MS  # all stands still here, for longer than the lease
        other.step()

    frozen = Member(broker.store, broker.config, "g", handler)
    frozen.step()
    assert [one.id for one in told] == ["a"]
    assert other_ledger.ids == ["a", "b", "c"]
    assert other_ledger.told[0].term > told[0].term
    assert other_ledger.told[0].tries == 2  # it was in hand when its owner lapsed
    assert frozen.owned == []
    assert other.owned == ["desk"]
    assert sub(broker, "g")["acked"] == log_revs(broker)[-1]
    frozen.step()
    assert len(told) == 1


def test_an_event_that_kills_its_process_is_parked_and_the_rest_flows(
    store, namespace, redis_url, tmp_path
):
    broker = broker_with(store, namespace, lease_ms=300)
    desk = desk_of(broker)
    desk.report_many(["a", "deadly", "b", "c"])
    file = tmp_path / "ledger"
    deaths = 0
    while True:
        process = Process(broker, redis_url, "g", file, "deadly").process
        ended = until(lambda p=process: p.poll() or any(line.id == "c" for line in lines(file)))
        process.kill()
        process.wait()
        if ended is True:
            break
        assert ended == 7
        deaths += 1
    told = [(line.id, line.tries) for line in lines(file)]
    assert deaths == 5
    assert told == [
        ("a", 1), ("deadly", 1), ("deadly", 2), ("deadly", 3), ("deadly", 4), ("deadly", 5), ("b", 1), ("c", 1)
    ]  # fmt: skip
    terms = [line.term for line in lines(file)]
    assert all(later >= earlier for earlier, later in pairwise(terms))
    [one] = parked(broker.store, "desk", "g")
    assert (one.entry.key("desk").id, one.reason, one.tries) == ("deadly", INTERRUPTED, 5)


def test_a_lease_is_kept_while_a_handler_takes_its_time(store, namespace):
    store.clock = StillClock(store.clock)
    broker = broker_with(store, namespace, lease_ms=400)
    ledgers = Ledger(blocks="a"), Ledger()
    desk_of(broker).report_many("ab")
    with broker.subscribe("g", ledgers[0]):
        ledgers[0].has(1)
        with broker.subscribe("g", ledgers[1]) as other:
            term = sub(broker, "g")["term"]
            hold_on(broker, "g", other)
            assert other.owned == []
            ledgers[0].go.set()
            ledgers[0].has(2)
    assert ledgers[1].told == []
    assert {one.term for one in ledgers[0].told} == {int(term)}
