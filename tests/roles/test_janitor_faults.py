"""What goes wrong around a janitor: rivals, freezes, damaged keys, a Redis that is full."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from broker.errors import Damaged, Unavailable
from broker.roles.janitor import ROLE, Janitor
from broker.roles.serve import run_roles
from broker.rules.bounds import Bounds
from broker.rules.event import Remove, Report
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.store.view import View
from tests.roles.fleet import ORIGIN, settle
from tests.roles.test_janitor import listed, log_length
from tests.store.readers import until

# --- who leads ----------------------------------------------------------------------------------------------------


def test_of_two_janitors_one_leads_and_the_other_stands_by(fleet):
    fleet.report_many(range(9))
    first, second = (fleet.janitor(log_max=5) for _ in range(2))
    assert settle(first) == 4
    fleet.report_many(range(9, 12))
    assert settle(second) == 0
    first.close()
    second._lead.doubt()
    assert settle(second) == 3


def test_a_new_leader_fences_every_origin_before_it_cuts_anything(fleet):
    """Those included that its first step does not come to."""
    origins = [f"o{n:02}" for n in range(45)]
    for origin in origins:
        fleet.report("7", origin=origin)
    fleet.janitor().step()

    term = fleet.store.client.get(fleet.store.keys.term(ROLE))
    for origin in origins:
        assert fleet.store.client.hget(fleet.store.keys.of(origin).meta, f"term:{ROLE}") == term


def heir_of(fleet, frozen):
    """Its lease ran out while it was frozen, and another one took over: with bounds at which nothing is to go."""
    settle(frozen)
    fleet.store.client.delete(fleet.store.keys.leader(ROLE))
    heir = fleet.janitor()
    assert heir.step() == 0
    return heir


def fall_silent(fleet, origin, *ids):
    """It has nothing left but an empty log, and the tombstones of these jobs: where those are."""
    for id in ids:
        fleet.say(Remove(key=Key(origin, "ollama", "", id)))
    books = fleet.store.keys.of(origin)
    fleet.store.client.xtrim(books.log, maxlen=0, approximate=False)
    fleet.clock.ahead_ms += 200_000
    return books.gone


def test_a_janitor_that_was_frozen_past_its_lease_cuts_nothing_when_it_wakes(fleet, caplog):
    fleet.report("first")
    frozen = fleet.janitor(log_max=2)
    heir_of(fleet, frozen)
    fleet.report_many(range(9))

    assert frozen.step() == 0
    assert log_length(fleet) == 10
    assert "another janitor leads now" in caplog.text
    assert frozen.step() == 0  # and asks from now on


def test_nor_does_it_prune_anything(fleet, monkeypatch):
    """Frozen between the two, say."""
    fleet.report("first")
    frozen = fleet.janitor(done_max=1)
    heir_of(fleet, frozen)
    monkeypatch.setattr(frozen, "_cut", lambda *_: 0)
    keys = fleet.report_many(range(3), "completed")

    assert frozen.step() == 0
    assert listed(fleet, keys) == keys
    assert [refusal.rule for refusal in fleet.view.refusals(keys[0])] == ["stale_term"]


def test_nor_does_it_let_an_origin_rest(fleet, monkeypatch):
    fleet.report("first")
    frozen = fleet.janitor(done_max=1)
    heir_of(fleet, frozen)
    monkeypatch.setattr(frozen, "_cut", lambda *_: 0)
    gone = fall_silent(fleet, ORIGIN, "first")

    assert frozen.step() == 0
    assert fleet.store.client.exists(gone)
    assert frozen._lead.term == 0  # it asks from now on


JANITOR = """
import sys, threading
from broker.roles.janitor import Janitor
from broker.roles.loop import Loop
from broker.rules.bounds import Bounds
from broker.rules.liveness import Budgets
from broker.store.store import Store
store = Store.from_url(sys.argv[1], sys.argv[2])
janitor = Janitor(store, bounds=Bounds(log_max=2), budgets=Budgets(guess_ms=300), round_seconds=0)
print("up", flush=True)
Loop("janitor", janitor.step, threading.Event(), pace_seconds=0.01).run()
"""


def test_a_process_that_was_stopped_for_longer_than_its_lease_cuts_nothing_when_it_goes_on(
    fleet, redis_url
):
    fleet.report_many(range(5))
    argv = [sys.executable, "-c", JANITOR, redis_url, fleet.store.keys.namespace]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            until(lambda: log_length(fleet) == 2)
            os.kill(process.pid, signal.SIGSTOP)
            heir = fleet.janitor()
            # Who stands by asks from time to time; this one asks at once, again and again.
            until(lambda: heir._lead.doubt() or heir.step() or heir._lead.term)
            fleet.report_many(range(9, 18))
            os.kill(process.pid, signal.SIGCONT)
            calls = fleet.store.client.info("commandstats")["cmdstat_evalsha"]["calls"]
            until(
                lambda: (
                    fleet.store.client.info("commandstats")["cmdstat_evalsha"]["calls"] > calls + 2
                )
            )
            assert log_length(fleet) == 2 + 9
        finally:
            process.kill()
            told = process.communicate()[1].decode()
    assert "Traceback" not in told


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["log", "meta", "done", "live", "job"])
def test_one_damaged_origin_stops_no_other_and_is_told_once_a_minute(fleet, caplog, what):
    """`b` lies between the others in the round."""
    for origin in ("a", "b", "c"):
        fleet.report_many(range(3), origin=origin)
        ended = fleet.report_many(range(3, 6), "completed", origin=origin)
    books = fleet.store.keys.of("b")
    name = fleet.store.keys.of_job(ended[0]._replace(origin="b")).job
    name = name if what == "job" else getattr(books, what)
    fleet.store.client.delete(name)
    fleet.store.client.set(name, "of another type")

    janitor = fleet.janitor(log_max=4, done_max=1)
    for _ in range(20):
        janitor.step()
    for origin in ("a", "c"):
        assert log_length(fleet, origin) == 4
        assert fleet.store.client.zcard(fleet.store.keys.of(origin).done) == 1
    errors = [record.message for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors
    assert len(errors) == len(set(errors)) <= 2
    assert all(" b " in error or " b/" in error for error in errors)


@pytest.mark.parametrize("what", ["meta", "gone", "seen", "seen_old"])
def test_one_origin_that_cannot_rest_stops_no_other_and_is_told(fleet, caplog, what):
    gone = [fall_silent(fleet, origin, "7") for origin in ("a", "b", "c")]
    name = getattr(fleet.store.keys.of("b"), what)
    fleet.store.client.delete(name)
    fleet.store.client.set(name, "of another type")

    janitor = fleet.janitor()
    for _ in range(5):
        janitor.step()
    assert [fleet.store.client.exists(name) for name in gone] == [0, 1, 0]
    assert caplog.text.count("the origin b cannot be let rest") == 1


@pytest.mark.parametrize("damage", ["no record", "no number", "of another type", "drifted"])
def test_ended_jobs_that_cannot_be_pruned_hide_none_behind_them(fleet, damage):
    """More of them than a page, and the oldest."""
    now = fleet.clock.now()
    ended = [
        Report(
            key=Key(ORIGIN, "e", "", f"{n:03}"), created_at=now, state="failed", completed_at=n + 1
        )
        for n in range(230)
    ]
    fleet.view.apply(ended)
    stuck = [event.key for event in ended[:150]]
    for key in stuck:
        name = fleet.store.keys.of_job(key).job
        if damage == "no number":
            fleet.store.client.hset(name, "last_seen", "x")
        elif damage == "drifted":  # the listing says that it has ended, the record does not
            fleet.store.client.hset(name, "state", "running")
        else:
            fleet.store.client.delete(name)
        if damage == "of another type":
            fleet.store.client.set(name, "x")

    janitor = fleet.janitor(done_max=10, done_ms_max=10**14)
    assert sum(janitor.step() for _ in range(20)) == 70
    assert fleet.store.client.zcard(fleet.store.keys.of(ORIGIN).done) == 160

    if damage == "drifted":  # and what was mended meanwhile goes in the end
        for key in stuck:
            fleet.store.client.hset(fleet.store.keys.of_job(key).job, "state", "failed")
        assert sum(janitor.step() for _ in range(20)) == 150


def test_where_the_groups_cannot_be_read_logs_are_kept_up_to_the_hard_cap(fleet, caplog):
    """Somebody may need what is in them."""
    fleet.report_many(range(9))
    ended = fleet.report_many(range(9, 12), "completed")
    fleet.store.client.set(fleet.store.keys.groups, "of another type")
    fleet.clock.ahead_ms += 8 * 86_400_000
    assert settle(fleet.janitor(log_max=2, log_hard_max=5, silence_ms_max=10**14)) > 0
    assert log_length(fleet) == 5
    assert listed(fleet, ended) == []
    assert "the groups are unknown" in caplog.text


def test_many_damaged_jobs_are_no_thousand_lines(fleet, caplog):
    for key in fleet.report_many(range(90), "completed"):
        fleet.store.client.delete(fleet.store.keys.of_job(key).job)
    janitor = fleet.janitor(done_max=1)
    for _ in range(5):
        janitor.step()
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


def test_a_group_that_cannot_be_forgotten_stops_nothing(fleet, caplog, monkeypatch):
    fleet.report_many(range(5))
    fleet.store.client.hset(fleet.store.keys.groups, "old", 1)
    janitor = fleet.janitor(log_max=2)

    def damaged(_):
        raise Damaged("it cannot be read")

    monkeypatch.setattr(janitor._groups, "remove", damaged)
    assert settle(janitor) == 3
    assert "the group old cannot be forgotten" in caplog.text


# --- a full Redis -------------------------------------------------------------------------------------------------


def test_a_full_redis_takes_writes_again_once_the_janitor_cut_its_logs(tmp_path, namespace):
    """Nobody leads yet when it is full."""
    options = {"appendonly": "no", "save": "", "maxmemory": "3500kb"}
    with PrivateRedis(tmp_path, options=options) as server:
        store = Store.from_url(server.url, namespace)
        view = View(store)

        def write(turn):
            view.apply(
                [
                    Report(
                        key=Key(ORIGIN, "e", "", str(n)),
                        created_at=1,
                        state="running",
                        seq=turn,
                        error="x" * 60,
                    )
                    for n in range(50)
                ]
            )

        turns = itertools.count(1)
        with pytest.raises(Unavailable, match="maxmemory"):
            any(write(turn) for turn in turns)
        assert next(turns) > 20

        janitor = Janitor(store, bounds=Bounds(log_max=50), round_seconds=0.0)
        assert settle(janitor) > 20 * 50
        for turn in itertools.islice(turns, 20):
            write(turn)
        janitor.close()
        store.close()


def test_every_log_is_cut_first_where_a_full_redis_lets_nothing_be_pruned(fleet):
    for origin in ("a", "b", "c"):
        fleet.report_many(range(9), "completed", origin=origin)
    fleet.store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            fleet.janitor(log_max=2, done_max=2).step()
    finally:
        fleet.store.client.config_set("maxmemory", 0)
    assert [log_length(fleet, origin) for origin in ("a", "b", "c")] == [2, 2, 2]


def test_silent_origins_make_room_before_a_full_redis_is_asked_to_prune(fleet):
    fleet.report_many(range(9), "completed", origin="a")
    gone = fall_silent(fleet, "b", "7")
    fleet.store.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            fleet.janitor(done_max=2).step()
    finally:
        fleet.store.client.config_set("maxmemory", 0)
    assert not fleet.store.client.exists(gone)


def test_a_full_redis_is_not_asked_to_prune_while_much_is_left_to_be_cut(fleet):
    """Each refusal would cost the roles a pause."""
    keys = [Key(ORIGIN, "e", "", str(n)) for n in range(2_500)]
    fleet.view.apply([Report(key=key, created_at=1, state="completed") for key in keys])
    janitor = fleet.janitor(log_max=10, done_max=2)
    fleet.store.client.config_set("maxmemory", 1)
    try:
        assert [janitor.step() for _ in range(2)] == [1_000, 1_000]
        with pytest.raises(Unavailable):
            janitor.step()
    finally:
        fleet.store.client.config_set("maxmemory", 0)
    assert log_length(fleet) == 10


# --- among the roles ----------------------------------------------------------------------------------------------


def test_it_runs_with_the_other_roles_under_the_bounds_that_were_set(fleet):
    fleet.report_many(range(9))
    store = Store.from_url(fleet.store.url, fleet.store.keys.namespace)
    stop = threading.Event()
    thread = threading.Thread(target=run_roles, args=(store, stop, Budgets(), Bounds(log_max=3)))
    thread.start()
    try:
        until(lambda: log_length(fleet) == 3)
    finally:
        stop.set()
        thread.join()
        store.close()
    assert not fleet.store.client.exists(fleet.store.keys.leader(ROLE))  # given back at the end
