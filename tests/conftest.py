"""What every test stands on: a real Redis that the run starts itself, and a namespace of its own for each test."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, settings

from broker import Broker
from broker import settings as settings_of
from broker.errors import Misconfigured
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.ports import free_port
from tests.store.readers import patient

settings.register_profile("default", max_examples=200, deadline=None, print_blob=True)
settings.register_profile(
    "ci",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_namespaces = itertools.count(1)


# A developer's own settings are no part of what is tested.
for name in [name for name in os.environ if name == "REDIS_URL" or name.startswith("BROKER_")]:
    del os.environ[name]
# Many tests start `serve` and `up`: each would want the same port. Those of HTTP name their own.
os.environ["BROKER_LISTEN"] = "off"
# Begun in the background of a shell, ^C would be ignored by us, and by each program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--explore",
        choices=("small", "full"),
        default="small",
        help="how much of the attempt machine to explore (full: minutes)",
    )


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    """A server that keeps nothing on disk: for the whole session."""
    server = PrivateRedis(
        tmp_path_factory.mktemp("redis"), options={"appendonly": "no", "save": ""}
    )
    try:
        server.start()
    except Misconfigured as missing:
        pytest.exit(f"the tests need a real Redis: {missing}", returncode=1)
    yield server
    server.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateRedis]:
    """A server that loses nothing, on a port: unlike its socket, that stays the same after a restart."""
    options = {"appendfsync": "always"}
    with PrivateRedis(tmp_path / "redis", port=free_port(), options=options) as made:
        yield made


@pytest.fixture(scope="module")
def redis_url(redis_server: PrivateRedis) -> Iterator[str]:
    """Each module begins on an empty Redis: looking through all keys stays quick."""
    yield redis_server.url
    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses, so that nobody needs to flush."""
    return f"t{os.getpid()}-{next(_namespaces)}"


@pytest.fixture
def store(redis_url: str, namespace: str) -> Iterator[Store]:
    """On the test's own namespace."""
    made = Store.from_url(patient(redis_url), namespace)
    yield made
    made.close()


@pytest.fixture
def broker(store: Store, namespace: str) -> Broker:
    """A client on the test's own namespace."""
    return Broker(store, settings_of(namespace=namespace, node="desk"))
