"""The overview: how it all stands in one look, that of the store, cheap, and whole as far as it can be read."""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

import pytest

from broker import Broker
from broker import settings as settings_of
from broker.cli.top.panels import overview_lines, summary
from broker.fleet.doubts import AGAIN_MS, Doubts
from broker.fleet.overview import overview
from broker.rules.event import Report
from broker.rules.key import Key
from broker.rules.record import clip
from broker.store import health
from broker.store.audited import Audited, AuditSeen
from broker.store.lease import LED_ROLES, Lease
from broker.store.log import Log
from broker.store.store import Store
from broker.store.view import View

STALE_MS = 300_000
KEYS = {
    "at", "jobs", "ready", "oldest_ready_ms", "delayed", "placed", "wanted", "occupied", "slots", "rates",
    "failures", "audit", "redis", "leaders", "origins", "halted", "damaged", "list_age_ms",
}  # fmt: skip


@pytest.fixture
def broker(store, namespace):
    return Broker(store, settings_of(namespace=namespace, node="desk"))


def records(broker):
    with broker.watch() as watcher:
        return watcher.snapshot().records


def report(store, origin, id, state="running", **more):
    key = Key.of(origin, "ollama", "", str(id))
    told = {"created_at": store.clock.now()} | more
    View(store).apply([Report(key=key, state=state, **told)])
    return key


def test_an_empty_fleet_has_one_too(broker):
    found = overview(broker, {}).to_json()
    assert found.keys() == KEYS
    assert set(found["jobs"].values()) == {0}
    assert (
        found["oldest_ready_ms"]
        is found["rates"]["failed_share"]
        is found["audit"]["age_ms"]
        is None
    )
    assert (found["origins"], found["damaged"]) == ([], [])
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("seconds,told", [(0.0, 0), (12.3456, 12_346), (math.inf, None)])
def test_it_says_how_old_the_list_is_that_it_counts(broker, seconds, told):
    found = overview(broker, {}, list_age_seconds=seconds).to_json()
    assert found["list_age_ms"] == told


def test_an_error_that_may_be_cut_is_marked_so(broker, store):
    for id, error in (("long", "no engine of this name " * 3), ("short", "no such file")):
        report(store, "a", id, "failed", error=clip(error))
    found = overview(broker, records(broker)).to_json()
    cut = {one["error"]: one["cut"] for one in found["failures"]}
    assert cut == {"no engine of this name " * 2 + "no engine of this": True, "no such file": False}
    shown = ["".join(text for text, _ in each) for each in overview_lines(found)]
    [long] = [each for each in shown if "no engine" in each]
    [short] = [each for each in shown if "no such file" in each]
    assert ("of this…  (newest" in long, "file  (newest" in short) == (True, True)


def test_each_origin_tells_what_its_keys_hold(broker, store):
    for n in range(9):
        report(store, "a", n)
    report(store, "b", 1, "completed")
    broker.submit("echo", 1, origin="a")
    broker.submit("echo", 2, origin="a", delay=3_600)
    while Log(store, "a").trim(4, 10**9):
        pass
    found = {one["origin"]: one for one in overview(broker, records(broker)).to_json()["origins"]}
    position = broker.log("a").position()
    a = found["a"]
    assert (a["log"], a["trimmed"], a["live"], a["done"], a["ready"], a["delayed"]) == (
        4,
        7,
        11,
        0,
        1,
        1,
    )
    assert (a["floor"], a["epoch"], a["last_rev"]) == (position.floor, position.epoch, position.rev)
    used = store.client.memory_usage(store.keys.of("a").log, samples=0)
    assert 0.7 * used <= a["bytes"] <= 1.3 * used
    assert a["answers"] == {"applied:first_sighting": 9, "applied:submitted": 2}
    assert (found["b"]["done"], found["b"]["live"]) == (1, 0)


def test_an_origin_at_rest_is_an_empty_one_and_not_a_damaged_one(broker, store):
    report(store, "a", 1, "completed")
    while Log(store, "a").trim(0, 10**9):
        pass
    [one] = overview(broker, {}).origins
    assert (one.log, one.bytes, one.trimmed, one.damage) == (0, 0, 1, "")
    store.client.delete(store.keys.of("a").log)
    [one] = overview(broker, {}).origins
    assert (one.log, one.bytes, one.trimmed, one.damage) == (0, 0, 0, "")


@pytest.mark.parametrize("what", ["log", "meta", "live", "done", "ready", "delayed"])
def test_damage_of_one_origin_hides_no_other_nor_its_own_other_figures(broker, store, what):
    for origin in ("ill", "well"):
        report(store, origin, 1)
    held = records(broker)
    name = getattr(store.keys.of("ill"), what)
    store.client.delete(name)
    store.client.set(name, "of another type")
    found = overview(broker, held)
    ill, well = found.origins
    assert (well.log, well.live, well.damage) == (1, 1, "")
    assert ill.damage
    [line] = found.damaged
    assert line.startswith("ill: ")
    assert {"log": ill.live, "meta": ill.live, "live": ill.log}.get(what, ill.log) == 1
    assert found.to_json()["jobs"]["running"] == 2


@pytest.mark.parametrize("what", ["origins", "workers", "audit"])
def test_damage_of_a_key_of_the_fleet_leaves_the_rest(broker, store, what):
    report(store, "a", 1)
    held = records(broker)
    name = getattr(store.keys, what)
    store.client.delete(name)
    store.client.set(name, "of another type")
    found = overview(broker, held).to_json()
    assert found["jobs"]["running"] == 1
    assert len(found["damaged"]) == 1
    assert found["redis"]["version"]


def test_leaders_are_told_by_role_and_a_chronicle_only_once_there_was_one(broker, store):
    found = overview(broker, {}).to_json()["leaders"]
    assert found == {role: {"term": 0, "held": False} for role in LED_ROLES if role != "chronicle"}
    lease = Lease(store, "chronicle", "x", 60_000)
    term = lease.hold()
    assert overview(broker, {}).to_json()["leaders"]["chronicle"] == {"term": term, "held": True}
    lease.release()
    assert overview(broker, {}).to_json()["leaders"]["chronicle"] == {"term": term, "held": False}


def light(found):
    """What `broker top` says in place of the dashboard's light."""
    return summary(found.to_json(), [])[1][-1]


def test_a_fleet_that_lost_a_leader_is_halted_and_one_that_never_had_one_is_not(broker, store):
    leases = {role: Lease(store, role, "x", 600_000) for role in LED_ROLES}
    Audited(store).tell(AuditSeen(at=store.clock.now(), origins=1))
    found = overview(broker, {})
    assert (found.halted, light(found)) == ([], ("ghosts 0", "good"))
    for lease in leases.values():
        lease.hold()
    leases["chronicle"].release()  # which no fleet needs
    found = overview(broker, {})
    assert (found.halted, light(found)) == ([], ("ghosts 0", "good"))
    leases["sweeper"].release()
    leases["janitor"].release()
    found = overview(broker, {})
    assert found.to_json()["halted"] == ["No broker serve leads as janitor, sweeper"]
    assert light(found) == (found.halted[0], "doubt")


def test_a_redis_that_cannot_write_its_log_halts_the_fleet(broker, store):
    found = overview(broker, {})
    full = replace(found, health=replace(found.health, aof_ok=False))
    assert full.halted == ["Redis cannot write its log, and takes no writes: is its disk full?"]
    assert light(full) == (full.halted[0], "doubt")
    told = ["".join(text for text, _ in each) for each in overview_lines(full.to_json())]
    assert any("append-only file failed" in each for each in told)
    Audited(store).tell(AuditSeen(at=store.clock.now(), origins=1, ghosts=2))
    both = replace(overview(broker, {}), health=full.health)
    assert light(both) == ("ghosts 2", "bad")  # what was found stays true


def test_how_redis_keeps_its_file_is_unknown_where_it_does_not_say(store, namespace):
    assert health.read(store).fsync == store.client.config_get("appendfsync")["appendfsync"]
    name = f"u{namespace}"
    store.client.acl_setuser(
        name, enabled=True, nopass=True, commands=["+@all", "-config"], keys=["*"], channels=["*"]
    )
    path = store.client.connection_pool.connection_kwargs
    where = (
        f"unix://{name}@{path['path']}"
        if "path" in path
        else f"redis://{name}@{path['host']}:{path['port']}"
    )
    other = Store.from_url(where, namespace)
    try:
        assert health.read(other).fsync == "unknown"
    finally:
        other.close()
        store.client.acl_deluser(name)


# --- who is in doubt --------------------------------------------------------------------------------------------------


def age(store, key, ms):
    """It was seen so long ago, and the log says nothing else."""
    store.client.hset(store.keys.of_job(key).job, "last_seen", store.clock.now() - ms)


def test_a_reported_job_that_is_spoken_of_is_in_no_doubt_though_the_list_is_old(broker, store):
    key = report(store, "a", 1)
    doubts, now = Doubts(broker), store.clock.now()
    held = records(broker)
    later = now + 2 * STALE_MS
    store.client.hset(store.keys.of_job(key).job, "last_seen", later - 1_000)
    assert doubts.among(held, later) == []
    assert doubts.among(held, later + STALE_MS + 2_000) == [key]


def test_one_that_nobody_speaks_of_is_in_doubt_until_somebody_does(broker, store):
    key = report(store, "a", 1)
    doubts, held = Doubts(broker), records(broker)
    later = store.clock.now() + 2 * STALE_MS
    assert doubts.among(held, later) == [key]
    store.client.hset(store.keys.of_job(key).job, "last_seen", later)
    assert doubts.among(held, later + AGAIN_MS) == []


def test_another_look_meanwhile_takes_nothing_from_one(broker, store, monkeypatch):
    """The last client's look is not waited for when it leaves, and the next client begins one."""
    key = report(store, "a", 1)
    doubts, held, look = Doubts(broker), records(broker), Doubts._look

    def looked(self, stale, now):
        found = look(self, stale, now)
        if stale:
            self.among({}, now, [])
        return found

    monkeypatch.setattr(Doubts, "_look", looked)
    assert doubts.among(held, store.clock.now() + 2 * STALE_MS) == [key]


def test_what_was_read_of_a_job_is_not_read_again_before_it_can_differ(broker, store, monkeypatch):
    keys = [report(store, "a", n) for n in range(3)]
    doubts, held = Doubts(broker), records(broker)
    later = store.clock.now() + 2 * STALE_MS
    for key in keys[:2]:
        store.client.hset(store.keys.of_job(key).job, "last_seen", later)
    asked = []
    read = doubts.among.__globals__["read_sightings"]
    monkeypatch.setitem(
        doubts.among.__globals__,
        "read_sightings",
        lambda store, keys: asked.append(list(keys)) or read(store, keys),
    )
    for ms in (0, 1_000, AGAIN_MS - 1, AGAIN_MS):
        assert doubts.among(held, later + ms) == [keys[2]]
    assert [len(some) for some in asked] == [3, 0, 0, 1]
    doubts.among({}, later)
    assert not doubts._seen


# --- its price --------------------------------------------------------------------------------------------------------


def test_it_asks_redis_a_handful_of_times_however_many_jobs_there_are(broker, store):
    for origin in ("a", "b", "c"):
        View(store).apply([
            Report(key=Key.of(origin, "ollama", "", str(n)), created_at=n + 1, state="completed")
            for n in range(1_000)
        ])  # fmt: skip
    held = records(broker)
    overview(broker, held)
    before = store.client.info("stats")["total_commands_processed"]
    began = time.thread_time()  # its own work, whatever else this machine does
    overview(broker, held)
    seconds = time.thread_time() - began
    asked = store.client.info("stats")["total_commands_processed"] - before
    assert asked < 20 + 10 * 3
    assert seconds < 0.5  # measured: 5 ms
