"""`/livez`, `/readyz` and `/version`: what a restart would mend, and where nobody should be sent."""

from __future__ import annotations

import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from broker.errors import Damaged
from broker.readers.readers import Readers
from broker.roles.loop import Loop, Turns
from broker.store.server import PrivateRedis
from broker.web import health
from tests.system.command import until
from tests.web.asking import Answer, ask, served
from tests.web.follower import Stream
from tests.web.test_serve_command import restricted


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that answers does so in time, however long this machine stands still."""
    monkeypatch.setattr(health, "ANSWER_SECONDS_MAX", 60.0)


@contextmanager
def turning(turns: Turns, name: str, step: Callable[[], int]) -> Iterator[None]:
    """A loop as the roles have it."""
    stop = threading.Event()
    loop = Loop(name, step, stop, pace_seconds=0.01, turns=turns)
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def wrong(answer: Answer, rule: str = "not_ready") -> dict[str, str]:
    """What is not ok, by the name of the check."""
    assert answer.refusal == (503, rule)
    return not_ok(answer)


def not_ok(answer: Answer) -> dict[str, str]:
    """The same, where there may be nothing."""
    return {name: said for name, said in answer.json["checks"].items() if said != "ok"}


def test_a_loop_that_is_stuck_is_named_and_one_that_fails_is_not(
    serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(Readers, "turn_seconds", property(lambda _: 0.0))  # theirs last longer
    turns, held, goes_on = Turns(), threading.Event(), threading.Event()

    def stuck() -> int:
        if held.is_set():
            goes_on.wait()
        return 0

    def fails() -> int:
        raise ConnectionError("Redis is away")

    monkeypatch.setattr("broker.roles.loop.PAUSE_SECONDS_MAX", 0.1)
    url = serve(turns=turns.ages)
    with turning(turns, "fails", fails), turning(turns, "stuck", stuck):
        until(lambda: ask(url, "/livez").json["checks"].keys() == {"fails", "stuck", "readers"})
        until(lambda: ask(url, "/livez").status == 200)
        held.set()
        told = []
        # Where all of this machine stood still, so did the other loop: for a moment.
        until(lambda: told.append(ask(url, "/livez")) or not_ok(told[-1]).keys() == {"stuck"})
        assert told[-1].refusal == (503, "not_live")
        assert "stuck: has not turned for" in told[-1].json["detail"]
        goes_on.set()
        until(lambda: ask(url, "/livez").status == 200)


def test_readers_that_ended_or_are_stuck_are_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Readers, "turn_seconds", property(lambda _: 31.0))
        assert wrong(ask(url, "/livez"), "not_live") == {"readers": "has not turned for 31 s"}
    monkeypatch.setattr(Readers, "closed", property(lambda _: True))
    assert wrong(ask(url, "/livez"), "not_live") == {"readers": "ended by themselves"}


def test_a_server_is_ready_once_the_list_was_read(url: str) -> None:
    until(lambda: ask(url, "/readyz").status == 200)
    assert ask(url, "/readyz").json == {
        "status": "ok",
        "checks": {"process": "ok", "redis": "ok", "list": "ok"},
    }


@pytest.mark.parametrize(
    "name,value,said",
    [
        ("is_listed", False, "not read yet"),
        ("age_seconds", 11.0, "11 s behind the logs"),
        ("trouble", Damaged("a log of a wrong type"), "a log of a wrong type"),
    ],
)
def test_a_list_that_is_not_true_now_is_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch, name: str, value: object, said: str
) -> None:
    until(lambda: ask(url, "/readyz").status == 200)
    monkeypatch.setattr(Readers, name, property(lambda _: value))
    assert wrong(ask(url, "/readyz")) == {"list": said}
    assert ask(url, "/livez").status == 200


def test_a_redis_that_is_frozen_killed_and_back_decides_readiness_and_not_life(
    server: PrivateRedis, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(f"redis://127.0.0.1:{server.port}", namespace) as url:
        until(lambda: ask(url, "/readyz").status == 200)
        assert server._process
        server._process.send_signal(signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(health, "ANSWER_SECONDS_MAX", 1.0)
            begun = time.monotonic()
            found = wrong(ask(url, "/readyz"))
            assert time.monotonic() - begun < 20  # Redis stays frozen for as long as we wait
            assert found["redis"] == "no answer within 1 s"
            assert ask(url, "/version").json["redis"] is None
            assert ask(url, "/livez").status == 200
        server._process.send_signal(signal.SIGCONT)
        until(lambda: ask(url, "/readyz").status == 200)

        server.stop()
        until(lambda: wrong(ask(url, "/readyz")).keys() == {"redis", "list"})
        assert "Redis does not answer" in ask(url, "/readyz").json["checks"]["redis"]
        assert ask(url, "/livez").status == 200
        server.start()
        until(lambda: ask(url, "/readyz").status == 200)
        assert ask(url, "/livez").status == 200


def test_a_server_whose_redis_user_may_not_write_is_not_ready(
    server: PrivateRedis, namespace: str
) -> None:
    redis = restricted(server)
    with served(redis, namespace) as url:
        until(lambda: ask(url, "/readyz").status == 200)
        restricted(server, "-@write")
        assert "our user may not write: " in wrong(ask(url, "/readyz"))["redis"]
        restricted(server)
        until(lambda: ask(url, "/readyz").status == 200)


def test_from_the_order_to_end_on_nobody_is_sent_here(serve: Callable[..., str]) -> None:
    draining = threading.Event()
    url = serve(draining=draining)
    until(lambda: ask(url, "/readyz").status == 200)
    with Stream(url) as following:
        draining.set()
        # Before its streams end, it hangs up on connections that rest: on one of ours, too, that has not asked yet.
        until(following.ended.is_set)
    assert wrong(ask(url, "/readyz")) == {"process": "about to end"}
    assert ask(url, "/livez").status == 200
    assert ask(url, "/version").status == 200
    refused = ask(url, "/v1/jobs")
    assert refused.refusal == (503, "draining")
    assert refused.headers["retry-after"] == "1"


def test_the_version_tells_what_runs(url: str, redis_url: str) -> None:
    said = ask(url, "/version").json
    assert said["name"] == "fleet-broker"
    assert said["version"] == "0.1.0"
    assert said["python"] == platform.python_version()
    assert said["redis"]["name"] in ("redis", "valkey")
    assert int(said["redis"]["version"].split(".")[0]) >= 7
