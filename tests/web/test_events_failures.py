"""Posts while Redis is full, read-only, away or damaged: the answer is honest, and a retry does no harm."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import httpx
import pytest

from broker import Broker
from broker import settings as settings_of
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.web.server import serving
from tests.system.command import reported
from tests.web.producer import contents, post, unframe

NAMESPACE = "failing"


@contextmanager
def served(url: str) -> Iterator[httpx.Client]:
    """A client of a server that reaches Redis by this url."""
    given = settings_of(namespace=NAMESPACE, node="desk", listen="127.0.0.1:0")
    with (
        serving(Broker(Store.from_url(url, NAMESPACE), given)) as found,
        httpx.Client(base_url=found, trust_env=False, timeout=60) as http,
    ):
        yield http


@pytest.fixture
def http(server: PrivateRedis) -> Iterator[httpx.Client]:
    with served(f"redis://127.0.0.1:{server.port}") as made:
        yield made


@pytest.fixture
def store(server: PrivateRedis) -> Iterator[Store]:
    with closing(Store.from_url(f"redis://127.0.0.1:{server.port}", NAMESPACE)) as made:
        yield made


def entries(store: Store, origin: str = "desk") -> int:
    return store.client.xlen(store.keys.of(origin).log)


def outcomes(said: list[dict[str, str] | None]) -> list[str | None]:
    return [one and one["outcome"] for one in said]


def fill(store: Store) -> Callable[[], None]:
    store.client.config_set("maxmemory", 1)
    return lambda: store.client.config_set("maxmemory", 0)


def freeze_writes(store: Store) -> Callable[[], None]:
    """As after a failover: the server that we talk to is a replica now."""
    store.client.replicaof("127.0.0.1", 1)
    return lambda: store.client.replicaof("NO", "ONE")


@pytest.mark.parametrize("harm", [fill, freeze_writes], ids=["full", "read-only"])
def test_what_redis_refuses_is_not_kept_and_taken_once_when_it_is_sent_again(
    http: httpx.Client, store: Store, harm: Any
) -> None:
    bodies: list[Any] = [
        reported(seq=1),
        reported("shaped"),
        [reported("a", seq=1), reported("b", seq=1)],
        unframe("removed"),
    ]
    post(http, reported("before"))
    before = contents(store)
    mend = harm(store)
    for body in bodies:
        told = post(http, body)
        said = told.json()
        assert (told.status_code, said["rule"]) == (500, "not_taken"), said
        assert said["outcomes"] == [None] * (len(body) if isinstance(body, list) else 1)
    assert contents(store) == before
    mend()
    taken = [post(http, body) for body in bodies]
    assert {response.status_code for response in taken} == {200}
    assert entries(store) == 1 + 5
    again = [post(http, body).json() for body in bodies]
    assert outcomes([*again[:2], *again[2], again[3]]) == ["duplicate"] * 5
    assert entries(store) == 1 + 5


def test_a_removal_that_failed_leaves_the_job(http: httpx.Client, store: Store) -> None:
    post(http, reported())
    mend = fill(store)
    assert post(http, unframe()).status_code == 500
    mend()
    assert post(http, reported()).json()["rule"] == "no_change"  # it is still there


def test_a_redis_that_is_killed_answers_nobody_and_what_is_sent_again_is_taken_once(
    http: httpx.Client, store: Store, server: PrivateRedis
) -> None:
    assert post(http, reported(seq=1)).status_code == 200
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    said = post(http, [reported(seq=2, node="a"), reported("8")])
    assert (said.status_code, said.json()["rule"]) == (500, "unanswered")
    assert said.json()["outcomes"] == [None, None]
    assert "send it again" in said.json()["detail"]
    server.start()
    taken = post(http, [reported(seq=2, node="a"), reported("8")])
    assert outcomes(taken.json()) == ["applied", "applied"]
    assert entries(store) == 3


def test_producers_that_retry_through_a_kill_lose_nothing_and_double_nothing(
    http: httpx.Client, store: Store, server: PrivateRedis
) -> None:
    killed, failed, mended = threading.Event(), threading.Event(), threading.Event()
    begun = threading.Barrier(9)

    def produce(job: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        for seq in range(1, 41):
            if seq == 5:
                begun.wait(60)
            if seq == 40:
                killed.wait(60)  # else all might be said before that
            state = "queued" if seq < 40 else "completed"
            while True:
                told = post(http, reported(str(job), state, seq=seq, node=f"gpu-{seq}"))
                statuses[told.status_code] += 1
                if told.status_code == 200:
                    break
                failed.set()
                mended.wait(60)  # nobody spins while it is away
        return statuses

    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(produce, job) for job in range(8)]
        begun.wait(60)
        os.kill(server.pid, signal.SIGKILL)
        server.stop()
        killed.set()
        assert failed.wait(60)
        server.start()
        mended.set()
        statuses = sum((one.result() for one in running), Counter())
    assert set(statuses) == {200, 500}
    assert statuses[200] == 8 * 40
    assert entries(store) == 8 * 40
    told = [fields[b"state"] for _, fields in store.client.xrange(store.keys.of("desk").log)]
    assert Counter(told) == {b"queued": 8 * 39, b"completed": 8}


def test_of_several_origins_the_taken_ones_are_told(http: httpx.Client, store: Store) -> None:
    """One origin's log is no log: Redis refuses all that is said of it, until somebody mends that."""
    log = store.keys.of("den").log
    store.client.set(log, "no stream")
    said = [
        reported("1"),
        reported("2", origin="den"),
        reported("3"),
        reported("4", origin="attic"),
    ]
    told = post(http, said)
    assert (told.status_code, told.json()["rule"]) == (500, "not_taken")
    assert outcomes(told.json()["outcomes"]) == ["applied", None, "applied", None]
    assert entries(store) == 2
    assert not store.client.exists(store.keys.of("attic").log)
    store.client.delete(log)
    again = post(http, said)
    assert outcomes(again.json()) == ["duplicate", "applied", "duplicate", "applied"]


def test_one_jobs_damage_is_told_and_the_others_are_taken(http: httpx.Client, store: Store) -> None:
    """Such a job's event has no outcome, though Redis answered: it was not taken."""
    post(http, reported("7"))
    [record] = store.client.keys("*:job:ollama//7")
    store.client.delete(record)
    store.client.set(record, "no record")
    told = post(http, [reported("6"), reported("7", "completed"), reported("8")])
    assert (told.status_code, told.json()["rule"]) == (500, "not_taken")
    assert outcomes(told.json()["outcomes"]) == ["applied", None, "applied"]
    alone = post(http, reported("7", "completed"))
    assert (alone.status_code, alone.json()["outcomes"]) == (500, [None])


class Wire:
    """Between the server and Redis; after so many calls of a script its answers are cut off."""

    def __init__(self, server: PrivateRedis) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        #: How many more calls of a script are answered.
        self.left = 10**9
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # a close alone would leave `accept` waiting
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        """A request is in Redis before its answer is lost. Each may come in several pieces."""
        is_script = False
        with client, suppress(OSError), self._redis() as redis:
            while True:
                ready, _, _ = select.select([client, redis], [], [])
                if client in ready:
                    if not (data := client.recv(1 << 20)):
                        return
                    is_script |= b"EVALSHA" in data
                    redis.sendall(data)
                    continue
                if not (answer := redis.recv(1 << 20)):
                    return
                if is_script:
                    is_script = False
                    self.left -= 1
                    if self.left < 0:
                        return
                client.sendall(answer)

    def _redis(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._server.port))


@pytest.fixture
def wire(server: PrivateRedis) -> Iterator[Wire]:
    with closing(Wire(server)) as made:
        yield made


def test_an_answer_that_is_lost_is_told_as_unknown_and_a_retry_finds_it(
    wire: Wire, store: Store
) -> None:
    with served(wire.url) as http:
        assert post(http, reported("known")).status_code == 200
        wire.left = 0
        told = post(http, reported(seq=1))
        assert (told.status_code, told.json()["rule"]) == (500, "unanswered")
        assert told.json()["outcomes"] == [None]
        assert entries(store) == 2  # it was taken, however often it was sent
        wire.left = 10**9
        assert outcomes([post(http, reported(seq=1)).json()]) == ["duplicate"]
        assert entries(store) == 2


def test_of_a_long_array_the_steps_before_the_failure_are_told(wire: Wire, store: Store) -> None:
    said = [reported(str(n), seq=1) for n in range(250)]
    with served(wire.url) as http:
        assert post(http, reported("known")).status_code == 200
        wire.left = 2
        told = post(http, said).json()
        assert outcomes(told["outcomes"]) == ["applied"] * 200 + [None] * 50
        wire.left = 10**9
        again = post(http, said).json()
    assert outcomes(again[:200]) == ["duplicate"] * 200
    assert len({one["key"] for one in again}) == 250
    assert entries(store) == 251


def test_a_broad_removal_is_a_step_of_its_own(wire: Wire, store: Store) -> None:
    with served(wire.url) as http:
        post(http, reported())
        wire.left = 1
        told = post(http, [reported("8"), unframe(), reported("9")]).json()
    assert outcomes(told["outcomes"]) == ["applied", None, None]
    assert entries(store) == 3
