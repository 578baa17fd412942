"""What docs/http.md shows is what happens: its commands run in their order, its routes are those that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker import Broker
from broker import settings as settings_of
from broker.store.store import Store
from broker.web.server import serving
from tests.system.command import until

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
ADDRESS = "http://127.0.0.1:7070"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def url(redis_url: str, namespace: str) -> Iterator[str]:
    given = settings_of(namespace=namespace, node="desk", listen="127.0.0.1:0")
    with serving(Broker(Store.from_url(redis_url, namespace), given)) as found:
        until(lambda: httpx.get(f"{found}/readyz", trust_env=False, timeout=60).is_success)
        yield found


def unhurried(block: str) -> str:
    """Who listens for two seconds hears nothing of a machine that stands still for as long."""
    return block.replace("--max-time 2 ", "--max-time 10 ")


def test_the_commands_of_the_page_are_answered(url: str, tmp_path: Path) -> None:
    assert shutil.which("curl"), "the page needs curl"
    said = []
    for block in blocks("sh"):
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", unhurried(block).replace(ADDRESS, url)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert ran.returncode == 0, f"{block}\n{ran.stdout}{ran.stderr}"
        said.append(ran.stdout)
    submitted, asked, watched, refused = said
    key = "desk/checksum//readme"
    assert json.loads(submitted)["key"] == key
    answers = [json.loads(text) for text in split(asked)]
    assert [one["key"] for one in answers[0]] == [key]
    assert [answers[1]["key"], answers[2]["key"], answers[3]["entries"][0]["key"]] == [key] * 3
    assert answers[4] == []
    assert (answers[5]["rule"], answers[6][0]["rule"]) == ("desired", "removed")
    assert "event: ready" in watched
    assert "event: gone" not in watched
    [told] = blocks("json")
    assert json.loads(refused) == json.loads(told)


def split(texts: str) -> list[str]:
    """JSON values that stand one behind the other."""
    found, decoder = [], json.JSONDecoder()
    while texts := texts.strip():
        _, end = decoder.raw_decode(texts)
        found.append(texts[:end])
        texts = texts[end:]
    return found


def test_the_page_names_every_route_and_status(url: str) -> None:
    paths = httpx.get(f"{url}/openapi.json", trust_env=False, timeout=60).json()["paths"]
    named = {re.sub(r"\{\w+\}", lambda part: part[0][1:-1].upper(), path) for path in paths}
    elsewhere = {"/v1/events", "/login", "/logout"}
    rows = re.findall(r"^\| `(?:GET|POST) .*$", PAGE, re.MULTILINE)
    told = {path for row in rows for path in routes(row.split("|")[1])}
    assert told == named - elsewhere
    statuses = {
        status
        for path, methods in paths.items()
        for one in methods.values()
        for status in one["responses"]
        if path not in elsewhere
    }
    listed = {
        code
        for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.MULTILINE)
        for code in row.split(", ")
    }
    assert statuses - {"200", "201"} <= listed


def routes(cell: str) -> Iterator[str]:
    """The paths of a row; one that does not begin anew goes on behind the first one's last word."""
    base = ""
    for text in re.findall(r"`(?:(?:GET|POST) )?(/[^`? ]*)", cell):
        if text.startswith(("/v1", "/livez", "/readyz", "/version", "/metrics")):
            base = text
            yield text
        elif base.endswith(("/cancel", "/result", "/why")):
            yield base.rpartition("/")[0] + text
        else:
            yield base + text
