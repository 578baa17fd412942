"""A real HTTP server on the test's own namespace, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from broker import Broker
from broker import settings as settings_of
from broker.store.store import Store
from broker.web.server import serving


@pytest.fixture
def serve(redis_url: str, namespace: str) -> Iterator[Callable[..., str]]:
    """Starts a server, with settings where a test needs them; gives its url."""
    with ExitStack() as ending:

        def start(**flags: object) -> str:
            given = {"namespace": namespace, "node": "desk", "listen": "127.0.0.1:0"} | flags
            broker = Broker(Store.from_url(redis_url, namespace), settings_of(**given))
            return ending.enter_context(serving(broker))

        yield start


@pytest.fixture
def url(serve: Callable[..., str]) -> str:
    return serve()


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        yield client
