"""A Redis that is frozen, not gone: it holds every thread, and neither answers nor memory may hang on it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from broker import Broker
from broker import settings as settings_of
from broker.aio.calls import THREADS
from broker.store import connection
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.web import server as web_server
from tests.system.command import until
from tests.web.asking import JSON, ask, connected, place_of, post

ABANDONED = 50


def submission(id: str) -> bytes:
    return json.dumps({"engine": "echo", "id": id}).encode()


def abandon(url: str, bodies: list[bytes]) -> None:
    """Hand in jobs, each on a connection of its own, and be gone before the answers."""
    host, port = place_of(url)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: {host}:{port}\r\n{': '.join(JSON)}\r\n"
    with ExitStack() as connections:
        for body in bodies:
            connection = connections.enter_context(connected(url))
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert ask(url, "/livez").status == 200  # by then the server has read what came before


def test_what_finds_no_thread_is_refused_in_time_and_never_done(
    serve: Callable[..., str],
    server: PrivateRedis,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Far below the time after which a call that has begun gives up, and its thread takes the next one.
    monkeypatch.setattr(web_server, "TURN_SECONDS_MAX", 0.5)
    monkeypatch.setattr(connection, "ANSWER_SECONDS_MAX", 60.0)
    redis = f"redis://127.0.0.1:{server.port}"
    url = serve(redis=redis)
    until(lambda: ask(url, "/readyz").status == 200)
    assert server._process
    server._process.send_signal(signal.SIGSTOP)
    try:
        abandon(url, [submission(f"abandoned-{number}") for number in range(ABANDONED)])
        assert post(url, "/v1/jobs", JSON, body=submission("late")).refusal == (503, "busy")
        assert ask(url, "/v1/nodes").refusal == (503, "busy")
        assert ask(url, "/livez").status == 200
    finally:
        server._process.send_signal(signal.SIGCONT)
    until(lambda: ask(url, "/v1/nodes").status == 200)
    made = post(url, "/v1/jobs", JSON, body=submission("after"))
    assert made.status == 201
    with Broker(Store.from_url(redis, namespace), settings_of(namespace=namespace)) as broker:
        ids = {listed.key.id for listed in broker.jobs()} - {"after"}
    assert "late" not in ids
    assert len(ids) <= THREADS
