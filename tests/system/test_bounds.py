"""Every bound of what the broker keeps in Redis is reached here once: a test for each, under lowered bounds.

The names are those of the keys. How a thing is let go of is proven where it is decided; here it is only seen to happen.
"""

from __future__ import annotations

import re

import pytest

from broker import Broker, Invalid, settings
from broker.jobs.submission import JSON_BYTES_MAX
from broker.rules.bounds import Bounds
from broker.rules.event import Intent, Remove, Report
from broker.rules.key import Key
from broker.rules.liveness import Budgets
from broker.store.announce import Announcer, announcements
from broker.store.log import Log
from broker.store.nodes import REPLACED_MS, SILENCE_MS_MAX, WorkerInfo
from broker.store.output import ENTRIES_MAX, write
from broker.store.view import View
from tests.roles.fleet import ORIGIN, Fleet, settle
from tests.store.members import GROUP, Owner
from tests.store.readers import ORIGIN as READ
from tests.store.readers import until
from tests.store.trusting import BOB, opened
from tests.system.command import held

DAY_MS = 86_400_000
MIB = 1024 * 1024


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.close()


@pytest.fixture
def books(store):
    return store.keys.of(ORIGIN)


def stands(fleet, group, rev, looked_ago_ms=0):
    """The group has acked this entry, and nothing after it."""
    place = {"acked": rev, "epoch": Log(fleet.store, ORIGIN).position().epoch}
    fleet.store.client.hset(fleet.store.keys.of(ORIGIN).sub(group), mapping=place)
    fleet.store.client.hset(fleet.store.keys.groups, group, fleet.clock.now() - looked_ago_ms)


# --- log, meta ----------------------------------------------------------------------------------------------------


def test_log_keeps_so_many_entries(fleet, books):
    fleet.report_many(range(20))
    settle(fleet.janitor(log_max=7))
    assert fleet.store.client.xlen(books.log) == 7


def test_log_keeps_entries_for_so_long(fleet, books):
    fleet.report_many(range(5))
    fleet.clock.ahead_ms += 7 * DAY_MS + 10_000
    settle(fleet.janitor())
    assert fleet.store.client.xlen(books.log) == 0


def test_log_keeps_what_a_live_group_has_not_read_up_to_a_hard_cap(fleet, books):
    fleet.report_many(range(20))
    stands(fleet, "mail", Log(fleet.store, ORIGIN).read()[0].rev)
    settle(fleet.janitor(log_max=7))
    assert fleet.store.client.xlen(books.log) == 20
    fleet.janitors[0].close()
    settle(fleet.janitor(log_max=7, log_hard_max=15))
    assert fleet.store.client.xlen(books.log) == 15


def test_log_keeps_nothing_for_a_dead_group(fleet, books):
    fleet.report_many(range(20))
    stands(fleet, "mail", Log(fleet.store, ORIGIN).read()[0].rev, looked_ago_ms=1_001)
    settle(fleet.janitor(log_max=7, group_ms_max=1_000))
    assert fleet.store.client.xlen(books.log) == 7


def test_meta_is_small_whatever_happens(fleet, books):
    """A field for each thing that an origin must not forget, for each role that leads, and for each answer."""
    fleet.workers_of("node-a", count=3)
    for key in fleet.submit_many(range(3)):
        settle(fleet.dispatcher())
        fleet.say(Intent(key=key))
        fleet.dispatchers.pop().close()
    view = View(fleet.store, Bounds(tombstones_max=2, answers_max=2, answers_ms_min=0))
    for n in range(9):
        key = Key(ORIGIN, "e", f"r{n}", str(n))
        view.apply([Report(key=key, created_at=n + 1, state="running"), Remove(key=key)])
    settle(fleet.janitor(log_max=2, done_max=1))

    fields = {name.decode() for name in fleet.store.client.hkeys(books.meta)}
    assert {name for name in fields if not name.startswith("n:")} == {
        "epoch", "floor", "rev", "horizon", "turned_at", "term:dispatcher", "term:janitor",
    }  # fmt: skip
    assert {name.removeprefix("n:applied:") for name in fields if name.startswith("n:")} == {
        "submitted", "placed", "desired", "first_sighting", "removed", "pruned",
    }  # fmt: skip


# --- job ----------------------------------------------------------------------------------------------------------


def test_job_the_newest_ended_ones_stay(fleet):
    keys = [fleet.report(n, "failed", completed_at=fleet.clock.now() + n) for n in range(20)]
    settle(fleet.janitor(done_max=7))
    found = fleet.view.get_many(keys)
    assert found[:13] == [None] * 13
    assert None not in found[13:]


def test_job_an_ended_one_stays_for_so_long(fleet):
    key = fleet.report("7", "failed")
    janitor = fleet.janitor()
    fleet.clock.ahead_ms += 7 * DAY_MS - 1
    settle(janitor)
    assert fleet.view.get(key)
    fleet.clock.ahead_ms += 1
    settle(janitor)
    assert fleet.view.get(key) is None


def test_job_a_reported_one_stays_for_so_long_without_a_sighting(fleet):
    key = fleet.report("7", "running")
    janitor = fleet.janitor()
    fleet.clock.ahead_ms += 7 * DAY_MS - 1
    settle(janitor)
    assert fleet.view.get(key)
    fleet.clock.ahead_ms += 1
    settle(janitor)
    assert fleet.view.get(key) is None


# --- spec, result, out, refused -----------------------------------------------------------------------------------


def quoted(bytes_count):
    """A text that is so many bytes of JSON."""
    return "x" * (bytes_count - 2)


def test_spec_is_of_1_mib_at_most(broker, store):
    assert JSON_BYTES_MAX == MIB
    job = broker.submit("echo", quoted(MIB))
    assert MIB <= store.client.strlen(store.keys.of_job(job.key).spec) < MIB + 100
    with pytest.raises(Invalid, match="1048576"):
        broker.submit("echo", quoted(MIB + 1))


def test_spec_of_a_report_is_of_1_mib_at_most(broker):
    said = {"event": "report", "origin": "desk", "engine": "e", "id": "7", "state": "running"}
    with pytest.raises(Invalid, match="1048576"):
        broker.report(said | {"created_at": 1, "a": quoted(MIB - 50), "b": quoted(100)})


def test_result_is_of_1_mib_at_most(broker):
    job = broker.submit("echo", 1)
    holder = held(broker, job.key)
    with pytest.raises(Invalid, match="1048576"):
        holder.finish("completed", result=quoted(MIB + 1))
    assert holder.finish("completed", result=quoted(MIB)).rule == "finished"


@pytest.fixture
def hasty(store, namespace):
    """Results outlive the end by a moment."""
    return Broker(store, settings(namespace=namespace, node="desk", result_ttl_ms=50))


def test_spec_result_and_out_are_gone_a_while_after_a_job_completed(hasty, store):
    job = hasty.submit("echo", 1)
    holder = held(hasty, job.key)
    holder.write("a chunk")
    holder.finish("completed", result=[1])
    keys = store.keys.of_job(job.key)
    until(lambda: not store.client.exists(keys.spec, keys.result, keys.out))
    assert hasty.get(job.key).state == "completed"


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_spec_of_what_failed_stays_with_the_record_for_a_retry(hasty, fleet, state):
    job = hasty.submit("echo", 1, origin=ORIGIN)
    held(hasty, job.key).finish(state, error="broke")
    keys = fleet.store.keys.of_job(job.key)
    until(lambda: not fleet.store.client.exists(keys.result))
    assert fleet.store.client.pttl(keys.spec) == -1
    fleet.clock.ahead_ms += 7 * DAY_MS + 1_000
    settle(fleet.janitor())
    assert not fleet.store.client.exists(keys.spec)


def test_out_keeps_a_thousand_entries(store):
    """Redis cuts a stream block by block: a few more may stay."""
    key = Key(ORIGIN, "echo", "", "7")
    for n in range(ENTRIES_MAX + 500):
        write(store, key, 1, "chunk", str(n), DAY_MS)
    assert ENTRIES_MAX == 1_000
    assert 1_000 <= store.client.xlen(store.keys.of_job(key).out) < 1_200
    assert 0 < store.client.pttl(store.keys.of_job(key).out) <= DAY_MS


def refused_ways(view, key, count):
    """So many refusals that all differ."""
    for n in range(count):
        state = ("queued", "running", "completed", "failed", "cancelled")[n % 5]
        view.apply([Report(key=key, created_at=1 + n // 5, state=state, seq=1)])


def test_refused_keeps_the_newest_8(fleet):
    key = fleet.report("7", "running", created_at=100, seq=9)
    fleet.view.apply([Report(key=key, created_at=100, state="failed", seq=3)])
    refused_ways(fleet.view, key, 5)
    for state in ("queued", "running", "completed", "cancelled"):
        fleet.view.apply([Report(key=key, created_at=100, state=state, seq=3)])
    assert fleet.store.client.llen(fleet.store.keys.of_job(key).refused) == 8


def test_refused_goes_an_hour_after_its_record_or_where_there_is_none(fleet):
    never = Key(ORIGIN, "ollama", "", "never there")
    fleet.view.apply([Intent(key=never)])
    key = fleet.report("7", "completed")
    refused_ways(fleet.view, key, 1)
    ttl = fleet.store.client.ttl
    names = [fleet.store.keys.of_job(each).refused for each in (never, key)]
    assert 0 < ttl(names[0]) <= 3_600
    assert ttl(names[1]) == -1
    fleet.report("8", "completed", completed_at=fleet.clock.now() + 1)
    settle(fleet.janitor(done_max=1))
    assert 0 < ttl(names[1]) <= 3_600


# --- live, done, ready, delayed, ids ------------------------------------------------------------------------------


def test_live_done_ready_delayed_and_ids_shrink_with_the_records(fleet, books):
    fleet.submit_many(range(3))
    later = [fleet.submit(n, due=fleet.clock.now() + DAY_MS) for n in range(3, 6)]
    fleet.report_many(range(6, 9), "completed")
    fleet.report_many(range(9, 12), "running")
    names = (books.live, books.done, books.ready, books.delayed, books.ids)
    assert [fleet.store.client.zcard(name) for name in names] == [9, 3, 3, 3, 12]

    for key in [*later, *(Key(ORIGIN, "echo", "", str(n)) for n in range(3))]:
        fleet.say(Intent(key=key))
    assert [fleet.store.client.zcard(name) for name in names] == [3, 9, 0, 0, 12]
    fleet.clock.ahead_ms += 7 * DAY_MS
    settle(fleet.janitor())
    assert fleet.store.client.exists(*names) == 0


# --- gone, seen ---------------------------------------------------------------------------------------------------


def test_gone_keeps_so_many_tombstones_and_a_horizon_below_them(fleet, books):
    now = fleet.clock.now()
    for n in range(20):
        fleet.report(n, "completed", created_at=now - 20 + n, completed_at=now - 20 + n)
    settle(fleet.janitor(done_max=1, tombstones_max=7))
    assert fleet.store.client.zcard(books.gone) == 7
    assert fleet.store.client.hget(books.meta, "horizon") == str(now - 20 + 11).encode()
    [late] = fleet.view.apply(
        [Report(key=Key(ORIGIN, "ollama", "", "0"), created_at=now - 20, state="running")]
    )
    assert late.rule == "tombstoned"


def test_seen_turns_and_the_half_before_it_goes(fleet, books):
    view = View(fleet.store, Bounds(answers_max=10, answers_ms_min=1_000))
    for n in range(200):
        fleet.clock.ahead_ms += 100
        key = Key(ORIGIN, "e", "", str(n))
        view.apply([Report(key=key, created_at=1, state="running")])
    assert fleet.store.client.hlen(books.seen) <= 10
    assert fleet.store.client.hlen(books.seen_old) <= 10


def kept_by(fleet, origin):
    """The keys of an origin, each with its bytes."""
    client, prefix = fleet.store.client, fleet.store.keys.of(origin).prefix
    names = list(client.scan_iter(f"{prefix}:*"))
    return {
        name.decode()[len(prefix) + 1 :]: client.memory_usage(name, samples=0) for name in names
    }


def test_an_origin_that_fell_silent_keeps_meta_and_an_empty_log_only(fleet):
    """A container's random host name, say. README tells the figure: about 700 bytes (Redis 7.0)."""
    container = "3f9d1c0b7a52"
    for n in range(300):
        key = fleet.report(n, "completed", origin=container)
        if n % 3:
            fleet.say(Remove(key=key, event_id="x"))
    assert sum(kept_by(fleet, container).values()) > 50_000
    janitor = fleet.janitor()
    for _ in range(2):
        fleet.clock.ahead_ms += 7 * DAY_MS + 10_000
        settle(janitor)

    kept = kept_by(fleet, container)
    assert set(kept) == {"log", "meta"}
    assert sum(kept.values()) < 800, kept


# --- groups -------------------------------------------------------------------------------------------------------


def test_sub_and_its_group_go_when_nobody_looked_for_so_long(fleet):
    fleet.report_many(range(3), origin=READ)
    owner, books = Owner(fleet.store), fleet.store.keys.of(READ)
    owner.group.look([READ])
    owner.park(owner.fetch()[0])
    names = (books.sub(GROUP), books.parked(GROUP), fleet.store.keys.groups)
    assert fleet.store.client.exists(*names) == 3

    fleet.clock.ahead_ms += 7 * DAY_MS + 1
    settle(fleet.janitor())
    assert fleet.store.client.exists(*names) == 0
    assert fleet.store.client.xinfo_groups(books.log) == []


def test_parked_keeps_so_many_entries(fleet):
    fleet.report_many(range(20), origin=READ)
    owner = Owner(fleet.store, parked_max=7)
    for rev in owner.fetch():
        owner.park(rev)
    assert fleet.store.client.xlen(fleet.store.keys.of(READ).parked(GROUP)) == 7
    assert owner.seen().evicted == 13


# --- trust, and the fleet -----------------------------------------------------------------------------------------


def test_trust_keeps_so_many_announcements(store, tmp_path):
    trust = opened(tmp_path)
    trust.pin(BOB.card())
    announcer = Announcer(store, "desk", trust, announcements_max=7)
    for n in range(20):
        trust.rename("bob", f"Bob {n}")
        announcer.drain()
    assert store.client.xlen(store.keys.trust("desk")) == 7
    assert announcements(store, "desk")[-1].gen == 21


def test_nodes_and_workers_are_forgotten_after_a_day(fleet):
    fleet.workers_of("node-a", count=3)
    fleet.nodes.tell("node-a", pressure=1)
    client, keys = fleet.store.client, fleet.store.keys
    worker = fleet.workers[0].name
    assert 0 < client.pttl(keys.worker(worker)) <= DAY_MS == SILENCE_MS_MAX
    assert 0 < client.pttl(keys.node("node-a")) <= DAY_MS

    fleet.clock.ahead_ms += DAY_MS + 1
    fleet.dispatcher().step()
    assert client.exists(keys.nodes, keys.workers, keys.node("node-a"), keys.worker(worker)) == 0


@pytest.mark.parametrize("brake_ms, left", [(60_000, ["alone", "new"]), (DAY_MS, None)])
def test_workers_are_forgotten_ten_minutes_after_their_node_went_on_without_them(
    fleet, brake_ms, left
):
    """Unless the brake may still have to count them."""
    for name in ("killed", "alone"):
        fleet.nodes.beat(WorkerInfo(name, f"node-of-{name}", "echo", pid=1, started_at=1))
    fleet.clock.ahead_ms += REPLACED_MS + 1
    fleet.nodes.beat(WorkerInfo("new", "node-of-killed", "echo", pid=2, started_at=2))

    fleet.dispatcher(budgets=Budgets(brake_ms=brake_ms)).step()
    names = [seen.name for seen in fleet.nodes.workers(fleet.clock.now())]
    assert names == (left or ["alone", "killed", "new"])


def test_leader_and_term_are_one_small_text_a_role(fleet, namespace):
    for _ in range(5):
        janitor = fleet.janitor()
        janitor.step()
        janitor.close()
    janitor.step()
    client = fleet.store.client
    found = sorted(name.decode() for name in client.scan_iter(f"{namespace}:[lt]e*"))
    assert found == [f"{namespace}:leader:janitor", f"{namespace}:term:janitor"]
    assert client.pttl(found[0]) > 0
    assert all(client.strlen(name) < 200 for name in found)


# --- the settings -------------------------------------------------------------------------------------------------


def test_serve_keeps_what_the_settings_say(command, broker):
    for n in range(20):
        said = {"event": "report", "origin": "desk", "engine": "e", "id": str(n)}
        broker.report(said | {"state": "completed", "created_at": n + 1})
    env = {"BROKER_BOUNDS__LOG_MAX": "7", "BROKER_BOUNDS__DONE_MAX": "4"}
    with command.start("serve", "--allow-volatile", env=env) as process:
        try:
            length = broker.store.client.xlen
            books = broker.store.keys.of("desk")
            until(lambda: broker.store.client.zcard(books.done) == 4 and length(books.log) == 7)
        finally:
            process.terminate()
        out, err = process.communicate()
    assert process.returncode == 0
    assert (
        out.decode()
        == "broker serve: the roles run, no HTTP (setting listen is off); Ctrl-C ends them\n"
    )
    assert "Traceback" not in err.decode()


def test_serve_names_a_bound_that_is_none(command):
    ran = command.process("serve", env={"BROKER_BOUNDS__LOG_HARD_MAX": "5"})
    assert ran.code == 1
    assert re.fullmatch(r"[^\n]*setting bounds: log_hard_max is at least log_max\n", ran.err)
