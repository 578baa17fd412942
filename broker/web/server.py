"""Runs the application: uvicorn on a thread with an event loop of its own, beside the roles."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from broker.async_client import AsyncBroker
from broker.client import Broker
from broker.config import Settings
from broker.errors import Misconfigured
from broker.web.app import create_app
from broker.web.hub import Hub

#: How long a connection may take to end when the server does, in seconds.
END_SECONDS_MAX = 3


@contextmanager
def serving(
    broker: Broker,
    *,
    turns: Callable[[], Mapping[str, float]] = dict,
    draining: threading.Event | None = None,
) -> Iterator[str]:
    """Answer HTTP at `config.listen` while the context lasts; gives the url, empty where it is off.

    `broker` is closed with it. Raises Misconfigured where the address cannot be listened at.
    """
    config = broker.config
    if config.listen == "off":
        yield ""
        return
    with bound(config) as listener, broker.readers() as readers:
        hub = Hub(AsyncBroker(broker), readers, turns, draining or threading.Event())
        settings = uvicorn.Config(
            create_app(hub),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=END_SECONDS_MAX,
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), name="http", daemon=True
        )
        thread.start()
        try:
            host, port = listener.getsockname()[:2]
            yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
        finally:
            server.should_exit = True
            readers.close()
            thread.join(2 * END_SECONDS_MAX)


@contextmanager
def bound(config: Settings) -> Iterator[socket.socket]:
    """The listening socket of `config.listen`; raises Misconfigured."""
    host, _, port = config.listen.rpartition(":")
    host = host.strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, int(port)), family=family)
    except (OSError, OverflowError) as wrong:
        raise Misconfigured(
            f"setting listen: cannot listen at {config.listen}: {wrong}; give another HOST:PORT, or off"
        ) from None
    with listener:
        yield listener
