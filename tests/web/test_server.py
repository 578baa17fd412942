"""The server around the routes: who is cut off, who is told that there is no room, and how all of it ends."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest
import uvicorn

from broker import Misconfigured
from broker.readers.readers import Readers
from broker.web import protocol, server, stream
from tests.ports import free_port
from tests.system.command import until
from tests.web.asking import TOKEN, ask, connected, heard, place_of, served
from tests.web.crowd import served_at

HALF = b"GET /livez HTTP/1.1\r\nHost: "


def whole(url: str, path: str = "/livez") -> bytes:
    """A request that leaves the connection open."""
    return "GET {} HTTP/1.1\r\nHost: {}:{}\r\n\r\n".format(path, *place_of(url)).encode()


def is_cut_off(connection: socket.socket, said: bytes) -> bool:
    """Whether that is answered by the end alone, which may come while it is still being said."""
    with suppress(ConnectionError):
        for byte in said:
            connection.sendall(bytes([byte]))
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def followed(url: str) -> socket.socket:
    """A connection on which a stream has begun: another one, where we were too slow to ask on the first."""
    while True:
        connection = connected(url)
        with suppress(ConnectionError):
            connection.sendall(whole(url, "/v1/watch"))
            while said := connection.recv(65_536):
                if b"ready" in said:
                    return connection
        connection.close()


# --- who is cut off -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"G", HALF, HALF + b"x" * 5_000])
def test_whoever_never_ends_the_head_of_a_request_is_cut_off(
    url: str, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 0.3)
    with closing(connected(url)) as slow:
        assert is_cut_off(slow, said)


def test_nor_does_a_second_request_last_for_ever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(connected(url)) as slow:
        slow.sendall(whole(url))
        until(lambda: b"checks" in slow.recv(65_536))
        monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 0.3)
        begun = time.monotonic()
        assert is_cut_off(slow, HALF)  # a byte now and then keeps nothing alive
        assert time.monotonic() - begun < 20  # a connection may rest for 30


def test_a_request_in_hand_is_not_cut_off(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 0.2)
    with closing(followed(url)) as follower:
        follower.settimeout(0.6)
        with suppress(TimeoutError):
            while True:
                assert follower.recv(65_536) != b""


def test_a_head_that_is_too_large_or_no_http_is_told_so(url: str) -> None:
    for said in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET /\r\n\r\n", HALF + b"x" * 70_000):
        with closing(connected(url)) as connection:
            answer = b""
            with suppress(ConnectionError):
                connection.sendall(said)
            with suppress(ConnectionError):  # where it did not read all, a reset follows its answer
                while piece := connection.recv(65_536):
                    answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request")
        assert b"content-security-policy" in head
        assert json.loads(body)["rule"] == "not_http"


def test_strangers_do_not_fill_the_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("uvicorn.error").filters.clear()
    logging.getLogger("uvicorn.error").addFilter(protocol.Seldom())
    for _ in range(5):
        with closing(connected(url)) as connection:
            connection.sendall(b"\0\r\n\r\n")
            heard(connection)
    assert [one.message for one in caplog.records if one.name == "uvicorn.error"] == [
        "Invalid HTTP request received."
    ]


# --- room ---------------------------------------------------------------------------------------------------------


def test_one_client_too_many_is_told_so_and_one_of_many_is_not_heard(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CLIENTS_MAX", 3)
    monkeypatch.setattr(protocol, "CONNECTIONS_MAX", 5)
    monkeypatch.setattr(protocol, "HEAD_SECONDS_MAX", 600)  # who says nothing stays
    port = place_of(url)[1]
    with ExitStack() as held:
        idle = [held.enter_context(closing(connected(url))) for _ in range(3)]
        answer = ask(url, "/v1/jobs")
        assert answer.refusal == (503, "busy")
        assert answer.headers["retry-after"] == "1"
        assert ask(url, "/livez").status == 200
        until(lambda: len(served_at(port)) == 3)  # whoever asked counts until it is seen to be gone
        idle += [held.enter_context(closing(connected(url))) for _ in range(2)]
        until(lambda: len(served_at(port)) == 5)
        with closing(connected(url)) as unheard, suppress(ConnectionError):
            unheard.sendall(whole(url))
            assert heard(unheard) == b""
        idle[0].close()
        idle[1].close()
        idle[2].close()
        until(lambda: ask(url, "/v1/jobs").status == 200)


# --- the end ------------------------------------------------------------------------------------------------------


def test_a_stream_ends_when_the_order_comes_and_the_server_within_seconds(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "END_SECONDS_MAX", 60)  # what is left in hand would be waited for
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 600)  # and it says nothing by itself
    draining, listen = threading.Event(), f"127.0.0.1:{free_port()}"  # nobody else is given it
    with (
        served(redis_url, namespace, draining=draining, listen=listen) as url,
        closing(connected(url)) as follower,
    ):
        follower.sendall(whole(url, "/v1/watch"))
        until(lambda: b"ready" in follower.recv(65_536))
        draining.set()
        begun = time.monotonic()
        heard(follower)
        assert time.monotonic() - begun < 30
        assert ask(url, "/readyz").status == 503
    assert time.monotonic() - begun < 30
    with pytest.raises(ConnectionError):
        connected(url)


def test_what_was_asked_before_the_end_is_answered(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body comes late: by then the server takes nothing new."""
    monkeypatch.setattr(server, "END_SECONDS_MAX", 60)
    with served(redis_url, namespace) as url:
        connection = connected(url)
        body = b'{"engine":"e","payload":1,"id":"late"}'
        head = "POST /v1/jobs HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
        head += "Expect: 100-continue\r\n\r\n"
        connection.sendall(head.format(*place_of(url), len(body)).encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")  # it was let in
        threading.Timer(0.5, connection.sendall, [body]).start()
    with closing(connection):
        answer = heard(connection)
    assert answer.startswith(b"HTTP/1.1 201 ")


def test_a_server_whose_loop_ends_says_so(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken, died = threading.Event(), threading.Event()
    tick = uvicorn.Server.on_tick

    async def breaks(self: uvicorn.Server, counter: int) -> bool:
        if is_broken.is_set():
            raise MemoryError("no room for a tick")
        return await tick(self, counter)

    def die() -> None:
        with served(redis_url, namespace, died=died.set) as url:
            assert ask(url, "/livez").status == 200
            is_broken.set()
            assert died.wait(60)

    monkeypatch.setattr(uvicorn.Server, "on_tick", breaks)
    with pytest.raises(RuntimeError, match=r"HTTP ended by itself: .*no room for a tick"):
        die()


# --- where it listens ---------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told_by_the_setting(url: str, serve: Callable[..., str]) -> None:
    listen = "{}:{}".format(*place_of(url))
    with pytest.raises(Misconfigured) as told:
        serve(listen=listen)
    assert str(told.value) == (
        f"setting listen: cannot listen at {listen}: another program listens there (a second serve or up?); "
        "give another one by --listen or BROKER_LISTEN: HOST:PORT, or off"
    )


@pytest.mark.parametrize(
    "listen,why",
    [
        ("192.0.2.1:7070", "assign"),
        ("nowhere.invalid:7070", ""),
        ("broker..example:7070", "no host name"),
        (f"{'a' * 64}.example:7070", "no host name"),
    ],
)
def test_an_address_that_is_not_ours_is_told(
    serve: Callable[..., str], listen: str, why: str
) -> None:
    with pytest.raises(Misconfigured) as told:
        serve(listen=listen, token=TOKEN)
    assert str(told.value).startswith(f"setting listen: cannot listen at {listen}: ")
    assert why in str(told.value)
    assert "Errno" not in str(told.value)


@pytest.mark.parametrize(
    "flags", [{"listen": "0.0.0.0:0"}, {"listen": "[::]:0"}, {"hosts": ["fleet.example"]}]
)
def test_nobody_else_is_served_without_a_token(
    serve: Callable[..., str], flags: dict[str, object]
) -> None:
    with pytest.raises(Misconfigured, match=r"setting token: .*BROKER_TOKEN_FILE"):
        serve(**flags)


def test_everybody_reaches_a_server_that_listens_everywhere(serve: Callable[..., str]) -> None:
    url = serve(listen="0.0.0.0:0", token=TOKEN)
    assert url.startswith("http://127.0.0.1:")
    assert ask(url).status == 200
    assert serve(listen="localhost:0").startswith("http://127.0.0.1:")
    if Path("/proc/net/if_inet6").exists():  # else a host without IPv6
        url = serve(listen="[::]:0", token=TOKEN)
        assert ask(url).status == 200
        assert ask(f"http://127.0.0.1:{place_of(url)[1]}").status == 200


# --- the pages about the API --------------------------------------------------------------------------------------


def test_the_page_of_the_api_needs_nothing_but_this_server(http: httpx.Client) -> None:
    page = http.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    links = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert "/static/docs.js" in links
    for link in links:
        assert link.startswith("/")
        assert http.get(link).status_code == 200
    assert "<style" not in page.text
    assert not re.search(r"<script[^>]*>[^<]", page.text)
    script = http.get("/static/docs.js").text
    assert "innerHTML" not in script
    assert not re.search(r"https?://", script.replace("http://www.w3.org", ""))


def test_a_bug_is_told_without_its_words(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def position(_: Readers) -> str:
        raise ZeroDivisionError("secret words")

    until(
        lambda: "last-event-id" in ask(url, "/v1/jobs").headers
    )  # listed: from now on it is asked for
    monkeypatch.setattr(Readers, "position", property(position))
    answer = ask(url, "/v1/jobs")
    assert answer.refusal == (500, "error")
    assert b"secret" not in answer.body
    assert "content-security-policy" in answer.headers
    until(lambda: ZeroDivisionError in [one.exc_info[0] for one in caplog.records if one.exc_info])
