"""A real headless Chromium before a real HTTP server, and a page that fails the test on any error that it logs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from broker import Broker
from broker import settings as settings_of
from broker.store.store import Store
from broker.web.server import serving
from tests.browser.dashboard import Dashboard
from tests.browser.process import ServeProcess
from tests.ports import free_port

#: Nothing of the browser's own goes over the network: what a test sees requested, the page wanted.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)

#: How long a page may take to come to what is expected, in ms: the machines of CI are slow.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)

WIDE = {"width": 1440, "height": 900}


def browser_path() -> str | None:
    """The system's Chromium; none where the run was told that playwright fetched its own."""
    if (named := os.environ.get("FLEET_BROKER_CHROMIUM")) is not None:
        return named or None
    return shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"


# As long as playwright runs, its loop is the running one of this thread, and tests of other folders want their own.
# The scope needs `__init__.py`: without it pytest keeps the fixture until the session ends.
@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Started once for all browser tests. Where there is none, each of them is an error."""
    with sync_playwright() as playwright:
        path = browser_path()
        try:
            browser = playwright.chromium.launch(
                executable_path=path, args=list(FLAGS), timeout=2 * PATIENCE_MS
            )
        except Error as missing:
            pytest.fail(
                f"the browser tests need a Chromium (FLEET_BROKER_CHROMIUM, or on PATH): {missing}",
                pytrace=False,
            )
        yield browser
        browser.close()


@pytest.fixture
def serve(redis_url: str, namespace: str) -> Iterator[Callable[..., str]]:
    """Starts a server in this process, with settings where a test needs them; gives its url."""
    with ExitStack() as ending:

        def start(**flags: object) -> str:
            given = {"namespace": namespace, "node": "desk", "listen": "127.0.0.1:0"} | flags
            broker = Broker(Store.from_url(redis_url, namespace), settings_of(**given))
            return ending.enter_context(serving(broker))

        yield start


@pytest.fixture
def url(serve: Callable[..., str]) -> str:
    return serve()


@pytest.fixture
def serve_process(redis_url: str, namespace: str, tmp_path: Path) -> Iterator[ServeProcess]:
    """A real `broker serve`, which a test may kill and start again at the same address."""
    process = ServeProcess(redis_url, namespace, free_port(), tmp_path)
    yield process
    process.kill()


@pytest.fixture
def open_dashboard(chromium: Browser, url: str) -> Iterator[Callable[..., Dashboard]]:
    """Opens dashboards, each as another person's browser: `open_dashboard(path, at=..., allow=..., **options)`.

    `allow` is what the console may say of errors: a pattern. Everything else that goes wrong in a page fails the test,
    and so does a request to another host.
    """
    with ExitStack() as ending:
        watched: list[Watched] = []

        def start(path: str = "/", *, at: str = "", allow: str = "", **options: Any) -> Dashboard:
            context = chromium.new_context(
                **{"viewport": WIDE, "reduced_motion": "reduce"} | options
            )
            ending.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            watched.append(Watched(page, at or url, allow))
            dashboard = Dashboard(page, at or url)
            dashboard.open(path)
            return dashboard

        yield start
    for each in watched:
        each.check()


@pytest.fixture
def dashboard(open_dashboard: Callable[..., Dashboard]) -> Dashboard:
    """One dashboard on the job list."""
    return open_dashboard("/jobs")


class Watched:
    """What a page says of errors, and whom it asks."""

    def __init__(self, page: Page, url: str, allow: str) -> None:
        self.wrong: list[str] = []
        self._host = urlsplit(url).netloc
        self._allow = re.compile(allow) if allow else None
        page.on("pageerror", lambda error: self._note(f"uncaught: {error}"))
        page.on("console", self._said)
        page.on("request", self._asked)

    def check(self) -> None:
        assert not self.wrong, "the page is not clean:\n" + "\n".join(self.wrong)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._note(f"console {message.type}: {message.text} ({message.location.get('url')})")

    def _asked(self, request: Any) -> None:
        target = urlsplit(request.url)
        if target.scheme not in ("data", "blob") and target.netloc != self._host:
            self.wrong.append(f"asked another host: {request.url}")

    def _note(self, text: str) -> None:
        if self._allow is None or not self._allow.search(text):
            self.wrong.append(text)
