"""`broker doctor` looks through all that is kept, names what is wrong, and leaves it as it is."""

from __future__ import annotations

import contextlib
import os
import pty
import re

import pytest

from broker.store.audited import Audited, AuditSeen, Repair
from tests.store.readers import Desk, key

DAY_MS = 86_400_000
ROUNDS = "; in all rounds: found 7, repaired 5"


@pytest.fixture
def desk(store):
    """An origin with a few reported jobs."""
    made = Desk(store)
    made.report_many(range(5))
    made.report(5, "completed", completed_at=2_000)
    return made


def found(command, topic):
    """What doctor says on a topic, as (level, key, text)."""
    ran = command("doctor", "-o", "json")
    return [
        (said["level"], said["key"], said["text"]) for said in ran.json if said["topic"] == topic
    ]


def dump(store):
    names = store.client.scan_iter(f"{store.keys.namespace}:*")
    return {name: store.client.dump(name) for name in names}


def test_healthy_books_are_said_to_agree(command, desk):
    Desk(desk.store, "shelf").report(1)
    assert found(command, "books") == [
        ("ok", "", "7 jobs of 2 origins agree with their indexes and logs")
    ]
    assert command("doctor").code == 0


def test_an_empty_redis_is_fine(command):
    assert found(command, "books") == [
        ("ok", "", "0 jobs of 0 origins agree with their indexes and logs")
    ]


def test_each_damage_is_a_line_of_its_own_and_stays(command, desk):
    client, keys = desk.store.client, desk.keys
    client.delete(keys.of_job(key(0).job).job)
    client.hset(keys.of_job(key(1).job).job, "node", "elsewhere")
    client.zadd(keys.done, {key("nobody").job: 5})
    client.zrem(keys.live, key(2).job)
    before = dump(desk.store)
    ran = command("doctor")
    assert ran.code == 1
    assert dump(desk.store) == before
    lines = [line for line in ran.out.splitlines() if line.startswith("error")]
    assert len(lines) == 4
    for topic, id, text in (
        ("missing", 0, "it has no record"),
        ("drift", 1, "differs from entry"),
        ("ghost", "nobody", "listed in done"),
        ("missing", 2, "live does not list it"),
    ):
        [line] = [line for line in lines if f"{key(id)}: " in line]
        assert line.split()[1] == topic
        assert text in line
    assert found(command, "books") == []


def test_a_thousand_errors_are_counted_in_a_table_and_told_as_json(command, desk):
    desk.report_many(range(10, 210))
    desk.store.client.delete(desk.keys.ids)
    ran = command("doctor")
    assert ran.code == 1
    assert sum(line.startswith("error") for line in ran.out.splitlines()) == 100
    assert "106 more errors" in ran.err
    assert "redis" in ran.out  # what follows the errors is shown
    assert len(found(command, "missing")) == 206


@pytest.mark.parametrize("index", ["live", "ids", "log", "meta"])
def test_books_that_cannot_be_read_hide_no_others(command, desk, index):
    other = Desk(desk.store, "shelf")
    other.report(1)
    desk.store.client.delete(other.keys.of_job(key(1, "shelf").job).job)
    name = getattr(desk.keys, index)
    desk.store.client.delete(name)
    desk.store.client.set(name, "x")
    [(level, about, text)] = found(command, "drift")
    assert (level, about) == ("error", name)
    assert "is a string" in text
    [(level, _, text)] = found(command, "books")
    assert level == "error"
    assert "books of desk cannot be looked through" in text
    assert [about for _, about, _ in found(command, "missing")] == [str(key(1, "shelf"))]


@pytest.mark.parametrize("name", ["nodes", "workers", "origins", "groups", "audit", "repairs"])
def test_a_key_of_the_fleet_that_cannot_be_read_hides_nothing_else(command, desk, name):
    name = getattr(desk.store.keys, name)
    desk.store.client.delete(name)
    desk.store.client.set(name, "x")
    ran = command("doctor")
    assert ran.code == 1
    assert name in ran.out
    assert "policy" in ran.out
    assert ("error", name) in [found_[:2] for found_ in found(command, "drift")]


def test_an_origin_that_nobody_lists_is_told(command, desk):
    desk.store.client.hdel(desk.store.keys.origins, "desk")
    [(level, _, text)] = found(command, "missing")
    assert level == "error"
    assert "does not list desk" in text


def test_a_record_that_no_list_leads_to_is_found(command, desk):
    desk.store.client.zrem(desk.keys.ids, key(1).member)
    desk.store.client.zrem(desk.keys.live, key(1).job)
    desk.store.client.delete(desk.keys.log)
    [(_, about, text)] = found(command, "missing")
    assert about == str(key(1))
    assert "ids does not list it" in text


def test_half_a_worker_is_found(command, desk):
    desk.store.client.hset(desk.store.keys.worker("w1"), "node", "n1")
    [(level, about, text)] = found(command, "drift")
    assert (level, about) == ("error", desk.store.keys.worker("w1"))
    assert "not among those that beat" in text


def test_it_is_quiet_where_nobody_looks_and_counts_on_a_terminal(command, desk):
    piped = command.process("doctor")
    assert (piped.code, piped.err) == (0, "")
    master, slave = pty.openpty()
    with command.start("doctor", stderr=slave, env={"TERM": "xterm"}) as process:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(master, 65_536):
                seen += data
        out, _ = process.communicate(timeout=60)
    os.close(master)
    assert b"all keys" in seen or b"desk" in seen
    assert b", 0 jobs" not in seen  # of what holds none, none are counted
    assert b"agree" in out


class TestAuditor:
    def told(self, store, **gauges):
        at = store.clock.now() - gauges.pop("ago_ms", 1_000)
        Audited(store).tell(AuditSeen(at=at, origins=1, **gauges))

    def test_that_none_has_gone_round_is_a_warning(self, command, desk):
        [(level, _, text)] = found(command, "auditor")
        assert level == "warning"
        assert "none has gone round" in text

    def test_its_newest_round_is_shown(self, command, desk):
        self.told(desk.store, ghosts=3, drift=4, repaired=5)
        self.told(desk.store)
        assert found(command, "auditor") == [
            (
                "ok",
                "",
                "its newest round over 1 origins: ghosts 0, missing 0, stuck 0, drift 0, unread 0, repaired 0"
                + ROUNDS,
            )
        ]

    @pytest.mark.parametrize("gauge", ["ghosts", "missing", "stuck", "drift", "unread"])
    def test_what_it_found_is_a_warning(self, command, desk, gauge):
        self.told(desk.store, **{gauge: 3}, repaired=2)
        [(level, _, text)] = found(command, "auditor")
        assert level == "warning"
        assert f"{gauge} 3" in text
        assert "repaired 2" in text

    def test_a_round_long_ago_is_a_warning(self, command, desk):
        self.told(desk.store, ago_ms=20 * 60_000)
        [(level, _, text)] = found(command, "auditor")
        assert level == "warning"
        assert "20 min ago" in text

    def test_its_newest_repairs_are_shown_for_a_day(self, command, desk):
        now = desk.store.clock.now()
        Audited(desk.store).note(
            [
                Repair(now - DAY_MS - 1, "ghost", "desk", key(1).job, "unlist", "old"),
                *[
                    Repair(now - n * 60_000, "drift", "desk", key(n).job, "relist", f"mended {n}")
                    for n in (9, 8, 7, 6, 5, 4)
                ],
            ]
        )
        repaired = found(command, "repaired")
        *shown, (_, about, text) = repaired
        assert [about for _, about, _ in shown] == [str(key(n)) for n in (4, 5, 6, 7, 8)]
        assert (about, text) == ("", "6 in the last 24 h; these are the newest 5")
        assert repaired[0][0] == "warning"
        assert repaired[0][2] == "4 min ago (relist): mended 4"

    def test_a_repair_of_this_minute_is_told_in_seconds(self, command, desk):
        now = desk.store.clock.now()
        Audited(desk.store).note([Repair(now - 9_000, "drift", "desk", key(1).job, "relist", "x")])
        [(_, _, text)] = found(command, "repaired")
        assert re.match(r"(9|[1-5]\d) s ago \(relist\): x", text)


def test_a_key_is_not_named_twice_in_one_line(command, desk):
    name = desk.keys.live
    desk.store.client.delete(name)
    desk.store.client.set(name, "x")
    [line] = [line for line in command("doctor").out.splitlines() if "is a string" in line]
    assert line.count(name) == 1
