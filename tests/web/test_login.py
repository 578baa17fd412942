"""The login: the token once, then a cookie that no script sees and that ends with the token."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.cookies import Morsel, SimpleCookie

import pytest
from pydantic import SecretStr

from broker.web import auth, guard
from broker.web.auth import SESSION_SECONDS, WRONG_SECONDS, Gate
from tests.web.asking import BEARER, EVIL, JSON, TOKEN, Answer, ask, place_of, post

WRONG = b'{"token":"incorrect-horse-battery"}'
RIGHT = b'{"token":"%s"}' % TOKEN.encode()


@pytest.fixture
def locked(serve: Callable[..., str]) -> str:
    return serve(token=TOKEN)


def cookie_of(answer: Answer) -> Morsel[str]:
    [morsel] = SimpleCookie(answer.headers["set-cookie"]).values()
    return morsel


def log_in(url: str) -> tuple[str, str]:
    """The header that a browser sends from then on."""
    morsel = cookie_of(post(url, "/login", JSON, ("Origin", url), body=RIGHT))
    return "Cookie", f"theme=dark; {morsel.key}={morsel.value}"


def forged(url: str, token: str = TOKEN, clock: Callable[[], float] = time.time) -> tuple[str, str]:
    """What a server with this token, at this time, would have given."""
    gate = Gate(SecretStr(token), place_of(url)[1], clock)
    return "Cookie", f"{gate.cookie}={gate.login()}"


def is_in(url: str, cookie: tuple[str, str]) -> bool:
    status = ask(url, "/v1/jobs", cookie).status
    assert status in (200, 401)
    return status == 200


def test_the_token_is_given_once_and_then_the_cookie_is_enough(locked: str) -> None:
    cookie = log_in(locked)
    assert ask(locked, "/v1/jobs", cookie).status == 200
    assert ask(locked, "/", cookie).status == 200
    own = ("Origin", locked)
    answer = post(locked, "/v1/jobs", JSON, own, cookie, body=b'{"engine":"e","payload":1}')
    assert answer.status == 201
    assert post(locked, "/v1/jobs/cancel", JSON, EVIL, cookie).refusal == (403, "foreign_origin")


def test_the_cookie_is_out_of_reach_and_says_nothing(locked: str) -> None:
    answer = post(locked, "/login", JSON, body=RIGHT)
    assert (answer.status, answer.body) == (204, b"")
    morsel = cookie_of(answer)
    assert morsel.key == f"broker_{place_of(locked)[1]}"
    assert (morsel["httponly"], morsel["samesite"].lower(), morsel["path"]) == (True, "strict", "/")
    assert (morsel["secure"], morsel["domain"]) == ("", "")
    assert int(morsel["max-age"]) == SESSION_SECONDS
    assert TOKEN not in answer.headers["set-cookie"]
    assert answer.headers["cache-control"] == "no-store"


def test_behind_https_it_travels_by_https_alone(serve: Callable[..., str]) -> None:
    url = serve(token=TOKEN, hosts="fleet.example")
    origin = ("Origin", "https://fleet.example")
    answer = post(url, "/login", JSON, origin, body=RIGHT, host="fleet.example")
    assert cookie_of(answer)["secure"]


def test_a_page_without_a_login_is_led_to_it(locked: str) -> None:
    led = {
        "/": "/login",
        "/docs": "/login?next=%2Fdocs",
        "/jobs/desk%2Fe?state=failed": "/login?next=%2Fjobs%2Fdesk%252Fe%3Fstate%3Dfailed",
        "//evil.example/": "/login?next=%2F%2Fevil.example%2F",
    }
    for path, location in led.items():
        answer = ask(locked, path, ("Accept", "text/html"))
        assert (answer.status, answer.headers["location"]) == (303, location)
    page = ask(locked, "/login")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    assert TOKEN.encode() not in page.body


@pytest.mark.parametrize("change", [
    lambda value: value[:-1] + ("0" if value[-1] != "0" else "1"),
    lambda value: str(int(value.partition(".")[0]) + 1) + "." + value.partition(".")[2],
    lambda value: value.partition(".")[0],
    lambda value: "." + value.partition(".")[2],
    lambda value: "9" * 5000 + "." + value.partition(".")[2],
    lambda value: "\xb2" + value,
    lambda value: value + ".",
    lambda value: TOKEN,
    lambda value: "",
])  # fmt: skip
def test_a_cookie_that_was_tampered_with_is_none(locked: str, change: Callable[[str], str]) -> None:
    name, _, value = log_in(locked)[1].partition("; ")[2].partition("=")
    assert is_in(locked, ("Cookie", f"{name}={value}"))
    assert not is_in(locked, ("Cookie", f"{name}={change(value)}"))
    assert is_in(
        locked, ("Cookie", f"{name}={change(value)}; {name}={value}")
    )  # an older one of another path


def test_a_login_ends_after_a_week(locked: str) -> None:
    minute = 60
    assert is_in(locked, forged(locked, clock=lambda: time.time() - SESSION_SECONDS + minute))
    assert not is_in(locked, forged(locked, clock=lambda: time.time() - SESSION_SECONDS - minute))


def test_a_new_token_ends_every_login(locked: str) -> None:
    assert is_in(locked, forged(locked))
    assert not is_in(locked, forged(locked, token="the-token-of-before-it"))


def test_the_cookie_of_another_server_on_this_host_is_left_alone(
    serve: Callable[..., str], locked: str
) -> None:
    other = serve(token=TOKEN[::-1])
    assert (
        cookie_of(post(other, "/login", JSON, body=b'{"token":"%s"}' % TOKEN[::-1].encode())).key
        not in log_in(locked)[1]
    )


def test_logging_out_has_the_browser_forget(locked: str) -> None:
    cookie = log_in(locked)
    assert post(locked, "/logout", JSON).refusal == (401, "unauthorized")
    answer = post(locked, "/logout", JSON, ("Origin", locked), cookie)
    assert answer.status == 204
    morsel = cookie_of(answer)
    assert (morsel.value, morsel["max-age"], morsel["path"]) == ("", "0", "/")


@pytest.mark.parametrize(
    "body,status",
    [
        (b"", 400), (b"{", 400), (b"[]", 400), (b"{}", 400), (b'{"token":7}', 400), (b'{"token":null}', 400),
        (b'{"token":""}', 401), (b'{"token":"\\ud800"}', 401), (b'{"token":"%s "}' % TOKEN.encode(), 401), (WRONG, 401),
        (b'{"token":"' + b"x" * 5_000 + b'"}', 413),
    ],
)  # fmt: skip
def test_what_is_no_login_gets_no_cookie(locked: str, body: bytes, status: int) -> None:
    answer = post(locked, "/login", JSON, body=body)
    assert answer.refusal[0] == status
    assert "set-cookie" not in answer.headers
    assert b"horse" not in answer.body


def wrongly(url: str) -> list[Callable[[], Answer]]:
    """Each way to give a wrong token."""
    return [
        lambda: post(url, "/login", JSON, body=WRONG),
        lambda: ask(url, "/v1/jobs", ("Authorization", "Bearer x")),
    ]


def test_a_wrong_token_waits(locked: str) -> None:
    for asking in wrongly(locked):
        begun = time.monotonic()
        assert asking().status == 401
        assert time.monotonic() - begun >= WRONG_SECONDS


def test_nobody_waits_with_a_wrong_token(locked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (auth, guard):  # until the server ends, on any machine
        monkeypatch.setattr(module, "WRONG_SECONDS", 600)

    def waits(asking: Callable[[], Answer]) -> None:
        with suppress(ConnectionError):
            asking()

    asked = [
        threading.Thread(target=waits, args=(asking,), daemon=True) for asking in wrongly(locked)
    ]
    for thread in asked:
        thread.start()
    assert ask(locked, "/v1/jobs", BEARER).status == 200
    assert post(locked, "/login", JSON, body=RIGHT).status == 204
    assert all(thread.is_alive() for thread in asked)


def test_where_there_is_no_token_there_is_nothing_to_log_in_to(url: str) -> None:
    answer = post(url, "/login", JSON, body=RIGHT)
    assert answer.status == 204
    assert "set-cookie" not in answer.headers
    assert ask(url, "/version").json["login"] is False
