"""The auditor as a role: who leads, how much a step does, what is told, and what it outlives."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from broker.errors import Unavailable
from broker.roles.auditor import REPAIRS_A_STEP, ROLE, TOLD_MAX
from broker.roles.serve import run_roles
from broker.rules.audit import (
    DISCARD,
    ENLIST,
    FORGET,
    KINDS,
    RELIST,
    REMOVE,
    RESTORE,
    SET_ASIDE,
    UNLIST,
)  # fmt: skip
from broker.rules.event import Remove
from broker.rules.liveness import Budgets
from broker.store.audited import Audited, AuditSeen
from tests.roles.audits import go_round, rounds_until_well, step_until, told
from tests.roles.fleet import ORIGIN, settle
from tests.store.readers import until


def name_of(fleet, key):
    return fleet.store.keys.of_job(key).job


def lose(fleet, *keys):
    fleet.store.client.delete(*(name_of(fleet, key) for key in keys))


def is_there(fleet, *keys):
    return [fleet.view.get(key) is not None for key in keys]


# --- what a healthy fleet gets ----------------------------------------------------------------------------------------


def test_in_a_healthy_fleet_all_gauges_read_0(fleet):
    fleet.submit_many(range(5))
    fleet.report_many("abc")
    fleet.report("far", origin="far")
    auditor = fleet.auditor()
    seen = go_round(auditor)
    assert (seen.ghosts, seen.missing, seen.stuck, seen.drift, seen.unread, seen.repaired) == (
        0,
    ) * 6
    assert (seen.origins, seen.at, seen.term) == (2, fleet.clock.now(), auditor._lead.term)
    assert told(auditor) == []


def test_a_fleet_that_has_told_nothing_is_healthy(fleet):
    seen = go_round(fleet.auditor())
    assert (seen.origins, seen.missing) == (0, 0)


def test_what_it_found_is_counted_mended_recorded_and_logged(fleet, caplog):
    lost, edited, kept = fleet.report_many("abc")
    lose(fleet, lost)
    fleet.store.client.hset(name_of(fleet, edited), "node", "elsewhere")
    fleet.store.client.zadd(fleet.store.keys.of(ORIGIN).live, {"ollama//ghost": 5})
    auditor = fleet.auditor()
    seen = go_round(auditor)
    assert (seen.missing, seen.drift, seen.ghosts, seen.repaired) == (1, 1, 1, 3)
    assert sorted(told(auditor)) == [
        ("drift", "restore", edited.job), ("ghost", "unlist", "ollama//ghost"), ("missing", "restore", lost.job),
    ]  # fmt: skip
    assert f"mended: missing of {lost}" in caplog.text
    assert "a round over 1 origins: 1 drift, 1 ghost, 1 missing, 3 repaired" in caplog.text
    assert is_there(fleet, lost, edited, kept) == [True] * 3
    seen = go_round(auditor)
    assert (seen.missing, seen.drift, seen.ghosts, seen.repaired) == (0, 0, 0, 0)


def test_what_no_repair_mends_is_counted_in_every_round_and_told(fleet, caplog):
    fleet.report("6")
    key = fleet.report("7", "completed")
    fleet.store.client.xdel(fleet.store.keys.of(ORIGIN).log, fleet.view.get(key).rev)
    auditor = fleet.auditor()
    for _ in range(2):
        seen = go_round(auditor)
        assert (seen.ghosts, seen.repaired) == (1, 0)
    assert is_there(fleet, key) == [True]
    assert f"found: ghost of {key}" in caplog.text


def test_thousands_of_one_cause_are_all_mended_but_not_thousands_of_lines(fleet, caplog):
    keys = fleet.report_many(range(1_200))
    lose(fleet, *keys)
    auditor = fleet.auditor()
    assert go_round(auditor).repaired == 1_200
    assert all(is_there(fleet, *keys))
    assert len(Audited(fleet.store).repairs(5_000)) == 1_000
    assert caplog.text.count("mended:") == TOLD_MAX
    assert rounds_until_well(auditor) == []


# --- how much a step does ---------------------------------------------------------------------------------------------


def test_a_step_mends_a_bounded_number_and_asks_for_the_next_one(fleet):
    keys = fleet.report_many(range(2 * REPAIRS_A_STEP + 1))
    lose(fleet, *keys)
    auditor = fleet.auditor()
    counts = []
    while sum(counts) < len(keys):
        if count := auditor.step():
            counts.append(count)
    # One that found says only that there is something to do, and one settles what was mended.
    assert [count for count in counts if count > 1] == [REPAIRS_A_STEP, REPAIRS_A_STEP]
    assert counts[0] == 1


def test_a_step_without_anything_to_mend_lets_the_others_work(fleet):
    fleet.report_many(range(2_000))
    auditor = fleet.auditor()
    assert [auditor.step() for _ in range(40)] == [0] * 40


def test_a_step_sends_a_bounded_number_of_commands(fleet):
    """A thousand jobs, and twenty origins: no step reads them all."""
    fleet.report_many(range(1_500))
    for n in range(20):
        fleet.report("7", origin=f"o{n}")
    auditor = fleet.auditor(round_seconds=3600, keys_seconds=3600)
    most, before = 0, fleet.store.client.info("stats")["total_commands_processed"]
    seen = Audited(fleet.store)
    while not seen.seen().at:
        auditor.step()
        after = fleet.store.client.info("stats")["total_commands_processed"]
        most, before = max(most, after - before), after
    assert seen.seen().origins == 21
    assert most < 2_500


def test_after_a_round_it_rests_until_the_next_one_is_due(fleet):
    fleet.report("7")
    auditor = fleet.auditor(round_seconds=3600, keys_seconds=3600)
    go_round(auditor)
    before = fleet.store.client.info("stats")["total_commands_processed"]
    for _ in range(50):
        assert auditor.step() == 0
    # But for the lease, and this very question, it asked nothing.
    assert fleet.store.client.info("stats")["total_commands_processed"] - before < 5


def test_a_key_that_everybody_stands_on_does_not_wait_for_the_next_round(fleet):
    fleet.report("7")
    auditor = fleet.auditor(round_seconds=3600, keys_seconds=0.0)
    go_round(auditor)
    key = fleet.store.keys.workers
    fleet.store.client.set(key, "of another type")
    step_until(auditor, lambda: not fleet.store.client.exists(key))
    # And what stood on it is looked through at once.
    assert go_round(auditor).drift == 1


def test_a_fleet_that_beats_faster_is_audited_more_often(fleet):
    paces = []
    for beat_ms in (1_000, 200):
        auditor = fleet.auditor(
            budgets=Budgets(beat_ms=beat_ms), round_seconds=None, keys_seconds=None
        )
        paces.append((auditor._round_seconds, auditor._keys_seconds))
    assert paces == [(60.0, 5.0), (12.0, 1.0)]


def test_half_a_worker_is_forgotten_and_a_whole_one_is_not(fleet):
    fleet.workers_of("n1", count=3)
    beats_only, says_only, whole = (worker.name for worker in fleet.workers)
    fleet.store.client.delete(fleet.store.keys.worker(beats_only))
    fleet.store.client.zrem(fleet.store.keys.workers, says_only)
    auditor = fleet.auditor()
    assert go_round(auditor).repaired == 2
    assert [seen.name for seen in fleet.nodes.workers(0)] == [whole]
    assert not fleet.store.client.exists(fleet.store.keys.worker(says_only))
    fleet.beat()  # who lives is back
    assert len(fleet.nodes.workers(0)) == 3
    assert rounds_until_well(auditor) == []


def test_what_rq_keeps_of_an_attempt_that_is_over_is_discarded(fleet):
    fleet.workers_of("n1")
    key = fleet.submit("7")
    settle(fleet.dispatcher())
    fleet.say(Remove(key=key))
    assert fleet.handed_over("n1") == [str(key)]
    auditor = fleet.auditor()
    go_round(auditor)  # it may be cleared away any moment
    fleet.clock.ahead_ms += 3_600_000
    fleet.beat()
    assert go_round(auditor).repaired == 1
    assert fleet.handed_over("n1") == []
    assert [what for _, what, _ in told(auditor)] == ["discard"]
    assert rounds_until_well(auditor) == []


# --- who leads --------------------------------------------------------------------------------------------------------


def test_of_two_auditors_one_leads_and_the_other_stands_by(fleet):
    key = fleet.report("7")
    first, second = fleet.auditor(), fleet.auditor()
    go_round(first)
    lose(fleet, key)
    for _ in range(50):
        assert second.step() == 0
    assert is_there(fleet, key) == [False]
    first.close()
    second._lead.doubt()
    go_round(second)
    assert is_there(fleet, key) == [True]


def test_a_new_leader_fences_every_origin_first(fleet):
    origins = [f"o{n:02}" for n in range(45)]
    for origin in origins:
        fleet.report("7", origin=origin)
    fleet.auditor().step()
    term = fleet.store.client.get(fleet.store.keys.term(ROLE))
    for origin in origins:
        assert fleet.store.client.hget(fleet.store.keys.of(origin).meta, f"term:{ROLE}") == term


def stop_before_mending(auditor):
    """As it stands with findings in hand, ready to mend them."""
    step_until(auditor, lambda: auditor._findings)


def heir_of(fleet):
    """Another one took over while the leader was frozen. It finds nothing, for it does not look yet."""
    fleet.store.client.delete(fleet.store.keys.leader(ROLE))
    heir = fleet.auditor(round_seconds=3600, keys_seconds=3600)
    heir._lead.hold()
    heir._begin_term()
    return heir


def edit(fleet, key):
    fleet.store.client.hset(name_of(fleet, key), "node", "elsewhere")


def unlist(fleet, key):
    fleet.store.client.zrem(fleet.store.keys.of(ORIGIN).live, key.job)


def list_ghost(fleet, key):
    fleet.store.client.zadd(fleet.store.keys.of(ORIGIN).ready, {"ollama//ghost": 5})


@pytest.mark.parametrize("damage", [lose, edit, unlist, list_ghost])
def test_one_that_was_frozen_past_its_lease_mends_nothing_when_it_wakes(fleet, caplog, damage):
    key = fleet.report("7")
    frozen = fleet.auditor()
    damage(fleet, key)
    stop_before_mending(frozen)
    heir_of(fleet)
    names = list(fleet.store.client.scan_iter(f"{fleet.store.keys.of(ORIGIN).prefix}:*"))
    before = [fleet.store.client.dump(name) for name in names]
    assert frozen.step() == 0
    assert [fleet.store.client.dump(name) for name in names] == before
    assert "another auditor leads now" in caplog.text
    assert frozen._lead.term == 0  # it asks from now on
    assert not frozen._findings


def test_nor_has_it_readers_list_anew(fleet):
    key = fleet.report("7")
    frozen = fleet.auditor()
    lose(fleet, key)
    stop_before_mending(frozen)
    step_until(frozen, lambda: not frozen._findings)
    heir_of(fleet)
    meta = fleet.store.keys.of(ORIGIN).meta
    before = fleet.store.client.hget(meta, "epoch")
    assert frozen.step() == 0
    assert fleet.store.client.hget(meta, "epoch") == before


def test_a_ghost_that_it_would_remove_may_be_gone_or_another_job_by_then(fleet):
    """A removal carries no term: it names the very record that it was found to be."""
    key = fleet.report("7")
    record = fleet.store.client.hgetall(name_of(fleet, key))
    fleet.say(Remove(key=key))
    fleet.store.client.hset(name_of(fleet, key), mapping=record)
    frozen = fleet.auditor()
    fleet.store.client.zadd(fleet.store.keys.of(ORIGIN).ids, {key.member: 0})
    stop_before_mending(frozen)
    heir_of(fleet)
    fleet.report("7", created_at=fleet.clock.now() + 1)
    frozen.step()
    assert is_there(fleet, key) == [True]


AUDITOR = """
import sys, threading
from broker.roles.auditor import Auditor
from broker.roles.loop import Loop
from broker.rules.liveness import Budgets
from broker.store.store import Store
store = Store.from_url(sys.argv[1], sys.argv[2])
auditor = Auditor(store, budgets=Budgets(guess_ms=300), round_seconds=0, keys_seconds=0)
print("up", flush=True)
Loop("auditor", auditor.step, threading.Event(), pace_seconds=0.01).run()
"""


def test_a_process_that_is_frozen_and_killed_leaves_all_to_the_next_one(fleet):
    key = fleet.report("7")
    run = subprocess.Popen(
        [sys.executable, "-c", AUDITOR, fleet.store.url, fleet.store.keys.namespace],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    try:
        assert run.stdout.readline() == b"up\n"
        leader, term = fleet.store.keys.leader(ROLE), fleet.store.keys.term(ROLE)
        until(lambda: fleet.store.client.get(leader))
        first = int(fleet.store.client.get(term))
        os.kill(run.pid, signal.SIGSTOP)
        until(lambda: not fleet.store.client.exists(leader))
        lose(fleet, key)
        heir = fleet.auditor()
        rounds_until_well(heir)
        assert is_there(fleet, key) == [True]
        assert heir._lead.term > first
        os.kill(run.pid, signal.SIGCONT)
    finally:
        run.kill()
        run.wait()
        run.stdout.close()


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_one_damaged_origin_hides_no_other(fleet):
    key = fleet.report("7", origin="well")
    fleet.report("7", origin="ill")
    auditor = fleet.auditor(keys_seconds=3600)
    go_round(auditor)
    lose(fleet, key)
    fleet.store.client.hset(fleet.store.keys.of("ill").meta, "floor", "x")
    seen = go_round(auditor)
    assert (seen.unread, seen.origins, seen.missing) == (1, 1, 1)
    assert is_there(fleet, key) == [True]
    # What could not be looked through has the keys looked at before their time.
    assert rounds_until_well(auditor) == []
    assert [what for _, what, _ in told(auditor)] == ["set_aside", "restore"]


def test_a_full_redis_loses_nothing_and_is_mended_when_there_is_room(fleet):
    lost, edited = fleet.report_many("ab")
    auditor = fleet.auditor()
    lose(fleet, lost)
    edit(fleet, edited)
    stop_before_mending(auditor)
    fleet.store.client.config_set("maxmemory", 1)
    try:
        for _ in range(3):
            with pytest.raises(Unavailable):
                auditor.step()
    finally:
        fleet.store.client.config_set("maxmemory", 0)
    rounds_until_well(auditor)
    assert is_there(fleet, lost) == [True]
    assert fleet.view.get(edited).node == ""
    assert len(told(auditor)) == 2


def test_a_full_redis_is_rid_of_keys_that_nobody_can_read_for_who_makes_room_may_need_them(fleet):
    """Setting a key aside takes no memory: that is done, whatever else waits, and recorded when there is room."""
    key = fleet.report("7")
    janitor = fleet.store.keys.leader("janitor")
    auditor = fleet.auditor()
    lose(fleet, key)
    stop_before_mending(auditor)
    fleet.store.client.hset(janitor, "of", "another type")
    fleet.store.client.config_set("maxmemory", 1)
    try:
        for _ in range(4):
            with suppress(Unavailable):
                auditor.step()
        assert not fleet.store.client.exists(janitor)
        assert fleet.janitor()._lead.hold()
        assert is_there(fleet, key) == [False]
    finally:
        fleet.store.client.config_set("maxmemory", 0)
    rounds_until_well(auditor)
    assert is_there(fleet, key) == [True]
    assert sorted(what for _, what, _ in told(auditor)) == ["restore", "set_aside"]


def test_a_redis_that_is_away_costs_a_round_not_the_role(fleet, monkeypatch):
    keys = fleet.report_many(range(3))
    auditor = fleet.auditor()
    go_round(auditor)
    lose(fleet, *keys)

    def away(*_):
        raise Unavailable("Redis does not answer")

    with monkeypatch.context() as patched:
        patched.setattr("broker.store.audit.Audit.step", away)
        with pytest.raises(Unavailable):
            step_until(auditor, lambda: False)
    rounds_until_well(auditor)
    assert is_there(fleet, *keys) == [True] * 3


def test_a_job_that_moved_between_look_and_repair_is_left_to_itself(fleet):
    key = fleet.report("7", "queued", seq=1)
    auditor = fleet.auditor()
    edit(fleet, key)
    stop_before_mending(auditor)
    fleet.report("7", "completed", seq=2, created_at=fleet.view.get(key).created_at)
    before = fleet.view.get(key)
    assert auditor.step() == 1
    assert fleet.view.get(key) == before
    assert told(auditor) == []


def test_its_own_keys_are_mended_before_it_can_lead(fleet):
    fleet.report("7")
    keys, client = fleet.store.keys, fleet.store.client
    for name in (keys.leader(ROLE), keys.term(ROLE), keys.audit, keys.repairs):
        client.delete(name)
        client.hset(name, "of", "another type") if name != keys.audit else client.set(name, "x")
    auditor = fleet.auditor()
    wanted = [b"hash", b"stream", b"string", b"string"]
    names = [keys.audit, keys.repairs, keys.leader(ROLE), keys.term(ROLE)]
    step_until(auditor, lambda: [client.type(name) for name in names] == wanted)
    assert len(told(auditor)) == 4


def test_all_roles_run_it(fleet, caplog):
    key = fleet.report("7")
    lose(fleet, key)
    stop = threading.Event()
    with caplog.at_level(logging.INFO):
        running = threading.Thread(target=run_roles, args=(fleet.store, stop, Budgets()))
        running.start()
        try:
            until(lambda: is_there(fleet, key) == [True])
        finally:
            stop.set()
            running.join(60)
    assert not fleet.store.client.exists(fleet.store.keys.leader(ROLE))


def test_what_its_page_shows_of_redis_cli_is_answered(fleet):
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    [lines] = re.findall(r"^```redis-cli\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lost = fleet.report("7")
    lose(fleet, lost)
    rounds_until_well(fleet.auditor())
    answers = [
        fleet.store.client.execute_command(
            *line.replace("broker:", f"{fleet.store.keys.namespace}:").split()
        )
        for line in lines.splitlines()
    ]
    assert answers[0][b"drift"] == b"0"
    assert answers[1][0][1][b"job"] == lost.job.encode()
    assert len(answers) == 2


def test_its_page_tells_of_every_repair_and_every_gauge():
    page = (Path(__file__).parents[2] / "docs/audit.md").read_text()
    told = set(re.findall(r"`(\w+)`", page))
    whats = {UNLIST, RELIST, RESTORE, REMOVE, DISCARD, SET_ASIDE, ENLIST, FORGET}
    assert {*KINDS, *whats} <= told
    assert " ".join(AuditSeen().to_json()) in page


def test_what_is_damaged_again_without_a_word_of_the_log_is_mended_in_the_next_round(fleet):
    """What it read of the log for the first repair is of no use for the second: readers were told of another log."""
    key = fleet.report("7")
    auditor = fleet.auditor()
    for _ in range(3):
        lose(fleet, key)
        assert go_round(auditor).repaired == 1
