"""Keys that nobody can read: each is known by its name, found, and put out of the way with what it held."""

from __future__ import annotations

import inspect

import pytest

from broker.errors import Damaged
from broker.rules.audit import DRIFT, FORGET, SET_ASIDE, Finding
from broker.store.keys import Keys, aside
from broker.store.lease import FENCED_ROLES, LED_ROLES, fence
from broker.store.repair import Mender
from broker.store.scan import scan
from broker.store.typed import (
    ASIDE_MS_MAX,
    find_unreadable,
    find_wrong,
    fleet_keys,
    said_keys,
    set_aside,
)
from tests.store.readers import ORIGIN, report

KEYS = Keys("space")
BOOKS = KEYS.of("desk")
JOB = BOOKS.of_job("ollama//7")
#: Every key that there is, by the type that its own description tells.
WRITE = {
    "hash": lambda client, name: client.hset(name, "field", "value"),
    "zset": lambda client, name: client.zadd(name, {"member": 1}),
    "stream": lambda client, name: client.xadd(name, {"field": "value"}),
    "string": lambda client, name: client.set(name, "value"),
    "list": lambda client, name: client.rpush(name, "value"),
}


def described(made, *args):
    """Each key that an object makes, and what its description says of its type."""
    for name, member in inspect.getmembers(type(made)):
        said = (inspect.getdoc(member) or "").split(" ")[0].strip(":,").lower()
        if said in WRITE and not name.startswith("_"):
            value = getattr(made, name)
            yield value(*args) if callable(value) else value, said


EVERY_KEY = dict(
    [
        *described(KEYS, "n1"),
        *described(BOOKS, "mail"),
        *described(JOB),
    ]  # a node, a worker, a role; a group
)


@pytest.fixture
def desk(desk_on_each):
    return desk_on_each


def test_the_descriptions_tell_of_every_key():
    fleet, of_the_fleet, books, of_a_group, of_a_job, trust = 7, 4, 10, 2, 5, 1
    assert len(EVERY_KEY) == fleet + of_the_fleet + books + of_a_group + of_a_job + trust


@pytest.mark.parametrize("name, type", EVERY_KEY.items())
def test_a_key_is_known_by_its_name(name, type):
    assert KEYS.read(name).type == type
    assert KEYS.read(aside(name)) is None


@pytest.mark.parametrize(
    "name",
    [
        "other:{desk}:log", "space", "space:", "space:{desk}", "space:{desk}:", "space:{desk}:logs", "space:job:a//1",
        "space:{desk}:job", "space:{desk}:job:", "space:{desk}:leader:janitor", "spaces:origins", "rq:queue:space:n:e",
    ],
)  # fmt: skip
def test_a_foreign_name_is_none_of_ours(name):
    assert KEYS.read(name) is None


def test_a_key_says_whose_it_is():
    space = Keys("a:b")
    assert space.read("a:b:{desk}:job:ollama//7:x") == ("desk", "job", "ollama//7:x", "hash")
    assert space.read("a:b:{desk}:seen:old") == ("desk", "seen:old", "", "hash")
    assert space.read("a:b:term:janitor") == ("", "term", "janitor", "string")
    assert space.read("a:b:origins") == ("", "origins", "", "hash")


@pytest.mark.parametrize("type", sorted(set(EVERY_KEY.values())))
@pytest.mark.parametrize("wrong", sorted(WRITE))
def test_a_key_of_another_type_is_found_and_put_aside_with_what_it_held(desk, type, wrong):
    client = desk.store.client
    books = desk.keys
    name = {
        "hash": books.meta,
        "zset": books.ids,
        "stream": books.log,
        "string": desk.store.keys.term("janitor"),
        "list": books.of_job("ollama//7").refused,
    }[type]
    WRITE[wrong](client, name)
    found = find_wrong(desk.store, [name, books.live])
    if wrong == type:
        assert found == []
        assert not set_aside(desk.store, name)
        assert client.exists(name)
        return
    [finding] = found
    assert (finding.kind, finding.what, finding.key) == (DRIFT, SET_ASIDE, name)
    assert finding.text == f"{name} is a {wrong}, not a {type}"
    assert set_aside(desk.store, name)
    assert not client.exists(name)
    assert client.type(aside(name)) == wrong.encode()
    assert 0 < client.pttl(aside(name)) <= ASIDE_MS_MAX
    WRITE[type](client, name)  # there is room for a new one
    assert find_wrong(desk.store, [name]) == []


def test_of_a_key_that_is_damaged_again_the_newest_is_kept(desk):
    name = desk.keys.meta
    for value in ("one", "two"):
        desk.store.client.set(name, value)
        assert set_aside(desk.store, name)
    assert desk.store.client.get(aside(name)) == b"two"


def test_where_nothing_is_nothing_is_wrong(desk):
    every = [*fleet_keys(desk.store), *desk.keys.fixed(["mail"])]
    assert find_wrong(desk.store, every) == []
    assert not any(set_aside(desk.store, name) for name in every)


def test_a_foreign_key_is_left_alone_whatever_it_is(desk):
    desk.store.client.set("foreign", "value")
    assert find_wrong(desk.store, ["foreign"]) == []
    assert not set_aside(desk.store, "foreign")
    assert not set_aside(desk.store, "foreign", anyway=True)
    assert desk.store.client.get("foreign") == b"value"


def test_the_keys_that_everybody_stands_on_are_all_there(store):
    fixed = {*fleet_keys(store), *store.keys.of(ORIGIN).fixed(["mail"])}
    books = store.keys.of(ORIGIN)
    assert fixed > {*books.books, books.sub("mail"), books.parked("mail"), store.keys.trust(ORIGIN)}
    assert fixed > {store.keys.origins, store.keys.nodes, store.keys.workers, store.keys.nodeflags}
    assert fixed > {store.keys.groups, store.keys.audit, store.keys.repairs}
    assert fixed > {
        name(role) for role in LED_ROLES for name in (store.keys.leader, store.keys.term)
    }


def test_what_nodes_and_workers_say_is_found_by_their_beats(store):
    store.client.zadd(store.keys.nodes, {"n1": 5})
    store.client.zadd(store.keys.workers, {"w1": 5})
    assert said_keys(store) == [store.keys.node("n1"), store.keys.worker("w1")]


def test_a_full_redis_lets_a_key_be_put_aside(store):
    name = store.keys.of(ORIGIN).log
    store.client.set(name, "of another type")
    store.client.config_set("maxmemory", 1)
    try:
        assert set_aside(store, name)
    finally:
        store.client.config_set("maxmemory", 0)
    assert store.client.get(aside(name)) == b"of another type"


# --- an origin's meta -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["floor", "rev", "horizon", "turned_at", "stale_after", "term:janitor"]
)
@pytest.mark.parametrize("value", ["", "x", "-1", "1e3", b"\xff", "1-1-1", "1" * 16])
def test_a_meta_with_a_value_that_is_none_is_found_and_put_aside_whole(desk, field, value):
    desk.report("7")
    desk.store.client.hset(desk.keys.meta, field, value)
    [finding] = find_unreadable(desk.store, ["nowhere", ORIGIN])
    assert (finding.kind, finding.what, finding.key, finding.damaged) == (
        DRIFT,
        SET_ASIDE,
        desk.keys.meta,
        True,
    )
    assert field in finding.text
    assert set_aside(desk.store, finding.key, anyway=True)
    assert find_unreadable(desk.store, [ORIGIN]) == []


def test_a_meta_as_the_scripts_leave_it_is_readable(desk):
    desk.report("7", resync=True, stale_after=9)
    desk.report("8", "completed")
    desk.remove("8")
    values = {
        "term:janitor": 5,
        "turned_at": 7,
        "horizon": 3,
        "floor": "5-18446744073709551615",
        "epoch": "!",
        "": "?",
    }
    desk.store.client.hset(desk.keys.meta, mapping=values)
    assert find_unreadable(desk.store, [ORIGIN]) == []


def test_a_meta_of_another_type_is_none_that_is_looked_into(desk):
    desk.store.client.set(desk.keys.meta, "of another type")
    assert find_unreadable(desk.store, [ORIGIN]) == []


@pytest.mark.parametrize("field", ["horizon", "turned_at"])
def test_and_until_then_it_stops_the_origin(desk, field):
    desk.store.client.hset(desk.keys.meta, field, "x")
    with pytest.raises(Damaged, match="not a number"):
        desk.report("7")


# --- what cannot be told anew -----------------------------------------------------------------------------------------


def mend(desk, name):
    [finding] = find_wrong(desk.store, [name]) or find_unreadable(desk.store, [ORIGIN])
    assert Mender(desk.store).mend(finding, 1)


@pytest.mark.parametrize("lost", ["gone", "meta"])
def test_what_was_removed_does_not_come_back_though_its_tombstone_was_lost(desk, lost):
    desk.report("7", created_at=1_000)
    desk.remove("7")
    desk.store.client.delete(desk.keys.gone)  # or it was evicted long ago
    desk.store.client.hset(desk.keys.meta, "horizon", 1_000)
    desk.store.client.delete(getattr(desk.keys, lost))
    desk.store.client.set(getattr(desk.keys, lost), "of another type")

    mend(desk, getattr(desk.keys, lost))
    late, new = (
        report("7", created_at=1_000, seq=9),
        report("7", created_at=desk.store.clock.now() + 500),
    )
    assert [answer.rule for answer in desk.view.apply([late, new])] == [
        "tombstoned",
        "first_sighting",
    ]


def test_where_both_are_lost_tombstones_wait_for_meta(desk):
    for name in (desk.keys.gone, desk.keys.meta):
        desk.store.client.set(name, "of another type")
    with pytest.raises(Damaged):
        mend(desk, desk.keys.gone)
    assert desk.store.client.type(desk.keys.gone) == b"string"
    mend(desk, desk.keys.meta)
    mend(desk, desk.keys.gone)


def test_the_horizon_never_falls(desk):
    ahead = desk.store.clock.now() + 60_000
    desk.store.client.hset(desk.keys.meta, "horizon", ahead)
    desk.store.client.set(desk.keys.gone, "of another type")
    mend(desk, desk.keys.gone)
    assert desk.store.client.hget(desk.keys.meta, "horizon") == str(ahead).encode()


@pytest.mark.parametrize("damage", ["type", "value"])
def test_a_meta_begun_anew_knows_the_newest_term_of_each_role(desk, damage):
    """One that was frozen as the leader must not find the fence gone when it wakes."""
    client, keys = desk.store.client, desk.store.keys
    desk.report("7")
    for number, role in enumerate(FENCED_ROLES):
        client.set(keys.term(role), 100 + number)
    client.set(keys.term("sweeper"), "none")
    if damage == "type":
        client.delete(desk.keys.meta)
        client.set(desk.keys.meta, "of another type")
    else:
        client.hset(desk.keys.meta, "term:janitor", "x")
    mend(desk, desk.keys.meta)
    terms = client.hmget(desk.keys.meta, [f"term:{role}" for role in FENCED_ROLES])
    assert terms == [b"100", b"101", b"102", None]


def test_a_fence_never_falls(desk):
    desk.store.client.set(desk.store.keys.term("janitor"), 5)
    desk.store.client.hset(desk.keys.meta, "term:janitor", 9)
    fence(desk.store, ORIGIN)
    assert desk.store.client.hget(desk.keys.meta, "term:janitor") == b"9"


@pytest.mark.parametrize(
    "halves, is_half", [("", False), ("beats", True), ("tells", True), ("beats tells", False)]
)
def test_of_a_worker_only_a_half_is_forgotten(desk, halves, is_half):
    """One that was found to be half may be whole again, or gone, when it is to be forgotten."""
    client, keys = desk.store.client, desk.store.keys
    if "beats" in halves:
        client.zadd(keys.workers, {"w1": 5})
    if "tells" in halves:
        client.hset(keys.worker("w1"), "node", "n1")
    finding = Finding(kind=DRIFT, origin="", job="", text="", what=FORGET, key=keys.worker("w1"))
    assert Mender(desk.store).mend(finding, 1) == is_half
    assert client.exists(keys.workers, keys.worker("w1")) == (2 if halves == "beats tells" else 0)


def test_a_listing_that_is_under_way_when_its_list_is_set_aside_gives_no_part_for_the_whole(desk):
    desk.report_many(range(1_200))
    pages = scan(desk.store, ORIGIN)
    next(pages)
    desk.store.client.delete(desk.keys.ids)
    desk.store.client.set(desk.keys.ids, "of another type")
    mend(desk, desk.keys.ids)
    with pytest.raises(Damaged, match="being mended"):
        list(pages)
    desk.store.client.hdel(desk.keys.meta, "mending")
    assert list(scan(desk.store, ORIGIN)) == [{}]
