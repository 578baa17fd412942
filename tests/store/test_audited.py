"""What an auditor tells of its work: gauges of its newest round, and what it mended."""

from __future__ import annotations

import pytest

from broker.errors import Damaged, Unavailable
from broker.rules.audit import DRIFT, RESTORE, Finding
from broker.store.audited import REPAIRS_MAX, Audited, AuditSeen, Repair
from broker.store.store import Store

SEEN = AuditSeen(
    at=1, took_ms=2, origins=3, unread=4, ghosts=5, missing=6, stuck=7, drift=8, repaired=9, term=10,
    found_total=26, ghosts_total=5, missing_total=6, stuck_total=7, drift_total=8, repaired_total=9,
)  # fmt: skip


@pytest.fixture
def audited(desk_on_each):
    return Audited(desk_on_each.store)


def repair(n):
    finding = Finding(kind=DRIFT, origin="desk", job=f"ollama//{n}", text=f"no. {n}", what=RESTORE)
    return Repair.of(finding, at=n)


def test_before_the_first_round_nothing_is_told(audited):
    assert audited.seen() == AuditSeen()
    assert audited.repairs(9) == []


def test_the_newest_round_takes_the_place_of_the_last_one(audited):
    audited.tell(SEEN)
    assert audited.seen() == SEEN
    audited.tell(AuditSeen(at=99))
    totals = {name: count for name, count in SEEN.to_json().items() if name.endswith("_total")}
    assert audited.seen() == AuditSeen(at=99, **totals)
    audited.tell(AuditSeen(at=100, ghosts=1, drift=2, repaired=1))
    seen = audited.seen()
    assert (seen.found_total, seen.ghosts_total, seen.drift_total, seen.repaired_total) == (
        29,
        6,
        10,
        10,
    )


def test_every_gauge_can_be_read_with_redis_cli(audited, desk_on_each):
    audited.tell(SEEN)
    found = desk_on_each.store.client.hgetall(desk_on_each.store.keys.audit)
    assert {name.decode(): int(value) for name, value in found.items()} == SEEN.to_json()


def test_repairs_are_told_newest_first(audited):
    audited.note([repair(1), repair(2)])
    audited.note([repair(3)])
    assert audited.repairs(2) == [repair(3), repair(2)]
    assert repair(3).to_json() == {
        "at": 3, "kind": "drift", "origin": "desk", "job": "ollama//3", "what": "restore", "text": "no. 3",
    }  # fmt: skip


def test_of_more_than_a_thousand_the_oldest_go(audited):
    audited.note([repair(n) for n in range(REPAIRS_MAX + 5)])
    found = audited.repairs(2 * REPAIRS_MAX)
    assert [told.at for told in found] == list(range(REPAIRS_MAX + 4, 4, -1))


def test_what_a_foreign_hand_wrote_counts_as_not_told(audited, desk_on_each):
    client, keys = desk_on_each.store.client, desk_on_each.store.keys
    client.hset(keys.audit, mapping={"at": "today", "drift": b"\xff", "ghosts": -1, "repaired": 5})
    client.xadd(keys.repairs, {"at": "today", "text": b"\xff"})
    assert audited.seen() == AuditSeen(repaired=5)
    [found] = audited.repairs(9)
    assert (found.at, found.kind) == (0, "")


def test_keys_of_a_wrong_type_are_said(audited, desk_on_each):
    for name in (desk_on_each.store.keys.audit, desk_on_each.store.keys.repairs):
        desk_on_each.store.client.set(name, "of another type")
    for call in (
        audited.seen,
        lambda: audited.repairs(1),
        lambda: audited.tell(SEEN),
        lambda: audited.note([repair(1)]),
    ):
        with pytest.raises(Damaged):
            call()


def test_a_full_redis_takes_nothing(store: Store):
    store.client.config_set("maxmemory", 1)
    try:
        for call in (lambda: Audited(store).tell(SEEN), lambda: Audited(store).note([repair(1)])):
            with pytest.raises(Unavailable):
                call()
    finally:
        store.client.config_set("maxmemory", 0)
    assert Audited(store).seen() == AuditSeen()


def test_a_client_reads_both(broker, store):
    assert broker.audit() == AuditSeen()
    Audited(store).tell(SEEN)
    Audited(store).note([repair(n) for n in range(3)])
    assert broker.audit() == SEEN
    assert broker.repairs(2) == [repair(2), repair(1)]
