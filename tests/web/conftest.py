"""A real HTTP server on the test's own namespace, and a client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.web.asking import served


@pytest.fixture
def serve(redis_url: str, namespace: str) -> Iterator[Callable[..., str]]:
    """Starts a server, on a Redis of its own and with settings where a test needs them; gives its url."""
    with ExitStack() as ending:

        def start(redis: str = redis_url, **flags: Any) -> str:
            return ending.enter_context(served(redis, namespace, **flags))

        yield start


@pytest.fixture
def url(serve: Callable[..., str]) -> str:
    return serve()


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        yield client
