"""The list as it changes, over HTTP: told in order, gone on with after a cut, and ended in good order."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from broker import Broker
from broker import settings as settings_of
from broker.errors import Damaged
from broker.readers.readers import Readers
from broker.rules.record import to_json
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.web import models, pulse, stream
from broker.web import server as web_server
from broker.web.pulse import Listener, Pulse
from broker.web.server import serving
from tests.system.command import guessed, held, placed, until
from tests.web.churn import Churn
from tests.web.follower import Follower, Stream, listed
from tests.web.test_jobs import rule_of


def test_a_stream_begins_with_where_it_stands(url: str) -> None:
    with Stream(url) as following:
        [first] = following.events[:1]
        assert (first.kind, first.data, bool(first.id)) == ("ready", {}, True)
        assert following.wait("doubt") == [{"keys": []}]


def test_a_change_is_told_with_its_record_and_who_decided_it(url: str, broker: Broker) -> None:
    with Stream(url) as following:
        key = broker.submit("echo", {"<b>": "\n\u2028"}).key
        [first] = following.wait("change")
        assert first["record"] == to_json(key, broker.get(key))
        assert (first["key"], first["rev"]) == (str(key), broker.get(key).rev)
        broker.cancel(key)
        broker.remove(key)
        until(lambda: following.of("change")[-1]["record"] is None)
        last = following.of("change")[-1]
        assert (last["rule"], last["by"], last["synthesized"]) == ("removed", "user", False)
        models.Change.model_validate(last)
        assert set(models.Change.model_fields) == set(last)


def test_a_filter_still_tells_of_what_leaves_it(url: str, broker: Broker) -> None:
    with Stream(url, {"state": ["queued", "running"], "engine": "echo"}) as following:
        job = broker.submit("echo", 1)
        broker.submit("other", 1)
        ending = broker.submit("echo", 2)
        attempt = held(broker, job.key, node="node-a")
        attempt.finish("completed", result=1)
        ending.cancel()
        last = broker.submit("echo", 3)
        until(lambda: str(last.key) in following.jobs())
        newest = {change["key"]: change["record"]["state"] for change in following.of("change")}
        assert newest == {
            str(job.key): "completed",
            str(ending.key): "cancelled",
            str(last.key): "queued",
        }
        broker.remove(job.key)  # it left the list before: nobody is told any more
        broker.remove(last.key)
        until(lambda: following.of("change")[-1]["record"] is None)
        assert following.of("change")[-1]["key"] == str(last.key)


@pytest.mark.parametrize("query", ["state=done", "pulse=perhaps", "nope=1", "node=NO", "limit=1"])
def test_a_wrong_question_is_refused(http: httpx.Client, query: str) -> None:
    assert rule_of(http.get(f"/v1/watch?{query}"), 400) == "invalid"


def test_nothing_is_missed_between_the_list_and_the_stream(url: str, broker: Broker) -> None:
    broker.submit("echo", 0)
    position = listed(url).headers["last-event-id"]
    between = [str(job.key) for job in broker.submit_many("echo", range(5))]
    with Stream(url, after=position) as following:
        until(lambda: set(between) <= set(following.jobs()))
        assert following.of("gone") == []


def test_who_comes_back_is_told_what_it_missed_and_no_more(url: str, broker: Broker) -> None:
    with Stream(url) as before:
        first = broker.submit("echo", 1)
        before.wait("change")
    missed = broker.submit("echo", 2)
    with Stream(url, after=before.id) as back:
        until(lambda: back.jobs() == [str(missed.key)])
        assert back.of("gone") == []
    assert str(first.key) in before.jobs()


@pytest.mark.parametrize("position", ["x", "0123456789abcdef.0", "-1", "é", "9" * 4000])
def test_a_position_of_somebody_else_is_gone(url: str, position: str) -> None:
    with Stream(url, after=position) as following:
        [gone] = following.wait("gone")
        assert "list again" in gone["why"]
        assert [event.kind for event in following.events[:2]] == ["ready", "gone"]
        assert following.events[0].id == following.events[1].id != position


def test_after_a_restart_of_the_server_everybody_lists_again(
    redis_url: str, namespace: str, broker: Broker
) -> None:
    with serving_on(redis_url, namespace) as url, Follower(url) as before:
        broker.submit("echo", 1)
        until(lambda: len(before.held) == 1)
        position = before.stream.id
    until(before.stream.ended.is_set)
    broker.submit("echo", 2)
    with serving_on(redis_url, namespace) as url, Stream(url, after=position) as after:
        after.wait("gone")
        with Follower(url) as anew:
            assert anew.revs() == {str(job.key): job.record.rev for job in broker.jobs()}


@contextmanager
def serving_on(redis: str, namespace: str, **more: Any) -> Iterator[str]:
    config = settings_of(namespace=namespace, node="desk", listen="127.0.0.1:0", **more)
    with serving(Broker(Store.from_url(redis, namespace), config)) as url:
        yield url


def test_who_comes_back_after_more_than_is_kept_for_it_lists_again(
    url: str, broker: Broker
) -> None:
    with Follower(url) as follower:
        position = follower.stream.id
        for number in range(1_100):
            broker.report(
                {"event": "report", "origin": "desk", "engine": "e", "id": str(number)}
                | {"state": "queued", "created_at": broker.store.clock.now()}
            )
        until(lambda: len(follower.held) == 1_100)
        with Stream(url, after=position) as back:
            assert "list again" in back.wait("gone")[0]["why"]
            broker.submit("echo", 1)
            back.wait("change")


@pytest.mark.parametrize(
    "query", [{}, {"state": ["running"]}, {"node": "node-a"}, {"origin": "desk"}]
)
def test_cut_connections_lose_nothing_and_bring_nothing_back(
    url: str, broker: Broker, query: dict[str, Any]
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # shown where it fails
    churn, chance, stop = Churn(broker, seed), random.Random(seed), threading.Event()

    def writing() -> None:
        while not stop.is_set():
            churn.step()

    writer = threading.Thread(target=writing)
    writer.start()
    try:
        with Follower(url, query) as follower:
            for _ in range(12):
                told = len(follower.stream.events) + chance.randrange(40)
                until(lambda told=told: len(follower.stream.events) >= told)  # type: ignore[misc]
                follower.come_back()
            stop.set()
            writer.join()
            truth = {job["key"]: job["rev"] for job in listed(url, query).json()}
            assert truth
            until(lambda: follower.revs() == truth)
            assert follower.lists == 1
    finally:
        stop.set()
        writer.join()


def test_doubt_is_told_when_it_begins_and_when_it_ends(
    serve: Callable[..., str], broker: Broker
) -> None:
    with Stream(serve()) as following:
        attempt = held(broker, broker.submit("echo", 1).key)
        following.wait("change")
        until(lambda: {"keys": [str(attempt.key)]} in following.of("doubt"))
        attempt.beat()
        attempt.finish("completed")
        until(lambda: following.of("doubt")[-1] == {"keys": []})


def test_the_pulse_is_told_to_those_who_ask_for_it(
    url: str, http: httpx.Client, broker: Broker
) -> None:
    with Stream(url, {"pulse": "true"}) as following, Stream(url) as other:
        following.wait("overview", 2)
        assert following.of("nodes")[-1] == []
        assert following.wait("groups")[0] == []
        broker.flag_node("node-a", "drained")
        until(lambda: following.of("nodes")[-1] == http.get("/v1/nodes").json() != [])
        broker.submit("echo", 1)
        until(lambda: following.of("overview")[-1]["jobs"]["queued"] == 1)
        assert {event.kind for event in other.events} <= {"ready", "doubt", "change", ""}


def test_nothing_is_looked_at_while_nobody_listens(
    url: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    read = pulse.Pulse._read
    monkeypatch.setattr(
        pulse.Pulse, "_read", lambda self, *asked: (looks.append(asked), read(self, *asked))[1]
    )
    monkeypatch.setattr(pulse, "PULSE_SECONDS", 0.05)
    with Stream(url), Stream(url, {"pulse": "true"}) as following:
        following.wait("overview", 3)
    until(lambda: quiet(looks))
    looks.clear()
    with Stream(url) as following:
        following.wait("doubt")
        until(lambda: (False, False) in looks)


def quiet(looks: list[Any]) -> bool:
    """Whether nothing came for some rounds."""
    before = len(looks)
    threading.Event().wait(0.3)
    return len(looks) == before


def test_silence_is_broken_by_a_comment_that_says_where_the_stream_stands(
    url: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.1)
    with Stream(url, {"engine": "nobody's"}) as following:
        begin = following.id
        broker.submit("echo", 1)
        until(lambda: following.id != begin)
        [moved] = [event for event in following.events if event.id not in ("", begin)][:1]
        assert (moved.kind, moved.data) == ("", None)
        position = following.id
    with Stream(url, after=position) as back:
        until(lambda: back.of("doubt"))
        assert back.jobs() == []


@pytest.mark.parametrize("query", [{}, {"pulse": "true"}], ids=["doubts alone", "pulse"])
def test_what_the_pulse_tells_does_not_keep_a_stream_from_saying_where_it_stands(
    url: str, broker: Broker, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "PULSE_SECONDS", 0.02)
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 1.0)
    with Stream(url, {"engine": "nobody's"} | query) as following:
        begin = following.id
        broker.submit("echo", 1)
        until(lambda: following.id != begin)


def test_nobody_is_woken_by_a_look_that_found_nothing_new(
    url: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    rung, looks = [], []
    take, look = Listener.take, Pulse._look
    monkeypatch.setattr(pulse, "PULSE_SECONDS", 0.02)
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 600)
    monkeypatch.setattr(Listener, "take", lambda self: rung.append(self) or take(self))
    monkeypatch.setattr(Pulse, "_look", lambda self, now: looks.append(now) or look(self, now))
    with Stream(url) as following:
        following.wait("doubt")
        begun, before = len(looks), len(rung)
        until(lambda: len(looks) > begun + 20)
        assert len(rung) <= before + 1


def test_a_server_that_ends_ends_its_streams_at_once_and_cleanly(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 600)  # none of them says a word by itself
    # What is left in hand would be waited for.
    monkeypatch.setattr(web_server, "END_SECONDS_MAX", 60)
    with serving_on(redis_url, namespace) as url:
        streams = [Stream(url) for _ in range(10)]
        raw = httpx.stream("GET", f"{url}/v1/watch", trust_env=False, timeout=60)
        answer = raw.__enter__()
        lines = answer.iter_lines()
        next(lines)
        begun = time.monotonic()
    for following in streams:
        until(following.ended.is_set)
    list(lines)  # a broken end would raise: the last chunk came
    assert time.monotonic() - begun < 30
    raw.__exit__(None, None, None)


def test_a_stream_outlives_a_redis_that_is_away(
    serve: Callable[..., str], namespace: str, server: PrivateRedis
) -> None:
    redis = f"redis://127.0.0.1:{server.port}"
    url = serve(redis=redis)
    with Broker(Store.from_url(redis, namespace)) as broker, Follower(url) as follower:
        broker.submit("echo", 1, origin="desk")
        until(lambda: len(follower.held) == 1)
        server.stop()
        until(lambda: httpx.get(f"{url}/v1/jobs", trust_env=False, timeout=60).status_code == 503)
        server.start()
        made = broker.submit("echo", 2, origin="desk")
        until(lambda: str(made.key) in follower.held)
        assert not follower.stream.ended.is_set()


def test_a_stream_tells_when_redis_goes_away_and_when_it_is_back(
    serve: Callable[..., str], server: PrivateRedis
) -> None:
    url = serve(redis=f"redis://127.0.0.1:{server.port}")
    with Stream(url) as following, Stream(url, {"pulse": "true"}) as other:
        following.wait("doubt")
        for away in (1, 2):
            server.stop()
            for told in (following, other):
                assert told.wait("trouble", 2 * away - 1)[-1]["why"].startswith("Redis ")
            server.start()
            for told in (following, other):
                assert told.wait("trouble", 2 * away)[-1] == {"why": None}


def test_a_trouble_that_the_pulse_never_saw_is_said_to_be_over_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[Damaged | None] = [Damaged("a log of a wrong type")]
    is_looking = threading.Event()

    async def look(self: Pulse, now: float) -> None:
        await asyncio.to_thread(is_looking.wait, 60)

    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 600)
    monkeypatch.setattr(Pulse, "_look", look)
    monkeypatch.setattr(Readers, "trouble", property(lambda _: met[-1]))
    with Stream(url) as following:
        following.wait("trouble")
        met.append(None)
        is_looking.set()
        assert following.wait("trouble", 2)[-1] == {"why": None}


def test_a_stream_opens_on_a_log_that_cannot_be_read_and_tells_so(
    url: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stream(url):
        monkeypatch.setattr(
            Readers, "trouble", property(lambda _: Damaged("a log of a wrong type"))
        )
        with Stream(url) as late:
            assert late.wait("trouble") == [{"why": "a log of a wrong type"}]


def test_who_comes_while_redis_is_away_is_told_no_state_from_before(
    serve: Callable[..., str], server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.1)
    url = serve(redis=f"redis://127.0.0.1:{server.port}")

    def told_at_once() -> set[str] | int:
        """What is known comes before the first silence is broken; else the status."""
        with Stream(url, {"pulse": "true"}) as late:
            until(lambda: any(not event.kind for event in late.events) or late.ended.is_set())
            return {event.kind for event in late.events} - {""} or late.status

    with Stream(url, {"pulse": "true"}) as early:
        early.wait("groups")
        assert told_at_once() == {"ready", "doubt", "overview", "nodes", "groups"}
        server.stop()
        until(lambda: told_at_once() == 503)
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            assert rule_of(http.get("/v1/watch"), 503) == "unavailable"
        known = len(early.of("groups"))
        server.start()
        until(lambda: len(early.of("groups")) > known)


def test_a_guess_and_a_job_without_a_node_are_followed_by_what_they_were(
    url: str, broker: Broker
) -> None:
    with Follower(url, {"state": ["running"]}) as follower:
        attempt = held(broker, broker.submit("echo", 1).key)
        placed(broker, broker.submit("echo", 2).key)
        until(lambda: set(follower.held) == {str(attempt.key)})
        guessed(broker, attempt.key)
        until(lambda: follower.held[str(attempt.key)]["inferred"])
        assert follower.held[str(attempt.key)]["state"] == "failed"
