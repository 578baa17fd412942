"""The dashboard's files: what they are served as, how long they are kept, and what they may do in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from broker.web import pages

STATIC = Path(pages.__file__).parent / "static"
FILES = sorted(path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file())
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}

#: Where a view of the page lives, each of which may be the first that somebody asks for.
VIEWS = ("/", "/jobs", "/jobs?state=failed&q=x", "/nodes", "/failures", "/groups", "/streams")
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", [*VIEWS, "/jobs/desk%2Follama%2F%2F7", "/jobs/desk/ollama//7"])
def test_every_view_is_the_same_page(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert answer.status_code == 200
    assert answer.content == (STATIC / "index.html").read_bytes()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_each_file_is_served_as_what_it_is(http: httpx.Client) -> None:
    for name in FILES:
        answer = http.get(f"/static/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith(TYPES[Path(name).suffix]), name
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.content == (STATIC / name).read_bytes()


def test_a_file_that_is_known_is_not_sent_again_and_always_asked_about(http: httpx.Client) -> None:
    first = http.get("/static/app.js")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = http.get("/static/app.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert http.get("/static/app.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert http.get("/static/base.css").headers["etag"] != tag


def test_a_head_is_answered_without_the_file(http: httpx.Client) -> None:
    answer = http.head("/jobs")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) == (STATIC / "index.html").stat().st_size


@pytest.mark.parametrize("path", ["/", "/login", "/static/app.js"])
def test_nothing_but_our_own_files_may_act_in_a_page(http: httpx.Client, path: str) -> None:
    policy = dict(
        part.split(" ", 1) for part in http.get(path).headers["content-security-policy"].split("; ")
    )
    assert policy == {
        "default-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "object-src": "'none'",
    }


def test_no_page_holds_a_script_or_a_style_of_its_own_or_of_somebody_else() -> None:
    for name in FILES:
        text = (STATIC / name).read_text()
        assert not re.search(
            r"(?:https?:)?//[a-z0-9]", text.replace("http://www.w3.org/2000/svg", "")
        ) or (
            name.endswith(".js")
            and not re.search(
                r"""["'`(](?:https?:)?//[a-z0-9]""", text.replace("http://www.w3.org/2000/svg", "")
            )
        ), name
        if name.endswith(".html"):
            assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", text), name
        if name.endswith(".js"):
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|DOMParser", text
            ), name


@pytest.mark.parametrize(
    "name",
    [
        "../pages.py",
        "..%2fpages.py",
        "%2e%2e/pages.py",
        "views/../../pages.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "app.js%00",
        "views",
        "",
        "none.js",
    ],
)
def test_nothing_outside_of_the_folder_is_served(http: httpx.Client, url: str, name: str) -> None:
    # As it stands: a client would take the dots out of the path itself.
    with httpx.Client(trust_env=False, timeout=60) as bare:
        request = bare.build_request("GET", url)
        request.url = request.url.copy_with(raw_path=f"/static/{name}".encode())
        answer = bare.send(request)
    assert answer.status_code == 404
    assert answer.json()["rule"] == "not_found"
    assert http.get("/livez").status_code == 200


def test_where_no_page_is_people_are_shown_one_and_programs_a_problem(http: httpx.Client) -> None:
    shown = http.get("/nowhere", headers=BROWSER)
    assert shown.status_code == 404
    assert shown.content == (STATIC / "index.html").read_bytes()
    for told in (http.get("/nowhere"), http.get("/v1/nowhere", headers=BROWSER)):
        assert told.status_code == 404
        assert told.headers["content-type"] == "application/problem+json"


def test_whoever_must_log_in_is_given_the_login_page_and_what_it_needs(
    serve: Callable[..., str],
) -> None:
    url = serve(token="0123456789abcdef0123")
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as stranger:
        page = stranger.get("/login")
        assert page.status_code == 200
        needed = re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text)
        assert "/static/login.js" in needed
        for path in needed:
            assert stranger.get(path).status_code == 200
        sent = stranger.get("/jobs?state=failed", headers=BROWSER)
        assert sent.status_code in (302, 303, 307)
        assert sent.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Dfailed"
        assert stranger.get("/v1/jobs").status_code == 401
