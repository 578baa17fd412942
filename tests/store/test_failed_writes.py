"""Writes that fail: a typed error or the first answer, no mark, no half record, and the retry applies exactly once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial

import pytest
import redis

from broker.errors import Damaged, Unavailable
from broker.rules.event import Finish, Place, Remove, Report, Start, Submit
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.store.view import View
from tests.ports import free_port
from tests.store.cutting_proxy import CuttingProxy
from tests.store.readers import patient, until
from tests.store.story import CREATED
from tests.store.twins import ORIGIN, key, pair

FORGETFUL = {"appendonly": "no", "save": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of our own: these tests spoil it."""
    with PrivateRedis(tmp_path_factory.mktemp("spoiled"), options=FORGETFUL) as server:
        yield server


@pytest.fixture
def store(server, namespace):
    made = Store.from_url(patient(server.url), namespace)
    yield made
    made.client.config_set("maxmemory", 0)
    made.close()


@pytest.fixture
def view(store):
    """A view whose origin is known, so that a call is `merge.lua` and nothing else."""
    made = View(store)
    made.apply([Report(key=key("1"), created_at=CREATED, state="completed")])
    return made


def report(id="7", **more):
    return Report(**({"key": key(id), "created_at": CREATED, "state": "running"} | more))


def submit(id="7", **more):
    told = {"key": key(id), "created_at": CREATED, "digest": "d", "event_id": "s"}
    return Submit(**(told | more))


EVENTS = {
    "report": report(seq=1),
    "unnumbered": report(),
    "resync": report(resync=True, event_id="r"),
    "submit": submit(spec="{}"),
    "remove": Remove(key=key(), event_id="x"),
    "remove_pair": pair(event_id="x"),
    "remove_what_is": Remove(key=key("1"), event_id="x"),
}
each_event = pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)


def everything(store):
    """All keys of the namespace with what they hold, byte for byte."""
    names = sorted(store.client.scan_iter(f"{store.keys.namespace}:*", count=1000))
    return {name: store.client.dump(name) for name in names}


def log_length(store):
    return store.client.xlen(store.keys.of(ORIGIN).log)


def refused_then_taken(store, view, event, error, repair):
    """While Redis does not take it: `error`, and nothing changed. Then the same event applies, exactly once."""
    before, entries = everything(store), log_length(store)
    for _ in range(3):
        with pytest.raises(error):
            view.apply([event])
    assert everything(store) == before
    repair()
    assert view.apply([event])[0].outcome == "applied"
    assert view.apply([event])[0].outcome == "duplicate"
    assert log_length(store) == entries + 1


# --- Redis says no ----------------------------------------------------------------------------------


@each_event
def test_a_full_redis_takes_all_or_nothing(store, view, event):
    store.client.config_set("maxmemory", 1)
    refused_then_taken(
        store, view, event, Unavailable, lambda: store.client.config_set("maxmemory", 0)
    )


def test_a_full_redis_takes_no_part_of_a_batch(store, view):
    """Not even one whose first event would begin with a write that frees memory."""
    view.apply([submit("2"), report("3", seq=1)])
    rev = view.get(key("2")).rev
    batch = [
        Place(key=key("2"), node="node-a", rev=rev, term=1, event_id="p"),
        Start(
            key=key("2"), created_at=CREATED, attempt=1, node="node-a", holder="h", worker="w",
            event_id="q",
        ),
        Finish(
            key=key("2"), created_at=CREATED, attempt=1, holder="h", state="completed", result="1",
            event_id="f",
        ),
        report("3", state="completed", seq=2),
    ]  # fmt: skip
    before = everything(store)
    store.client.config_set("maxmemory", 1)
    with pytest.raises(Unavailable, match="maxmemory"):
        view.apply(batch)
    assert everything(store) == before
    store.client.config_set("maxmemory", 0)
    assert [answer.outcome for answer in view.apply(batch)] == ["applied"] * 4
    assert [answer.outcome for answer in view.apply(batch)] == ["duplicate"] * 4


@each_event
def test_a_key_of_the_wrong_type_fails_before_any_write(store, view, event):
    """Each fixed key in turn: `done` for one is touched only at a job's end."""
    books = store.keys.of(ORIGIN)
    for name in books.books:
        held = store.client.dump(name)
        store.client.delete(name)
        store.client.set(name, "spoiled")
        before = everything(store)
        with pytest.raises(Damaged, match="WRONGTYPE"):
            view.apply([event])
        assert everything(store) == before
        store.client.delete(name)
        if held is not None:
            store.client.restore(name, 0, held)
    entries = log_length(store)
    assert view.apply([event])[0].outcome == "applied"
    assert log_length(store) == entries + 1


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


def test_a_read_only_replica_takes_nothing(replicated, namespace):
    primary, replica = replicated
    there, here = (Store.from_url(patient(one.url), namespace) for one in (primary, replica))
    View(there).apply([report("1")])
    here.client.replicaof("127.0.0.1", primary.port)
    until(lambda: here.client.info("replication")["master_link_status"] == "up")
    view = View(here)
    view._known[ORIGIN] = here.clock.now()  # so that the call is merge.lua and nothing else
    assert view.get(key("1")).state == "running"
    with pytest.raises(Unavailable, match=r"READONLY|read only"):
        view.apply([report("7", seq=1)])
    assert view.get(key("7")) is None
    here.client.replicaof("NO", "ONE")
    assert view.apply([report("7", seq=1)])[0].rule == "first_sighting"
    there.close()
    here.close()


@each_event
def test_forgotten_scripts_do_not_show(store, view, event):
    store.client.script_flush()
    assert view.apply([event])[0].outcome == "applied"


# --- Redis said yes, and nobody heard -----------------------------------------------------------------


@pytest.fixture
def behind_proxy(server, namespace):
    path = redis.connection.parse_url(server.url)["path"]
    with CuttingProxy(path) as proxy:
        store = Store.from_url(patient(f"redis://127.0.0.1:{proxy.port}"), namespace)
        view = View(store)
        view.apply([report("1", state="completed")])
        run = store.scripts.run

        def run_and_lose(replies, *call):
            proxy.cut(replies)
            return run(*call)

        def lose(replies):
            """Of the next call of merge.lua, lose so many replies."""
            store.scripts.run = partial(run_and_lose, replies)

        yield lose, store, view
        store.close()


@each_event
def test_a_reply_lost_once_is_asked_for_again_in_silence(behind_proxy, event):
    lose, store, view = behind_proxy
    entries = log_length(store)
    lose(1)
    [answer] = view.apply([event])
    assert log_length(store) == entries + 1
    assert answer.outcome == "duplicate"
    if event.event_id:
        last = store.client.xrevrange(store.keys.of(ORIGIN).log, count=1)[0]
        assert (answer.rule, answer.rev) == (last[1][b"rule"].decode(), last[0].decode())


@each_event
def test_a_reply_lost_for_good_is_an_error_and_the_callers_repeat_a_duplicate(behind_proxy, event):
    lose, store, view = behind_proxy
    entries = log_length(store)
    lose(3)  # of the call and its two silent repeats
    with pytest.raises(Unavailable):
        view.apply([event])
    lose(0)
    assert view.apply([event])[0].outcome == "duplicate"
    assert log_length(store) == entries + 1


# --- everybody at once ----------------------------------------------------------------------------------

THREADS, ROUNDS = 16, 1_000


def test_duplicates_racing_while_writes_fail(server, store):
    """16 senders of the same 1,000 events, a Redis that is full now and then: each applies once, for all to hear."""
    rounds = [
        report(str(n), seq=1) if n % 2 else submit(str(n), event_id=f"e{n}") for n in range(ROUNDS)
    ]
    answers: list[list[tuple[str, str, str]]] = [[] for _ in rounds]
    failures = Counter()
    is_over = threading.Event()

    def send_all():
        own = Store.from_url(patient(server.url), store.keys.namespace)
        view = View(own)
        for event, heard in zip(rounds, answers, strict=True):
            while True:
                try:
                    heard.append(tuple(view.apply([event])[0]))
                    break
                except Unavailable:
                    failures["unavailable"] += 1
        own.close()

    def fill_and_free():
        dice = random.Random(7)
        while not is_over.is_set():
            store.client.config_set("maxmemory", 1)
            is_over.wait(dice.random() / 500)
            store.client.config_set("maxmemory", 0)
            is_over.wait(dice.random() / 50)

    threads = [threading.Thread(target=send_all) for _ in range(THREADS)]
    filler = threading.Thread(target=fill_and_free)
    for thread in (filler, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    is_over.set()
    filler.join()

    assert failures["unavailable"] > 100, "nothing failed: this race proved nothing"
    assert log_length(store) == ROUNDS
    for heard in answers:
        outcomes = Counter(outcome for outcome, _, _ in heard)
        assert outcomes == {"applied": 1, "duplicate": THREADS - 1}
    for heard in answers[::2]:  # with an event_id: each hears the first answer
        assert len({(rule, rev) for _, rule, rev in heard}) == 1
