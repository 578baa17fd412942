"""A group on a Redis that does not take every call: readers go on where they can; what is refused leaves no mark."""

from __future__ import annotations

import pytest
import redis

from broker.errors import BrokerError, Damaged, Unavailable
from broker.store.group import Seen
from broker.store.parked import ask_replay, parked
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.ports import free_port
from tests.store.cutting_proxy import CuttingProxy
from tests.store.members import GROUP, Owner, everything, group
from tests.store.readers import ORIGIN, Desk, patient, until

FORGETFUL = {"appendonly": "no", "save": ""}
CALLS = (
    "fetch",
    "ack",
    "fail",
    "park",
    "skip",
    "to_replay",
    "done",
    "again",
    "claim",
    "release",
    "ask",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of our own: these tests spoil it."""
    with PrivateRedis(tmp_path_factory.mktemp("spoiled"), options=FORGETFUL) as server:
        yield server


@pytest.fixture
def desk(server, namespace):
    store = Store.from_url(patient(server.url), namespace)
    yield Desk(store)
    store.client.config_set("maxmemory", 0)
    store.close()


def every_call(owner, rev):
    """All that a member does to an origin and to the entry `rev`, by name."""
    calls = owner.everything(rev) | {
        "claim": owner.renew,
        "release": owner.release,
        "ask": lambda: group(owner.store, "another").ask(ORIGIN),
    }
    assert set(calls) == set(CALLS)
    return calls


# --- full ----------------------------------------------------------------------------------------------


def test_a_full_redis_still_lets_a_reader_go_on(desk):
    told = desk.report_many("abcdef")
    owner = Owner(desk.store)
    owner.fetch(2)
    desk.store.client.config_set("maxmemory", 1)
    with pytest.raises(Unavailable):
        desk.report("g")
    owner.ack(told[0])
    assert (owner.fail(), owner.fetch()) == (1, told[1:])
    assert owner.renew().term == owner.term
    assert owner.handle_all() == told[1:]
    assert (owner.seen().acked, owner.pending()) == (told[-1], [])
    assert owner.release()
    assert Owner(desk.store, "b").fetch() == []


def test_on_a_full_redis_a_new_group_may_begin_and_a_lost_one_be_made_anew(desk):
    told = desk.report_many("abc")
    desk.store.client.config_set("maxmemory", 1)
    owner = Owner(desk.store)
    assert owner.fetch() == told
    owner.ack(told[0])
    desk.store.client.xgroup_destroy(desk.keys.log, GROUP)
    assert owner.fetch() == told[1:]
    desk.store.client.delete(desk.keys.log)
    owner.skip()
    assert owner.seen().gaps == 1


def test_a_full_redis_refuses_to_park_and_leaves_the_entry_where_it_is(desk):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch()
    owner.fail()
    before = everything(desk.store)
    desk.store.client.config_set("maxmemory", 1)
    with pytest.raises(Unavailable):
        owner.park(told[0])
    assert everything(desk.store) == before
    desk.store.client.config_set("maxmemory", 0)
    owner.park(told[0])
    assert owner.fetch() == told[1:]


def test_on_a_full_redis_what_is_parked_can_be_handled_again(desk):
    told = desk.report_many("abcd")
    owner = Owner(desk.store)
    for rev in owner.fetch():
        owner.park(rev)
    ids = [one.id for one in parked(desk.store, ORIGIN, GROUP)]
    ask_replay(desk.store, ORIGIN, GROUP)
    desk.store.client.config_set("maxmemory", 1)
    desk.store.client.xdel(desk.keys.parked(GROUP), ids[0])
    assert owner.to_replay().id == ids[1]
    owner.done(ids[1])
    assert owner.to_replay().id == ids[2]
    owner.again(ids[2])
    assert owner.to_replay().id == ids[3]
    assert [one.rev for one in parked(desk.store, ORIGIN, GROUP)] == [told[3], told[2]]


def test_a_look_at_a_full_redis_sees_and_leaves_no_stamp(desk):
    owner = Owner(desk.store)
    desk.store.client.config_set("maxmemory", 1)
    assert owner.group.look([ORIGIN])[ORIGIN].owner == "a"
    assert not desk.store.client.exists(desk.store.keys.groups)
    desk.store.client.config_set("maxmemory", 0)
    owner.group.look([ORIGIN])
    assert desk.store.client.hexists(desk.store.keys.groups, GROUP)


# --- read-only -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replicated(tmp_path_factory):
    """A primary, and a read-only replica of it."""
    at_once = FORGETFUL | {"repl-diskless-sync-delay": "0"}
    folder = tmp_path_factory.mktemp
    with (
        PrivateRedis(folder("primary"), port=free_port(), options=at_once) as first,
        PrivateRedis(folder("replica"), options=FORGETFUL) as second,
    ):
        yield first, second


def test_a_read_only_replica_refuses_every_call_and_keeps_no_mark(replicated, namespace):
    """Its primary fails then, and readers go on where they stood."""
    primary, replica = replicated
    there, here = (Store.from_url(patient(one.url), namespace) for one in (primary, replica))
    told = Desk(there).report_many("abc")
    owner = Owner(there)
    owner.fetch()
    owner.park(told[0])
    here.client.replicaof("127.0.0.1", primary.port)
    until(lambda: here.client.info("replication")["master_link_status"] == "up")
    until(lambda: here.client.hget(here.keys.of(ORIGIN).sub(GROUP), "acked") == told[0].encode())
    lagging = Owner(here, term=owner.term)
    before = everything(here)
    for name, call in every_call(lagging, told[1]).items():
        if name in ("skip", "to_replay", "again"):  # nothing is lost, and nothing to replay
            call()
            continue
        with pytest.raises(Unavailable, match=r"READONLY|read only"):
            call()
    with pytest.raises(Unavailable):
        lagging.group.look([ORIGIN])
    assert everything(here) == before
    here.client.replicaof("NO", "ONE")
    assert lagging.fetch() == told[1:]
    lagging.ack(told[1])
    assert lagging.pending() == told[2:]
    there.close()
    here.close()


# --- spoiled -------------------------------------------------------------------------------------------


#: Which keys a call cannot do without.
NEEDED = {
    "fetch": {"log", "meta", "sub"},
    "ack": {"log", "sub"},
    "fail": {"log", "sub"},
    "park": {"log", "sub", "parked"},
    "skip": {"log", "meta", "sub"},
    "to_replay": {"sub"},
    "done": {"sub", "parked"},
    "again": {"sub", "parked"},
    "claim": {"log", "sub"},
    "release": {"log", "sub"},
    "ask": {"log", "sub"},
}


def error_of(call):
    try:
        call()
    except BrokerError as met:
        return type(met)
    return None


@pytest.mark.parametrize("spoiled", ["log", "meta", "sub", "parked"])
@pytest.mark.parametrize("name", CALLS)
def test_a_key_of_the_wrong_type_is_told_before_anything_changed(desk, name, spoiled):
    told = desk.report_many("abc")
    owner = Owner(desk.store)
    owner.fetch(2)
    owner.park(told[0])
    keys = desk.keys
    key = {"log": keys.log, "meta": keys.meta, "sub": keys.sub(GROUP), "parked": keys.parked(GROUP)}
    desk.store.client.delete(key[spoiled])
    desk.store.client.set(key[spoiled], "spoiled")
    before = everything(desk.store)
    is_needed = spoiled in NEEDED[name]
    assert error_of(every_call(owner, told[1])[name]) == (Damaged if is_needed else None)
    if is_needed:
        assert everything(desk.store) == before
    assert desk.store.client.get(key[spoiled]) == b"spoiled"


def test_a_new_group_on_a_spoiled_log_leaves_nothing_behind(desk):
    for key in (desk.keys.log, desk.keys.meta):
        desk.store.client.set(key, "spoiled")
        with pytest.raises(Damaged):
            group(desk.store).claim(ORIGIN)
        desk.store.client.delete(key)
    assert not desk.store.client.exists(desk.keys.sub(GROUP))


def test_an_origin_that_cannot_be_read_is_seen_as_free_and_claiming_it_says_why(desk):
    owner = Owner(desk.store)
    desk.store.client.set(desk.store.keys.of("other").sub(GROUP), "spoiled")
    seen = owner.group.look(["other", ORIGIN])
    assert (seen["other"].owner, seen[ORIGIN].owner) == ("", "a")
    with pytest.raises(Damaged, match="WRONGTYPE"):
        owner.group.claim("other")


@pytest.mark.parametrize("field", Seen._fields)
@pytest.mark.parametrize("value", [b"\xff", b"9" * 5_000, b"inf", "²", "x"])
def test_what_is_written_wrongly_into_one_subscription_blinds_nobody(desk, field, value):
    owner = Owner(desk.store)
    desk.store.client.hset(desk.store.keys.of("other").sub(GROUP), field, value)
    seen = owner.group.look(["other", ORIGIN])
    assert seen[ORIGIN].owner == "a"
    assert seen["other"].until == 0


@pytest.mark.parametrize("value", [b"\xff", b"9" * 5_000, b"inf", "x"])
@pytest.mark.parametrize("field", ["term", "until", "tries", "gaps", "asked"])
def test_its_owner_reads_on(desk, field, value):
    told = desk.report_many("ab")
    owner = Owner(desk.store)
    owner.fetch()
    desk.store.client.hset(desk.keys.sub(GROUP), field, value)
    owner = Owner(desk.store)
    assert (owner.fetch(), owner.fail()) == (told, 1)
    assert owner.handle_all() == told


# --- nobody heard the answer -----------------------------------------------------------------------------


@pytest.fixture
def cut(server, namespace):
    """A desk behind a proxy, and a way to lose the next replies."""
    path = redis.connection.parse_url(server.url)["path"]
    with CuttingProxy(path) as proxy:
        store = Store.from_url(patient(f"redis://127.0.0.1:{proxy.port}"), namespace)
        yield proxy, Desk(store)
        store.close()


def test_an_answer_that_was_lost_is_asked_for_again_and_nothing_happens_twice(cut):
    proxy, desk = cut
    told = desk.report_many("abcdef")
    owner = Owner(desk.store)
    assert owner.fetch(3) == told[:3]
    proxy.cut(1)
    owner.ack(told[0])
    proxy.cut(1)
    assert owner.fetch() == told[1:]
    proxy.cut(1)
    assert owner.fail() == 1
    proxy.cut(1)
    owner.park(told[1])
    assert desk.store.client.xlen(desk.keys.parked(GROUP)) == 1
    desk.store.client.xdel(desk.keys.log, told[1])
    proxy.cut(1)
    owner.skip()
    assert owner.seen().gaps == 1
    proxy.cut(1)
    assert owner.renew().term == owner.term
    assert owner.handle_all() == told[2:]


def test_an_answer_that_was_lost_for_good_is_an_error_and_the_ack_stands(cut):
    proxy, desk = cut
    told = desk.report_many("ab")
    owner = Owner(desk.store)
    owner.fetch()
    proxy.cut(3)
    with pytest.raises(Unavailable):
        owner.ack(told[0])
    proxy.cut(0)
    owner.ack(told[0])
    assert owner.fetch() == told[1:]
