"""Who may ask at all: each row of the guard, in its order, on every route that there is."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from broker.web import guard, health
from broker.web.auth import Gate
from broker.web.guard import ALWAYS
from broker.web.hosts import Door, is_own
from tests.system.command import until
from tests.web.asking import (
    BEARER,
    EVIL,
    FORM,
    JSON,
    MUTATING,
    PATHS,
    TOKEN,
    ask,
    connected,
    heard,
    place_of,
    post,
    routes,
    served,
)

WRONG_HOST = (421, "wrong_host")
FOREIGN = (403, "foreign_origin")
NOT_JSON = (415, "not_json")
STRANGER = (401, "unauthorized")
INGRESS = "/v1/events"
LOGIN = "/login"

each_mutating = pytest.mark.parametrize("path", MUTATING)


@pytest.fixture(scope="module", autouse=True)
def _at_once() -> Iterator[None]:
    """How long a wrong token waits is another test's, and so is how long Redis may take before we are not ready."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "WRONG_SECONDS", 0)
        patch.setattr(health, "ANSWER_SECONDS_MAX", 60.0)
        yield


@pytest.fixture(scope="module")
def url(redis_url: str) -> Iterator[str]:
    """A server on loopback, as it is without any setting; one for all tests here."""
    with served(redis_url, "open") as url:
        yield url


@pytest.fixture(scope="module")
def locked(redis_url: str) -> Iterator[str]:
    """One that asks for the token, also on loopback."""
    with served(redis_url, "locked", token=TOKEN) as url:
        until(lambda: ask(url, "/readyz").status == 200)  # from here on each answer stays the same
        yield url


@pytest.fixture(scope="module")
def outside(redis_url: str) -> Iterator[str]:
    """One that others reach; from here by 127.0.0.1."""
    more = {"listen": "0.0.0.0:0", "hosts": ["fleet.example"]}
    with served(redis_url, "outside", token=TOKEN, **more) as url:
        yield url


def test_the_routes_are_all_of_them(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()["paths"]
    told = {(method.upper(), path) for path, item in document.items() for method in item}
    assert told <= set(routes())
    assert len(MUTATING) >= 11
    assert {INGRESS, LOGIN, "/logout", "/v1/jobs", "/v1/jobs/cancel"} <= set(MUTATING)


# --- Host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}", "localhost.evil.example:{port}", "evil.example", "localhost", "127.0.0.1",
        "localhost:1", "127.0.0.1:{port}0", "localhost:{port}.evil.example", "localhost.:{port}",
        "user@localhost:{port}", "10.0.0.1:{port}", "0.0.0.0:{port}", "[::]:{port}", "::1:{port}", "127.1:{port}",
        "[127.0.0.1]:{port}", "[::ffff:127.0.0.1]:{port}", "localhost:{port},evil.example", "localhost:", "", None,
    ],
)  # fmt: skip
def test_whoever_calls_us_by_another_name_is_refused(url: str, host: str | None) -> None:
    said = host and host.format(port=place_of(url)[1])
    assert ask(url, host=said if said != "" else " ").refusal == WRONG_HOST


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "LocalHost:{port}", "127.0.0.1:{port}", "127.9.8.7:{port}", "[::1]:{port}"]
)  # fmt: skip
def test_the_names_of_this_machine_with_our_port_are_ours(url: str, host: str) -> None:
    assert ask(url, host=host.format(port=place_of(url)[1])).status == 200


def test_two_hosts_are_none(url: str) -> None:
    host = "{}:{}".format(*place_of(url))
    with closing(connected(url)) as connection:
        connection.sendall(f"GET /livez HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n".encode())
        said = heard(connection)
    assert said.startswith(b"HTTP/1.1 421 Misdirected Request\r\n")
    assert json.loads(said.rpartition(b"\r\n\r\n")[2])["rule"] == "wrong_host"


def test_an_old_client_without_a_host_is_refused(url: str) -> None:
    with closing(connected(url)) as connection:
        connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert heard(connection).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("path", [*PATHS, "/nowhere", "/static/nothing.js", "//", "/v1/jobs/"])
def test_a_rebound_name_reaches_no_route(url: str, path: str) -> None:
    rebound = f"evil.example:{place_of(url)[1]}"
    for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE"):
        answer = ask(url, path, JSON, method=method, host=rebound)
        assert answer.status == 421
        assert method == "HEAD" or answer.refusal == WRONG_HOST


@pytest.mark.parametrize(
    "host,status",
    [
        ("127.0.0.1:{port}", 200), ("localhost", 200), ("192.0.2.7", 200), ("192.0.2.7:80", 200),
        ("[2001:db8::7]:1", 200),
        ("fleet.example", 200), ("FLEET.example:8443", 200),
        ("evil.example", 421), ("evil.example:{port}", 421), ("fleet.example.evil.example", 421), ("2001:db8::7", 421),
    ],
)  # fmt: skip
def test_others_call_us_by_an_address_or_a_given_name(outside: str, host: str, status: int) -> None:
    assert ask(outside, host=host.format(port=place_of(outside)[1])).status == status


def test_on_ipv6_it_is_the_same(serve: Callable[..., str]) -> None:
    door = Door("::1", 7070)
    assert [door.knows(host) for host in ("[::1]:7070", "[::1]", "[::1]:7071")] == [
        True,
        False,
        False,
    ]
    assert door.url == "http://[::1]:7070"
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:  # a host without it
        return
    url = serve(listen="[::1]:0")
    assert url.startswith("http://[::1]:")
    port = place_of(url)[1]
    assert [ask(url, host=f"{name}:{port}").status for name in ("[::1]", "localhost", "[::2]")] == [
        200,
        200,
        421,
    ]


def test_port_80_need_not_be_named() -> None:
    door = Door("127.0.0.1", 80)
    assert door.knows("localhost")
    assert door.knows("localhost:80")
    assert not door.knows("localhost:8080")


# --- pages of others ----------------------------------------------------------------------------------------------


@each_mutating
def test_a_form_of_another_origin_is_refused_on_every_mutating_route(url: str, path: str) -> None:
    for headers in ([EVIL, FORM], [EVIL, JSON], [EVIL, ("Content-Type", "text/plain")]):
        assert post(url, path, *headers, body=b'{"engine":"e"}').refusal == FOREIGN
    assert post(url, path, FORM, body=b"engine=e").refusal == NOT_JSON


@each_mutating
@pytest.mark.parametrize(
    "origin",
    ["null", "", "http://localhost", "https://evil.example", "http://localhost:{port}.evil.example",
     "http://127.0.0.1:1", "file://", "http://127.0.0.1:{port}/", "http://127.0.0.1:{port} ", "http://localhost:{port}"],
)  # fmt: skip
def test_an_origin_that_is_not_exactly_ours_is_refused(url: str, path: str, origin: str) -> None:
    said = ("Origin", origin.format(port=place_of(url)[1]))
    if said[1].endswith(" "):  # what surrounds a header's value is no part of it
        said = ("Origin", said[1].strip() + "0")
    assert post(url, path, said, JSON).refusal == FOREIGN


@each_mutating
def test_our_own_origin_may_but_for_the_ingress(url: str, path: str) -> None:
    own = ("Origin", url)
    answer = post(url, path, own, JSON)
    if path == INGRESS:
        assert answer.refusal == FOREIGN
    else:
        assert answer.status not in (401, 403, 415, 421)
    assert post(url, path, own, own, JSON).refusal == FOREIGN


@each_mutating
@pytest.mark.parametrize(
    "given",
    [[], [("Content-Type", "text/plain")], [("Content-Type", "application/json-seq")], [JSON, JSON],
     [("Content-Type", "application/json, text/plain")], [("Content-Type", "")],
     [("Content-Type", "text/plain;application/json")]],
)  # fmt: skip
def test_what_is_not_said_to_be_json_is_refused(
    url: str, path: str, given: list[tuple[str, str]]
) -> None:
    assert post(url, path, *given, body=b'{"engine":"e"}').refusal == NOT_JSON


@pytest.mark.parametrize("said", ["application/json; charset=utf-8", "Application/JSON ;x=y"])
def test_json_may_name_its_charset(url: str, said: str) -> None:
    assert post(url, "/logout", ("Content-Type", said)).status == 204


@pytest.mark.parametrize(
    "origin,host,scheme,own",
    [
        ("http://localhost:7070", "localhost:7070", "http", True),
        ("HTTP://LOCALHOST:7070", "localhost:7070", "http", True),
        ("https://fleet.example", "fleet.example", "http", True),
        ("http://fleet.example", "fleet.example:80", "http", True),
        ("https://fleet.example:443", "fleet.example", "http", True),
        ("http://fleet.example", "fleet.example", "https", False),
        ("http://fleet.example:81", "fleet.example", "http", False),
        ("ftp://fleet.example", "fleet.example", "http", False),
        ("http://[::1]:7070", "[::1]:7070", "http", True),
        ("http://a@localhost:7070", "localhost:7070", "http", False),
        ("localhost:7070", "localhost:7070", "http", False),
    ],
)
def test_an_origin_is_scheme_host_and_port(origin: str, host: str, scheme: str, own: bool) -> None:
    assert is_own(origin, host, scheme) is own


# --- the token ----------------------------------------------------------------------------------------------------


@each_mutating
def test_without_the_token_nothing_is_changed(locked: str, path: str) -> None:
    wrong = ("Cookie", f"broker_{place_of(locked)[1]}=9999999999.{'0' * 64}")
    for headers in (
        [JSON],
        [JSON, ("Origin", locked)],
        [JSON, wrong],
        [JSON, ("Cookie", "x; =; a=b=c")],
    ):
        answer = post(locked, path, *headers)
        if path == LOGIN or (path == INGRESS and len(headers) > 1 and headers[1][0] == "Origin"):
            assert answer.status in (400, 403)
        else:
            assert answer.refusal == STRANGER
            assert answer.headers["www-authenticate"] == "Bearer"
    if path not in (LOGIN, INGRESS):
        assert post(locked, path, JSON, BEARER).status not in (401, 403, 415, 421)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_token_but_health_and_the_login(
    locked: str, path: str
) -> None:
    answer = ask(locked, path)
    if path in ("/livez", "/readyz", "/version", LOGIN) or path.startswith("/static/"):
        assert answer.status not in (303, 401)
    elif path == "/":
        assert (answer.status, answer.headers["location"]) == (303, LOGIN)
    else:
        assert answer.refusal == STRANGER
    page = ask(locked, path, ("Accept", "text/html,*/*"))
    assert page.status == (
        303 if answer.status == 401 and not path.startswith("/v1/") else answer.status
    )


@pytest.mark.parametrize(
    "given",
    [TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer ", f"bearer{TOKEN}", "Bearer \xff"],
)
def test_a_token_that_is_not_the_token_is_refused(locked: str, given: str) -> None:
    assert ask(locked, "/v1/jobs", ("Authorization", given)).refusal == STRANGER


def test_the_token_opens_everything_and_its_scheme_is_spelled_as_one_likes(locked: str) -> None:
    for scheme in ("Bearer", "bearer", "BEARER  "):
        assert ask(locked, "/v1/jobs", ("Authorization", f"{scheme} {TOKEN}")).status == 200
    assert ask(locked, "/v1/jobs", BEARER, BEARER).refusal == STRANGER


def test_the_token_is_never_read_from_a_url(locked: str) -> None:
    for path in (f"/v1/jobs?token={TOKEN}", f"/v1/jobs?access_token={TOKEN}", f"/?token={TOKEN}"):
        assert ask(locked, path).status in (303, 401)


# --- order, and form ----------------------------------------------------------------------------------------------


def test_the_first_wrong_thing_is_what_is_told(locked: str) -> None:
    evil, path = "evil.example", "/v1/jobs"
    assert post(locked, path, EVIL, FORM, host=evil).refusal == WRONG_HOST
    assert post(locked, path, EVIL, FORM).refusal == FOREIGN
    assert post(locked, path, FORM).refusal == NOT_JSON
    assert post(locked, path, JSON).refusal == STRANGER
    assert post(locked, path, JSON, BEARER, body=b"{").status == 400


def test_whatever_is_no_post_is_told_so_at_the_ingress(url: str) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        answer = ask(url, INGRESS, EVIL, method=method)
        assert answer.refusal[0] == 405
        assert answer.headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE", "BREW"])
def test_a_method_that_no_route_takes_is_told_so(url: str, locked: str, method: str) -> None:
    for path in PATHS:
        answer = ask(url, path, method=method)
        assert answer.refusal == (405, "method_not_allowed"), path
        assert answer.headers["allow"] == ask(url, path, method="OPTIONS").headers["allow"]
    assert ask(url, "/nowhere", method=method).refusal[0] == 404
    assert ask(url, "/v1/jobs", method=method, host="evil.example").refusal == WRONG_HOST
    assert ask(url, "/v1/jobs", EVIL, method=method).refusal == FOREIGN
    assert ask(locked, "/v1/jobs", method=method).refusal == STRANGER


@pytest.mark.parametrize(
    "headers,status",
    [
        (["Host: evil.example"], 421),
        (["Host: {host}", "Origin: null", "Content-Type: application/json"], 403),
        (["Host: {host}", "Content-Type: text/plain"], 415),
        (["Host: {host}", "Content-Type: application/json"], 401),
    ],
)
@pytest.mark.parametrize("length", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_refusal_does_not_wait_for_the_body(
    locked: str, headers: list[str], status: int, length: str
) -> None:
    lines = ["POST /v1/jobs HTTP/1.1", *headers, length, "", ""]
    with closing(connected(locked)) as connection:
        connection.sendall(
            "\r\n".join(lines).format(host="{}:{}".format(*place_of(locked))).encode()
        )
        assert heard(connection).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    "path,status", [("/livez", 200), ("/nowhere", 404), ("/v1/jobs", 200), (INGRESS, 405)]
)
def test_every_answer_forbids_what_a_browser_should_not_do(
    url: str, path: str, status: int
) -> None:
    for answer in (ask(url, path), ask(url, path, host="evil.example")):
        assert answer.status in (status, 421)
        assert {name: answer.headers[name.decode()] for name, _ in ALWAYS} == {
            name: value.decode() for name, value in ALWAYS
        }
        assert "server" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_preflight_is_answered_without_leave(url: str) -> None:
    asked = [
        EVIL,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type"),
    ]
    answer = ask(url, "/v1/jobs", *asked, method="OPTIONS")
    assert (answer.status, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/livez", "/v1/jobs", "/", "/v1/watch"])
def test_head_tells_what_get_would_without_its_body(url: str, path: str) -> None:
    answer = ask(url, path, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")


def test_a_stream_that_only_its_head_was_asked_of_ends_at_once() -> None:
    told: list[str] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        told.append(scope["method"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    async def send(message: Message) -> None:
        told.append(message["type"].rpartition(".")[2] + message.get("body", b"").decode())

    async def ask_head() -> None:
        scope = {"type": "http", "method": "HEAD", "path": "/livez", "scheme": "http"}
        scope |= {"headers": [(b"host", b"localhost:7070")]}
        guarded = guard.Guard(stream, Door("127.0.0.1", 7070), Gate())
        await asyncio.wait_for(guarded(scope, asyncio.Event().wait, send), 60)

    asyncio.run(ask_head())
    assert told == ["GET", "start", "body"]


def test_no_websocket_is_opened(url: str) -> None:
    upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
               ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]  # fmt: skip
    assert ask(url, "/livez", *upgrade).status == 200
