"""The outbox and the stream: each change once, in order, whatever Redis or the folder lost."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from redis.client import Pipeline

from broker.errors import Damaged, Invalid, Unavailable, Unwritable
from broker.store.announce import Announcer, announcements
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.nodes import NOW
from tests.store.cutting_proxy import CuttingProxy
from tests.store.readers import patient
from tests.store.trusting import ANN, BOB, failing, is_killed, opened, steps_of

NODE = "me"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of our own: these tests spoil it."""
    options = {"appendonly": "no", "save": ""}
    with PrivateRedis(tmp_path_factory.mktemp("spoiled"), options=options) as server:
        yield server


@pytest.fixture
def trust(tmp_path):
    clock = itertools.count(NOW)
    return opened(tmp_path / "trust", clock=lambda: next(clock))


@pytest.fixture
def announcer(store, trust):
    return Announcer(store, NODE, trust)


def nowhere() -> Store:
    return Store.from_url("redis://127.0.0.1:1")


_names = itertools.count()


def rename(trust, count: int) -> None:
    """So many changes."""
    for _ in range(count):
        assert trust.rename("ann", f"Ann {next(_names)}")


def test_each_change_is_an_entry_under_its_number(store, trust, announcer):
    trust.pin(ANN.card())
    trust.forget("ann")
    waiting = trust.pending()
    assert announcer.drain() == 2
    assert store.client.xrange(store.keys.trust(NODE)) == [
        (
            f"{told.gen}-0".encode(),
            {
                b"gen": str(told.gen).encode(),
                b"change": told.change.encode(),
                b"node": b"ann",
                b"at": str(told.at).encode(),
                b"persisted": b"1" if told.persisted else b"0",
            },
        )
        for told in waiting
    ]
    assert announcements(store, NODE) == list(waiting)
    assert [told.persisted for told in waiting] == [True, False]
    assert trust.pending() == ()
    assert opened(trust.folder).pending() == ()


def test_what_was_told_is_not_told_again(store, trust, announcer):
    trust.pin(ANN.card())
    assert announcer.drain() == 1
    assert announcer.drain() == 0
    assert Announcer(store, NODE, opened(trust.folder)).drain() == 0
    assert len(announcements(store, NODE)) == 1


def test_the_newest_are_listed_oldest_first_and_each_node_has_its_own(store, trust, announcer):
    trust.pin(ANN.card())
    rename(trust, 4)
    announcer.drain()
    assert [told.change for told in announcements(store, NODE, 3)] == ["renamed"] * 3
    gens = [told.gen for told in announcements(store, NODE, 3)]
    assert gens == sorted(gens)
    assert announcements(store, NODE)[-3:] == announcements(store, NODE, 3)
    assert announcements(store, "ann") == []
    with pytest.raises(Invalid):
        announcements(store, "no{node}")
    with pytest.raises(Invalid):
        Announcer(store, "no{node}", trust)


def test_an_entry_of_a_foreign_hand_is_passed_over(store, trust, announcer, caplog):
    store.client.xadd(store.keys.trust(NODE), {"a": "\n"}, id="1-0")
    trust.pin(ANN.card())
    announcer.drain()
    assert [told.change for told in announcements(store, NODE)] == ["pinned"]
    assert f"entry 1-0 of {store.keys.trust(NODE)} is no announcement" in caplog.messages


# --- Redis away -----------------------------------------------------------------------------------


def test_while_redis_is_away_changes_stand_and_wait_in_order(store, trust, announcer):
    away = Announcer(nowhere(), NODE, trust)
    trust.pin(ANN.card())
    for _ in range(3):
        with pytest.raises(Unavailable):
            away.drain()
        rename(trust, 2)
    waiting = trust.pending()
    assert [told.change for told in waiting] == ["pinned"] + ["renamed"] * 6
    assert opened(trust.folder).pending() == waiting
    assert announcer.drain() == 7
    assert announcements(store, NODE) == list(waiting)


def test_more_than_one_call_carries_is_told_in_several(store, trust, announcer, monkeypatch):
    monkeypatch.setattr("broker.store.announce.BATCH_MAX", 3)
    execute, sizes = Pipeline.execute, []

    def counted(pipe, *args):
        sizes.append(len(pipe))
        return execute(pipe, *args)

    monkeypatch.setattr(Pipeline, "execute", counted)
    trust.pin(ANN.card())
    rename(trust, 7)
    waiting = trust.pending()
    assert announcer.drain() == 8
    assert announcements(store, NODE) == list(waiting)
    assert sizes == [3, 3, 2]


def test_what_waits_is_bounded_and_the_newest_stay(store, tmp_path, caplog):
    trust = opened(tmp_path, waiting_max=5)
    trust.pin(ANN.card())
    rename(trust, 3)
    assert len(trust.pending()) == 4
    assert caplog.messages == []
    rename(trust, 5)
    waiting = trust.pending()
    assert [told.gen for told in waiting] == [5, 6, 7, 8, 9]
    assert opened(tmp_path).pending() == waiting
    assert "are dropped" in caplog.text
    Announcer(store, NODE, trust, announcements_max=5).drain()
    assert [told.gen for told in announcements(store, NODE)] == [5, 6, 7, 8, 9]


def test_the_stream_is_bounded(store, trust):
    announcer = Announcer(store, NODE, trust, announcements_max=3)
    trust.pin(ANN.card())
    rename(trust, 9)
    waiting = trust.pending()
    announcer.drain()
    assert announcements(store, NODE) == list(waiting[-3:])
    rename(trust, 1)
    announcer.drain()
    assert store.client.xlen(store.keys.trust(NODE)) == 3


def test_an_answer_that_was_lost_makes_no_second_entry(server, namespace, trust, monkeypatch):
    direct = Store.from_url(patient(server.url), namespace)
    with CuttingProxy(server.url.removeprefix("unix://").partition("?")[0]) as proxy:
        cut = Store.from_url(patient(f"redis://127.0.0.1:{proxy.port}"), namespace)
        trust.pin(ANN.card())
        rename(trust, 3)
        waiting = trust.pending()
        execute, unheard = Pipeline.execute, itertools.count()

        def execute_unheard(pipe, *args):
            if next(unheard) == 0:
                proxy.cut(1)
            return execute(pipe, *args)

        monkeypatch.setattr(Pipeline, "execute", execute_unheard)
        assert Announcer(cut, NODE, trust).drain() == 4
        assert next(unheard) == 2
        assert announcements(direct, NODE) == list(waiting)
        assert trust.pending() == ()
        cut.close()
    direct.close()


def test_what_another_writes_between_the_look_and_the_telling_is_seen(
    store, trust, announcer, monkeypatch
):
    trust.pin(ANN.card())
    rename(trust, 2)
    foreign = {"gen": 2, "change": "pinned", "node": "elder", "at": NOW, "persisted": 1}
    execute, meddling = Pipeline.execute, itertools.count()

    def meddle(pipe, *args):
        if next(meddling) == 0:
            store.client.xadd(store.keys.trust(NODE), foreign, id="2-0")
        return execute(pipe, *args)

    monkeypatch.setattr(Pipeline, "execute", meddle)
    assert announcer.drain() == 3
    told = announcements(store, NODE)
    assert [one.change for one in told] == ["pinned", "pinned", "renamed", "renamed"]
    assert [one.node for one in told] == ["elder", "ann", "ann", "ann"]


def test_a_full_redis_loses_nothing(server, namespace, trust):
    store = Store.from_url(patient(server.url), namespace)
    trust.pin(ANN.card())
    waiting = trust.pending()
    store.client.config_set("maxmemory", 1)
    with pytest.raises(Unavailable, match="maxmemory"):
        Announcer(store, NODE, trust).drain()
    assert trust.pending() == waiting
    store.client.config_set("maxmemory", 0)
    assert Announcer(store, NODE, trust).drain() == 1
    assert announcements(store, NODE) == list(waiting)
    store.close()


def test_where_redis_refuses_one_of_several_none_is_told(store, trust, announcer, monkeypatch):
    trust.pin(ANN.card())
    rename(trust, 2)
    waiting = trust.pending()
    tell, places = Pipeline.xadd, itertools.count()

    def spoil_second(pipe, key, fields, **more):
        if next(places) == 1:
            return pipe.execute_command("XADD", key)
        return tell(pipe, key, fields, **more)

    with monkeypatch.context() as spoiled:
        spoiled.setattr(Pipeline, "xadd", spoil_second)
        with pytest.raises(Damaged):
            announcer.drain()
    assert announcements(store, NODE) == []
    assert announcer.drain() == 3
    assert announcements(store, NODE) == list(waiting)


def test_a_key_of_another_type_is_damage_and_the_change_waits(store, trust, announcer):
    store.client.set(store.keys.trust(NODE), "x")
    trust.pin(ANN.card())
    with pytest.raises(Damaged):
        announcer.drain()
    assert len(trust.pending()) == 1


@pytest.mark.parametrize("id", [2**52, 2**53 - 2, 2**53 - 1, 2**53, 2**64 - 1])
def test_no_id_in_the_stream_uses_up_the_numbers_of_the_store(store, trust, announcer, id):
    """Whoever can write to Redis keeps changes from being told, never from being made."""
    store.client.xadd(store.keys.trust(NODE), {"a": "b"}, id=f"{id}-0")
    trust.pin(ANN.card())
    with pytest.raises(Damaged, match=f"none of ours: {id}-0"):
        announcer.drain()
    rename(trust, 1)
    assert [told.gen for told in trust.pending()] == [1, 2]
    store.client.delete(store.keys.trust(NODE))
    announcer.drain()
    assert [told.gen for told in announcements(store, NODE)] == [1, 2]


def test_the_highest_id_that_is_believed_leaves_numbers_enough(store, trust, announcer):
    key = store.keys.trust(NODE)
    store.client.xadd(key, {"a": "b"}, id=f"{2**52 - 1}-0")
    trust.pin(ANN.card())
    announcer.drain()
    rename(trust, 1)
    announcer.drain()
    assert [told.gen for told in announcements(store, NODE)] == [2**52, 2**52 + 1]
    store.client.xadd(key, {"a": "b"}, id=f"{2**53 - 2}-0")
    rename(trust, 1)
    with pytest.raises(Damaged):
        announcer.drain()
    assert [told.gen for told in trust.pending()] == [2**52 + 2]


def test_what_was_told_and_trimmed_before_it_was_struck_out_is_not_told_again(store, trust):
    trust.pin(ANN.card())
    rename(trust, 9)
    small = Announcer(store, NODE, trust, announcements_max=3)
    with failing(lambda _, step: step.startswith("write")), pytest.raises(Unwritable):
        small.drain()
    told = announcements(store, NODE)
    assert len(told) == 3
    assert len(opened(trust.folder).pending()) == 10
    assert Announcer(store, NODE, opened(trust.folder)).drain() == 10
    assert announcements(store, NODE) == told


# --- Redis or the folder lost something --------------------------------------------------------------


def test_a_stream_that_was_lost_goes_on_with_what_comes(store, trust, announcer):
    trust.pin(ANN.card())
    announcer.drain()
    store.client.delete(store.keys.trust(NODE))
    assert announcer.drain() == 0
    rename(trust, 2)
    waiting = trust.pending()
    assert announcer.drain() == 2
    assert announcements(store, NODE) == list(waiting)


def lose_outbox(trust) -> None:
    (trust.folder / "outbox.json").unlink()


def test_numbers_that_were_given_before_the_outbox_was_lost_are_given_anew_above_the_stream(
    store, trust, announcer
):
    trust.pin(ANN.card())
    rename(trust, 5)
    trust.remove("ann")  # with it the last number on disk
    announcer.drain()
    before = announcements(store, NODE)
    lose_outbox(trust)
    fresh = opened(trust.folder)
    fresh.pin(BOB.card())
    fresh.rename("bob", "Bob")
    assert fresh.pending()[0].gen <= before[-1].gen
    assert Announcer(store, NODE, fresh).drain() == 2
    told = announcements(store, NODE)
    assert told[:-2] == before
    assert [(one.change, one.node) for one in told[-2:]] == [("pinned", "bob"), ("renamed", "bob")]
    assert fresh.pending() == ()
    # From now on numbers and stream agree.
    fresh.pin(ANN.card())
    assert fresh.pending()[0].gen == told[-1].gen + 1
    assert Announcer(store, NODE, opened(trust.folder)).drain() == 1
    assert len(announcements(store, NODE)) == len(told) + 1


@pytest.mark.parametrize("how", ["trimmed", "emptied"])
def test_a_number_below_what_the_stream_ever_held_is_given_anew(store, trust, announcer, how):
    trust.pin(ANN.card())
    rename(trust, 5)
    trust.remove("ann")
    announcer.drain()
    key = store.keys.trust(NODE)
    store.client.xtrim(key, maxlen=1 if how == "trimmed" else 0, approximate=False)
    lose_outbox(trust)
    fresh = opened(trust.folder)
    fresh.pin(BOB.card())
    assert fresh.pending()[0].gen < 7
    assert Announcer(store, NODE, fresh).drain() == 1
    assert announcements(store, NODE)[-1].gen == 8
    assert announcements(store, NODE)[-1].node == "bob"


def with_taken_numbers(store, folder, node: str, told: int = 0):
    """A store of which three changes wait: the first `told` were told, the stream gave the numbers of the rest away."""
    trust = opened(folder)
    trust.pin(ANN.card())
    trust.rename("ann", "Ann")
    trust.pin(BOB.card())
    for place, waiting in enumerate(trust.pending()):
        said = waiting if place < told else replace(waiting, node="elder", at=waiting.at - 1)
        fields = said.to_json() | {"persisted": 1}
        store.client.xadd(store.keys.trust(node), fields, id=f"{said.gen}-0")
    return trust, announcements(store, node)


@pytest.mark.parametrize("told", [1, 2, 3])
def test_what_was_told_keeps_its_number_when_the_rest_gets_new_ones(store, tmp_path, told):
    trust, before = with_taken_numbers(store, tmp_path, NODE, told)
    waiting = trust.pending()
    assert before[:told] == list(waiting[:told])
    assert Announcer(store, NODE, trust).drain() == 3
    after = announcements(store, NODE)
    assert after[:3] == before
    assert [(one.change, one.node) for one in after[3:]] == [
        (one.change, one.node) for one in waiting[told:]
    ]


def test_of_two_processes_that_see_a_number_taken_one_gives_new_ones(tmp_path):
    trust, other = opened(tmp_path), opened(tmp_path)
    trust.pin(ANN.card())
    trust.rename("ann", "Ann")
    seen_by_both = trust.pending()[0]
    trust.renumber(seen_by_both, 10)
    assert [told.gen for told in other.pending()] == [11, 12]
    other.renumber(seen_by_both, 10)
    assert [told.gen for told in trust.pending()] == [11, 12]


def test_killed_at_any_step_of_giving_new_numbers_each_is_told_once(
    tmp_path, redis_url, store, namespace
):
    def work(trust, node: str) -> None:
        Announcer(Store.from_url(redis_url, namespace), node, trust).drain()

    step = 1
    while True:
        node = f"node-{step}"
        trust, elder = with_taken_numbers(store, tmp_path / node, node)
        assert len(elder) == 3
        if not is_killed(lambda trust=trust, node=node: work(trust, node), step):
            break
        restarted = opened(trust.folder)
        Announcer(store, node, restarted).drain()
        told = announcements(store, node)
        assert told[:3] == elder
        assert [(one.change, one.node) for one in told[3:]] == [
            ("pinned", "ann"), ("renamed", "ann"), ("pinned", "bob")
        ]  # fmt: skip
        assert opened(trust.folder).pending() == ()
        step += 1
    assert step > 15


# --- the disk fails while it is told ------------------------------------------------------------------


def test_a_failure_at_any_step_of_striking_out_tells_nothing_twice(tmp_path, store):
    def fresh(node: str):
        trust = opened(tmp_path / node)
        trust.pin(ANN.card())
        trust.rename("ann", "Ann")
        return trust, trust.pending(), Announcer(store, node, trust)

    _, _, announcer = fresh("counted")
    steps = steps_of(announcer.drain)
    failed = 0
    for at in range(1, len(steps) + 1):
        node = f"node-{at}"
        trust, waiting, announcer = fresh(node)
        with failing(lambda count, _, at=at: count == at):
            try:
                announcer.drain()
            except Unwritable:
                failed += 1
        announcer.drain()
        assert announcements(store, node) == list(waiting)
        assert trust.pending() == ()
        assert opened(trust.folder).pending() == ()
    assert failed >= 8


@pytest.mark.parametrize("broken", ["", "write"], ids=["wholly", "for writing"])
def test_what_was_forgotten_while_the_disk_fails_is_told_all_the_same(
    store, trust, announcer, broken
):
    trust.pin(ANN.card())
    announcer.drain()
    with failing(lambda _, step: step.startswith(broken)):
        trust.forget("ann")
        with pytest.raises(Unwritable):  # it cannot be struck out of a file
            announcer.drain()
        told = announcements(store, NODE)
        assert [(one.change, one.persisted) for one in told] == [
            ("pinned", True), ("forgotten", False)
        ]  # fmt: skip
    announcer.drain()
    assert announcements(store, NODE) == told
    trust.remove("ann")
    announcer.drain()
    assert [one.change for one in announcements(store, NODE)] == ["pinned", "forgotten", "removed"]


def test_what_was_told_and_written_nowhere_gets_no_new_number(store, trust, announcer):
    trust.pin(ANN.card())
    trust.pin(BOB.card())
    announcer.drain()
    with failing(lambda _, step: step.startswith("write")):
        trust.forget("ann")
        with pytest.raises(Unwritable):
            announcer.drain()
    # The other process of this node knows nothing of it, and takes the same number.
    other = opened(trust.folder)
    other.rename("bob", "Bob")
    Announcer(store, NODE, other).drain()
    announcer.drain()
    told = [one.change for one in announcements(store, NODE)]
    assert told == ["pinned", "pinned", "forgotten", "renamed"]
