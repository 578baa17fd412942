"""What an auditor finds damaged is well again by its steps alone; all others go on: roles, watchers, subscribers."""

from __future__ import annotations

import threading
import time

import pytest

from broker.errors import Damaged, Gone
from broker.roles.loop import Loop
from broker.rules.event import Remove, RemovePair, Report
from broker.rules.key import Key
from broker.store.group import Group
from broker.store.keys import FLEET_TYPES, ORIGIN_TYPES, aside
from broker.store.lease import LED_ROLES
from broker.store.watch import Watcher
from tests.roles.audits import go_round, rounds_until_well, step_until, told
from tests.roles.fleet import ORIGIN, settle
from tests.store.readers import logged, until


def break_key(fleet, name):
    # The clock that stands still is behind Redis's own, which named the entries of the log that may be lost.
    fleet.clock.ahead_ms = max(fleet.clock.ahead_ms, 10_000)
    client = fleet.store.client
    is_list = fleet.store.keys.read(name).type == "list"
    client.delete(name)
    client.set(name, "x") if is_list else client.rpush(name, "x")


@pytest.fixture
def town(fleet):
    """Nodes with workers and running jobs, jobs that wait, reported ones, ended ones, a group of subscribers."""
    fleet.workers_of("n1", count=4)
    dispatcher = fleet.dispatcher()
    keys = fleet.submit_many(["one", "two", "three", "four"])
    settle(dispatcher)
    fleet.start(keys[0])
    fleet.start(keys[1])
    fleet.finish(keys[1], result="1")
    fleet.submit("later", due=fleet.clock.now() + 3_600_000)
    fleet.report_many(["live", "gone"])
    fleet.report("ended", "completed", completed_at=fleet.clock.now())
    fleet.say(Remove(key=Key(ORIGIN, "ollama", "", "gone")))
    fleet.the_dispatcher = dispatcher
    return fleet


def records(fleet):
    with Watcher(fleet.store, [ORIGIN]) as watcher:
        return watcher.snapshot().records


def lists(fleet):
    books = fleet.store.keys.of(ORIGIN)
    names = (books.ids, books.live, books.done, books.ready, books.delayed)
    return [fleet.store.client.zrange(name, 0, -1, withscores=True) for name in names]


def assert_all_work(fleet, auditor):
    """Each role does its work, and an auditor finds nothing: neither now nor after it."""
    roles = [fleet.the_dispatcher, fleet.janitor(), fleet.sweeper()]
    fleet.beat()
    for role in roles:
        role.step()
        settle(role)
    key = fleet.submit(f"new {fleet.submitted}")
    step_until(fleet.the_dispatcher, lambda: fleet.node_of(key))
    fleet.start(key)
    fleet.finish(key)
    fleet.report("new", "completed")
    for role in roles:
        settle(role)
    assert rounds_until_well(auditor) == []


# --- each fixed key, of a wrong type ----------------------------------------------------------------------------------

OF_FLEET = [*FLEET_TYPES, *[f"{what}:{role}" for role in LED_ROLES for what in ("leader", "term")],
            "node:n1", "worker:n1-echo-0"]  # fmt: skip
OF_ORIGIN = [*ORIGIN_TYPES, "sub:mail", "parked:mail"]
LISTS = ["ids", "live", "done", "ready", "delayed"]


@pytest.mark.parametrize("what", OF_FLEET)
def test_a_key_of_the_fleet_that_is_of_a_wrong_type_heals(town, what):
    before = records(town)
    auditor = town.auditor()
    go_round(auditor)
    name = f"{town.store.keys.namespace}:{what}"
    break_key(town, name)
    auditor._lead.doubt()
    rounds_until_well(auditor)
    town.beat()
    assert town.store.client.type(aside(name)) == b"list"
    assert town.store.client.type(name) in (b"none", town.store.keys.read(name).type.encode())
    assert ("drift", "set_aside", "") in told(auditor)
    assert logged(records(town)) == logged(before)
    assert town.view.origins() == [ORIGIN]
    assert_all_work(town, auditor)


@pytest.mark.parametrize("what", OF_ORIGIN)
def test_a_key_of_an_origin_that_is_of_a_wrong_type_heals(town, what):
    before, listed = records(town), lists(town)
    town.store.client.hset(town.store.keys.groups, "mail", town.clock.now())
    auditor = town.auditor()
    go_round(auditor)
    name = f"{town.store.keys.of(ORIGIN).prefix}:{what}"
    break_key(town, name)
    rounds_until_well(auditor)
    assert town.store.client.type(aside(name)) == b"list"
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed
    assert_all_work(town, auditor)


@pytest.mark.parametrize("id", ["one", "two", "later"])
@pytest.mark.parametrize("what", ["job", "spec", "result", "out", "refused"])
def test_a_key_of_a_job_that_is_of_a_wrong_type_heals(town, what, id):
    before, listed = records(town), lists(town)
    name = getattr(town.store.keys.of_job(Key(ORIGIN, "echo", "", id)), what)
    break_key(town, name)
    auditor = town.auditor()
    rounds_until_well(auditor)
    assert town.store.client.exists(aside(name))
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed
    assert_all_work(town, auditor)


def test_all_fixed_keys_at_once_heal(town):
    """The log is lost with the rest: what the records say is the truth then."""
    before = records(town)
    keys = town.store.keys
    broken = [f"{keys.namespace}:{what}" for what in OF_FLEET]
    broken += [f"{keys.of(ORIGIN).prefix}:{what}" for what in OF_ORIGIN]
    auditor = town.auditor()
    go_round(auditor)
    for name in broken:
        break_key(town, name)
    auditor._lead.doubt()
    rounds_until_well(auditor)
    assert town.view.origins() == [ORIGIN]
    assert logged(records(town)) == logged(before)
    town.beat()
    assert_all_work(town, auditor)
    town.report("gone", created_at=1_000)
    assert Key(ORIGIN, "ollama", "", "gone") not in records(town)
    assert all(0 < town.store.client.pttl(aside(name)) <= 86_400_000 for name in broken)


def test_each_job_key_at_once_heals(town):
    before, listed = records(town), lists(town)
    for key in before:
        for name in town.store.keys.of_job(key).all:
            break_key(town, name)
    auditor = town.auditor()
    rounds_until_well(auditor)
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed


# --- what was deleted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", OF_ORIGIN)
def test_a_deleted_key_of_an_origin_heals(town, what):
    before, listed = records(town), lists(town)
    town.store.client.delete(f"{town.store.keys.of(ORIGIN).prefix}:{what}")
    auditor = town.auditor()
    rounds_until_well(auditor)
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed
    assert_all_work(town, auditor)


@pytest.mark.parametrize("what", OF_FLEET)
def test_a_deleted_key_of_the_fleet_heals(town, what):
    before = records(town)
    auditor = town.auditor()
    go_round(auditor)
    town.store.client.delete(f"{town.store.keys.namespace}:{what}")
    auditor._lead.doubt()
    rounds_until_well(auditor)
    town.beat()
    assert town.view.origins() == [ORIGIN]
    assert logged(records(town)) == logged(before)
    assert_all_work(town, auditor)


def test_a_deleted_meta_knows_the_newest_terms_again(town):
    """A leader that was frozen must not find the fence gone when it wakes."""
    keys, meta = town.store.keys, town.store.keys.of(ORIGIN).meta
    auditor = town.auditor()
    go_round(auditor)
    terms = {role: town.store.client.get(keys.term(role)) for role in ("auditor", "dispatcher")}
    assert all(terms.values())
    town.store.client.delete(meta)
    go_round(auditor)
    known = town.store.client.hgetall(meta)
    assert {role: known.get(f"term:{role}".encode()) for role in terms} == terms


def test_all_lists_at_once_heal(town):
    before, listed = records(town), lists(town)
    books = town.store.keys.of(ORIGIN)
    town.store.client.delete(
        books.ids, books.live, books.done, books.ready, books.delayed, town.store.keys.origins
    )
    auditor = town.auditor()
    rounds_until_well(auditor)
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed


def test_all_records_at_once_heal(town):
    before, listed = records(town), lists(town)
    town.store.client.delete(*(town.store.keys.of_job(key).job for key in before))
    auditor = town.auditor()
    rounds_until_well(auditor)
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed


def test_all_records_and_lists_at_once_heal_from_the_log(town):
    before, listed = records(town), lists(town)
    books = town.store.keys.of(ORIGIN)
    town.store.client.delete(*(town.store.keys.of_job(key).job for key in before))
    town.store.client.delete(books.ids, books.live, books.done, books.ready, books.delayed)
    rounds_until_well(town.auditor())
    assert logged(records(town)) == logged(before)
    assert lists(town) == listed


def test_after_a_flush_there_is_nothing_to_mend(town):
    auditor = town.auditor()
    go_round(auditor)
    town.store.client.delete(*town.store.client.scan_iter(f"{town.store.keys.namespace}:*"))
    auditor._lead.doubt()
    assert rounds_until_well(auditor) == []
    assert records(town) == {}


# --- who reads meanwhile ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["DEL", "type"])
@pytest.mark.parametrize("what", ["log", "meta", "ids", "job", "all"])
def test_a_watcher_ends_with_the_true_list(town, what, damage):
    books = town.store.keys.of(ORIGIN)
    key = Key(ORIGIN, "ollama", "", "live")
    names = {"job": [town.store.keys.of_job(key).job], "all": books.books}.get(what) or [
        getattr(books, what)
    ]
    with Watcher(town.store) as early, Watcher(town.store) as late:
        early.snapshot()
        for name in names:
            break_key(town, name) if damage == "type" else town.store.client.delete(name)
        if damage == "DEL":
            late.snapshot()  # of what is there just now
        auditor = town.auditor()
        rounds_until_well(auditor)
        town.report("live", "completed", completed_at=5, created_at=town.view.get(key).created_at)
        town.report("more", created_at=town.clock.now() + 60_000)
        for watcher in (early, late):
            until(
                lambda watcher=watcher: (
                    watcher.changes(50) or dict(watcher.records) == records(town)
                )
            )
            assert logged(dict(watcher.records)) == logged(records(town))


def test_a_watcher_is_told_that_a_ghost_went(town):
    key = Key(ORIGIN, "ollama", "", "live")
    name = town.store.keys.of_job(key).job
    record = town.store.client.hgetall(name)
    town.say(RemovePair(origin=ORIGIN, id="live"))
    town.store.client.hset(name, mapping=record)
    town.store.client.zadd(town.store.keys.of(ORIGIN).ids, {key.member: 0})
    with Watcher(town.store) as watcher:
        assert key in watcher.snapshot().records
        rounds_until_well(town.auditor())
        [change] = watcher.changes(0)
    assert (change.key, change.record, change.rule, change.by) == (key, None, "removed", "auditor")


@pytest.mark.parametrize("damage", ["DEL", "type"])
@pytest.mark.parametrize("what", ["log", "meta", "sub:mail", "parked:mail", "ids", "groups"])
def test_a_subscription_goes_on(town, what, damage):
    group = Group(town.store, "mail", "me", lease_ms=600_000, parked_max=9)
    group.look([ORIGIN])
    claim = group.claim(ORIGIN)
    head = group.fetch(ORIGIN, claim.term).entries
    group.ack(ORIGIN, claim.term, head[-1][0].decode())
    of_fleet = what == "groups"
    name = town.store.keys.groups if of_fleet else f"{town.store.keys.of(ORIGIN).prefix}:{what}"
    break_key(town, name) if damage == "type" else town.store.client.delete(name)
    rounds_until_well(town.auditor())
    group.look([ORIGIN])
    later = town.view.apply(
        [
            Report(
                key=Key(ORIGIN, "e", "", "later"), created_at=town.clock.now() + 99, state="queued"
            )
        ]
    )
    term = group.claim(ORIGIN, claim.place).term
    try:
        entries = group.fetch(ORIGIN, term).entries
    except Gone:
        group.skip(ORIGIN, term)
        entries = group.fetch(ORIGIN, term).entries
    assert entries[-1][0].decode() == later[0].rev


# --- and nobody spins -------------------------------------------------------------------------------------------------

ERRORS_A_SECOND_MAX = 20


class Counted:
    """A role's steps in its loop, with what each of them raised counted."""

    def __init__(self, name, role, stop):
        self.errors = 0
        self._step = role.step
        self.loop = Loop(name, self.step, stop, pace_seconds=0.05)

    def step(self):
        try:
            return self._step()
        except Exception:
            self.errors += 1
            raise


@pytest.mark.parametrize(
    "what", ["origins", "workers", "{home}:log", "{home}:meta", "{home}:ids", "everything"]
)
def test_while_a_key_is_damaged_no_role_spins_and_afterwards_all_go_on(town, what):
    space = town.store.keys.namespace
    names = [f"{space}:{what}"]
    if what == "everything":
        names = [f"{space}:{name}" for name in OF_FLEET] + [
            f"{space}:{{home}}:{name}" for name in OF_ORIGIN
        ]
    stop = threading.Event()
    roles = {
        "dispatcher": town.the_dispatcher,
        "janitor": town.janitor(),
        "sweeper": town.sweeper(),
    }
    running = [Counted(name, role, stop) for name, role in roles.items()]
    for role in roles.values():
        settle(role)
    for name in names:
        break_key(town, name)
    threads = [threading.Thread(target=counted.loop.run) for counted in running]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    stop.wait(1.5)
    meanwhile = [counted.errors for counted in running]
    seconds = time.monotonic() - begun  # this thread may be late, and they go on
    auditor = town.auditor()
    try:
        rounds_until_well(auditor)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert max(meanwhile) <= ERRORS_A_SECOND_MAX * seconds
    town.beat()
    for role in roles.values():
        role._lead.doubt()
        step_until(role, lambda role=role: role._lead.term)
    assert_all_work(town, auditor)


# --- what readers see meanwhile ---------------------------------------------------------------------------------------


def told_meanwhile(watcher, auditor):
    """What a watcher is told after each single step of two rounds, and whether it met damage on the way."""
    changes, is_refused, rounds = [], False, []
    tell = auditor._audited.tell
    auditor._audited.tell = lambda seen: (tell(seen), rounds.append(seen))
    while len(rounds) < 2 or auditor.step():
        auditor.step()
        watcher._look_at = 0.0
        try:
            changes += watcher.changes(0)
        except Damaged:
            is_refused = True
    return changes, is_refused


@pytest.mark.parametrize("broken", [["meta", *LISTS], ["meta", "ids"], [*LISTS, "floor of meta"]])
def test_while_meta_and_the_lists_are_made_anew_no_reader_takes_the_origin_for_empty(town, broken):
    before = records(town)
    auditor = town.auditor()
    go_round(auditor)
    books = town.store.keys.of(ORIGIN)
    with Watcher(town.store, [ORIGIN]) as watcher:
        watcher.snapshot()
        for what in broken:
            if what == "floor of meta":
                town.store.client.hset(books.meta, "floor", "x")
            else:
                break_key(town, f"{books.prefix}:{what}")
        changes, is_refused = told_meanwhile(watcher, auditor)
        assert changes == []
        assert is_refused
        assert watcher.changes(0) == []  # and now it is whole
        assert logged(watcher.records) == logged(before)
    assert not town.store.client.hexists(books.meta, "mending")
    assert logged(records(town)) == logged(before)


def test_a_list_that_is_made_anew_is_refused_until_it_is_whole_also_where_the_auditor_died(town):
    before = records(town)
    first = town.auditor()
    go_round(first)
    books = town.store.keys.of(ORIGIN)
    break_key(town, books.ids)
    step_until(first, lambda: town.store.client.exists(aside(books.ids)))
    with pytest.raises(Damaged, match="being mended"):
        records(town)
    first.close()
    heir = town.auditor()
    rounds_until_well(heir)
    assert logged(records(town)) == logged(before)
