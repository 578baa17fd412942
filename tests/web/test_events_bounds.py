"""How large a body may be, and how long it may take; and that who is refused by the headers hears it at once.

Byte by byte on a real socket: no client of HTTP would do what hostile ones do.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from broker import Broker
from broker.store.store import Store
from broker.web import body
from tests.system.command import reported, until
from tests.web.producer import Answer, Socket, contents, post

MIB = 1024 * 1024
#: How long a body may take here, and far less than that: an answer within it waited for none.
BODY_SECONDS = 120.0
AT_ONCE = 20.0
GOOD = json.dumps(reported()).encode()


def sized(size: int) -> bytes:
    """An event of exactly so many bytes."""
    said = json.dumps(reported() | {"note": ""}).encode()
    return said[:-2] + b"x" * (size - len(said)) + said[-2:]


def chunked(data: bytes, size: int = 60_000) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of an early answer ends sooner than usual, and a body may take longer."""
    monkeypatch.setattr(body, "DRAIN_SECONDS_MAX", 0.2)
    monkeypatch.setattr(body, "BODY_SECONDS_MAX", BODY_SECONDS)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends on after an early answer is listened to for longer than sending takes on any machine."""
    monkeypatch.setattr(body, "DRAIN_SECONDS_MAX", 20.0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> float:
    """A body has less time than usual."""
    monkeypatch.setattr(body, "BODY_SECONDS_MAX", 0.6)
    return 0.6


def said(answer: Answer) -> tuple[int, str]:
    """Status and rule."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status, answer.json["rule"]


# --- size -----------------------------------------------------------------------------------------


def test_a_body_of_one_mebibyte_is_taken(url: str, broker: Broker) -> None:
    with Socket(url) as client:
        client.head(content_length=str(MIB))
        client.send(sized(MIB))
        assert client.answer().json["outcome"] == "applied"
    assert len(broker.view.spec(broker.find("desk/ollama//7"))["note"]) > MIB - 1_000


def test_so_is_one_that_comes_in_chunks(url: str) -> None:
    with Socket(url) as client:
        client.head(transfer_encoding="chunked")
        client.send(chunked(sized(MIB)))
        assert client.answer().json["outcome"] == "applied"


def test_a_body_of_one_byte_more_is_refused_before_it_came(url: str, store: Store) -> None:
    with Socket(url) as client:
        client.head(content_length=str(MIB + 1))
        answer = client.answer()
        assert said(answer) == (413, "too_large")
        assert answer.seconds < AT_ONCE
        assert client.is_closed()
    assert contents(store) == {}


@pytest.mark.parametrize("size", [MIB + 1, 8 * MIB])
def test_so_is_one_whose_size_nobody_told_as_soon_as_it_is_too_large(
    url: str, store: Store, size: int
) -> None:
    """White space behind an event is as large as anything else."""
    with Socket(url) as client:
        client.head(transfer_encoding="chunked")
        with suppress(ConnectionError):  # it is not listened to for so long
            client.send(chunked(GOOD + b" " * (size - len(GOOD)))[:-5])  # and it never ends
        assert said(client.answer()) == (413, "too_large")
        assert client.is_closed()
    assert contents(store) == {}


@pytest.mark.parametrize("length", [str(10**19), "9" * 20])
def test_no_length_is_too_large_to_be_refused(url: str, length: str) -> None:
    with Socket(url) as client:
        client.head(content_length=length)
        assert client.answer().status == 413


def test_who_asks_before_it_sends_is_not_told_to_go_on_with_too_much(url: str) -> None:
    with Socket(url) as client:
        client.head(content_length=str(MIB + 1), expect="100-continue")
        assert client.answer().status == 413


def test_who_asks_before_it_sends_is_told_to_go_on_with_the_rest(url: str) -> None:
    with Socket(url) as client:
        client.head(content_length=str(len(GOOD)), expect="100-continue")
        assert client.answer().status == 100
        client.send(GOOD)
        assert client.answer().json["outcome"] == "applied"


@pytest.mark.usefixtures("patient")
def test_a_client_that_reads_only_after_it_sent_all_still_hears_it(url: str) -> None:
    with Socket(url) as client:
        client.head(content_length=str(2 * MIB))
        client.send(b" " * 2 * MIB)
        assert client.answer().status == 413
        assert client.is_closed()


def test_of_all_bodies_together_no_more_is_held_than_there_is_room_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "HELD_BYTES_MAX", 600_000)
    with Socket(url) as first, Socket(url) as second:
        for client in (first, second):
            client.head(content_length="500000")  # it comes in several pieces
            client.send(b" " * 400_000)
        until(lambda: first.is_answered() or second.is_answered())
        [refused] = [client for client in (first, second) if client.is_answered()]
        assert said(refused.answer()) == (503, "busy")
        [taken] = {first, second} - {refused}
        taken.send(GOOD.rjust(100_000))
        assert taken.answer().json["outcome"] == "applied"
    for _ in range(5):  # what went through holds no more
        with Socket(url) as client:
            client.head(content_length="500000")
            client.send(GOOD.rjust(500_000))
            assert client.answer().json["outcome"] == "duplicate"


def test_what_is_sent_to_a_stream_takes_no_room(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(body, "HELD_BYTES_MAX", 600_000)
    with Socket(url) as stream, Socket(url) as other:
        stream.head("GET", "/v1/watch", content_length="5000000")
        until(stream.is_answered)
        stream.send(b" " * 3_000_000)
        other.head(content_length=str(len(GOOD)))
        other.send(GOOD)
        assert other.answer().json["outcome"] == "applied"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


# --- time -----------------------------------------------------------------------------------------


def test_headers_without_a_body_are_answered_when_its_time_is_over(
    url: str, store: Store, hasty: float
) -> None:
    with Socket(url) as client:
        client.head(content_length="100")
        answer = client.answer()
        assert said(answer) == (408, "timed_out")
        assert hasty <= answer.seconds < hasty + AT_ONCE
        assert client.is_closed()
    assert contents(store) == {}


def test_so_are_those_that_ask_to_go_on_and_do_not(url: str, hasty: float) -> None:
    with Socket(url) as client:
        client.head(content_length="100", expect="100-continue")
        assert client.answer().status == 100
        assert client.answer().status == 408


@pytest.mark.parametrize("encoding", ["length", "chunks"])
def test_a_body_that_trickles_has_no_more_time_than_another(
    url: str, store: Store, hasty: float, encoding: str
) -> None:
    by_length = encoding == "length"
    ended = threading.Event()

    def trickle() -> None:
        for byte in GOOD:
            try:
                client.send(bytes([byte]) if by_length else b"1\r\n%c\r\n" % byte)
            except OSError:
                return
            if ended.wait(0.05):
                return

    with Socket(url) as client:
        if by_length:
            client.head(content_length=str(len(GOOD)))
        else:
            client.head(transfer_encoding="chunked")
        thread = threading.Thread(target=trickle)
        thread.start()
        answer = client.answer()
        ended.set()
        thread.join()
        # Were each byte given its time anew, all of them would come, and the event be taken.
        assert said(answer) == (408, "timed_out")
        assert answer.seconds >= hasty
    assert contents(store) == {}


def test_meanwhile_others_are_served(url: str, http: httpx.Client) -> None:
    silent = [Socket(url) for _ in range(50)]
    for client in silent:
        client.head(content_length="100")
    began = time.monotonic()
    assert post(http, reported()).status_code == 200
    assert time.monotonic() - began < AT_ONCE
    for client in silent:
        client.close()


# --- refused by the headers alone -----------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], int]] = {
    "an origin": ({"origin": "http://evil.example"}, 403),
    "no origin": ({"origin": "null"}, 403),
    "another host": ({"host": "evil.example"}, 421),
    "no host": ({"host": None}, 421),
    "a form": ({"content_type": "application/x-www-form-urlencoded"}, 415),
    "no type": ({"content_type": None}, 415),
    "a read": ({"method": "GET"}, 405),
}


@pytest.mark.parametrize("name", BAD)
def test_headers_that_are_refused_are_answered_without_their_body(
    url: str, store: Store, name: str
) -> None:
    headers, status = BAD[name]
    for length in ({"content_length": "100"}, {"transfer_encoding": "chunked"}):
        with Socket(url) as client:
            client.head(**headers, **length)
            answer = client.answer()
            assert said(answer)[0] == status
            assert answer.seconds < AT_ONCE
            assert answer.headers["connection"] == "close"
            assert client.is_closed()
    assert contents(store) == {}


@pytest.mark.parametrize("name", BAD)
def test_the_headers_are_judged_before_the_size(url: str, name: str) -> None:
    headers, status = BAD[name]
    with Socket(url) as client:
        client.head(**headers, content_length=str(9 * MIB))
        assert client.answer().status == status


@pytest.mark.usefixtures("patient")
def test_a_client_that_sends_on_after_its_refusal_still_hears_it(url: str) -> None:
    for _ in range(20):  # a reset would take the answer away now and then
        with Socket(url) as client:
            client.head(origin="http://evil.example", content_length=str(MIB))
            client.send(b" " * MIB)
            answer = client.answer()
            assert said(answer)[0] == 403


# --- who goes away, and what is no HTTP -----------------------------------------------------------


def test_a_client_that_goes_away_is_no_error_and_leaves_no_trace(
    url: str, http: httpx.Client, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for length in ({"content_length": "1000"}, {"transfer_encoding": "chunked"}):
            for sent in (b"", GOOD[:20], b"3\r\n{  \r\n"):
                with Socket(url) as client:
                    client.head(**length)
                    client.send(sent)
        assert http.get("/version").status_code == 200  # it is still there
        connections = threading.active_count()
        until(lambda: threading.active_count() <= connections)
    assert [record.getMessage() for record in caplog.records if record.levelno > 20] == []
    assert contents(store) == {}


def test_several_posts_on_one_connection_are_each_answered(url: str, broker: Broker) -> None:
    bodies = [json.dumps(reported(str(n))).encode() for n in range(5)]
    with Socket(url) as client:
        for said in bodies:  # pipelined: the answers are read afterwards
            client.head(content_length=str(len(said)))
            client.send(said)
        assert [client.answer().json["key"] for _ in bodies] == [
            f"desk/ollama//{n}" for n in range(5)
        ]
    assert len(broker.jobs()) == 5


@pytest.mark.parametrize("rest", [b"zz\r\n", b"2\r\nabcdef\r\n"])
def test_a_body_that_goes_wrong_after_its_refusal_is_no_error(
    url: str, caplog: pytest.LogCaptureFixture, rest: bytes
) -> None:
    with Socket(url) as client:
        client.head(origin="null", transfer_encoding="chunked")
        assert client.answer().status == 403
        client.send(rest)
        assert client.is_closed()
    assert not [record for record in caplog.records if record.exc_info]


def test_a_body_that_goes_wrong_on_its_way_is_refused(url: str, store: Store) -> None:
    with Socket(url) as client:
        client.head(transfer_encoding="chunked")
        client.send(b"%x\r\n%s\r\n" % (len(GOOD), GOOD))
        client.send(b"zz\r\n")
        assert said(client.answer()) == (400, "not_http")
        assert client.is_closed()
    assert contents(store) == {}


SMUGGLED = {
    "both lengths": b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(GOOD),
    "a chunked nothing": b"transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\n" + chunked(GOOD),
    "two lengths": b"content-length: 2\r\ncontent-length: 20\r\n\r\n{}",
    "a negative length": b"content-length: -1\r\n\r\n{}",
    "a length with a sign": b"content-length: +2\r\n\r\n{}",
    "an unknown encoding": b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a hidden encoding": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a chunk without a size": b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a negative chunk": b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a chunk beyond all bounds": b"transfer-encoding: chunked\r\n\r\n" + b"f" * 30 + b"\r\n",
    "a header with a space": b"content-length : 2\r\n\r\n{}",
    "a folded header": b"content-length: 2\r\n x: y\r\n\r\n{}",
    "a header that never ends": b"x: " + b"y" * 200_000,
    "a line that is none": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_a_request_that_two_readers_could_read_differently_leaves_no_trace(
    url: str, http: httpx.Client, store: Store, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    host = url.removeprefix("http://").encode()
    with Socket(url) as client:
        with suppress(ConnectionError):  # it is not listened to for so long
            client.send(
                b"POST /v1/events HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\n%s"
                % (host, SMUGGLED[name])
            )
        answer = client.answer()
        assert 400 <= answer.status < 500
        assert client.is_closed()
    assert http.get("/version").status_code == 200
    assert contents(store) == {}
    assert not [record for record in caplog.records if record.exc_info]
