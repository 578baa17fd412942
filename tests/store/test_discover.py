"""Which Redis a command talks to that was told none: that of a running `broker up`, as long as it answers."""

import fcntl
import json
import resource

import pytest
import redis

from broker import Broker, settings
from broker.config import DEFAULT_URL, data_dir
from broker.store.discover import find_url
from broker.store.server import PrivateRedis
from tests.store.readers import until


@pytest.fixture
def of_up(tmp_path, monkeypatch):
    """The Redis of a running `broker up`: whoever holds the lock says so."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    data_dir().mkdir()
    with PrivateRedis(tmp_path / "redis") as server, (data_dir() / "up.lock").open("w") as lock:
        (data_dir() / "up.json").write_text(json.dumps({"url": server.url}))
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield server


def full_disk(server):
    """The append-only file may not grow: Redis then says MISCONF to each write, and to PING."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    with redis.from_url(server.url) as client:

        def is_refused():
            try:
                client.set("a", "b")
            except redis.ResponseError as answer:
                return "MISCONF" in str(answer)

        until(is_refused)
        with pytest.raises(redis.ResponseError, match="MISCONF"):
            client.ping()


def test_the_redis_of_a_running_up_is_found_while_its_disk_is_full(of_up):
    assert find_url(settings()) == of_up.url
    full_disk(of_up)
    assert find_url(settings()) == of_up.url
    with Broker.from_url() as broker:
        assert list(broker.jobs()) == []


def test_one_that_does_not_answer_is_not_taken_for_it(of_up):
    of_up.stop()
    assert find_url(settings()) == DEFAULT_URL
