"""The OpenAPI document tells the truth: whatever is asked by it, right or wrong, is answered as it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings

from broker import Broker
from broker.web import health, server
from tests.system.command import held, until
from tests.web.churn import Churn

#: What is asked is chosen by it: a failure can be repeated.
SEED = 20_261_130
TOKEN = "0123456789abcdef0123456789abcdef"

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance",
)  # fmt: skip

#: A stream never ends by itself: it is asked below.
STREAM = "/v1/watch"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that answers does so in time, and threads come free, however long this machine stands still."""
    monkeypatch.setattr(health, "ANSWER_SECONDS_MAX", 60.0)
    monkeypatch.setattr(server, "TURN_SECONDS_MAX", 60.0)


def document_of(url: str, **headers: str) -> Any:
    """The document, as the server tells it."""
    return httpx.get(f"{url}/openapi.json", headers=headers, trust_env=False, timeout=60).json()


def ask(url: str, document: Any, folder: Path, *words: object) -> None:
    """Have schemathesis ask everything; fails with all it found, such as an error of the server."""
    file = folder / "openapi.json"  # it would not wait for longer than 10 s for it
    file.write_text(json.dumps(document))
    until(lambda: httpx.get(f"{url}/readyz", trust_env=False, timeout=60).status_code == 200)
    ran = subprocess.run(
        [
            Path(sys.executable).parent / "schemathesis", "run", file, "--url", url,
            "--checks", ",".join(CHECKS), "--exclude-path", STREAM, "--seed", str(SEED), "--continue-on-failure",
            "--request-timeout", "60", "--warnings", "off", *map(str, words),
        ],
        cwd=folder,
        env=os.environ | {"NO_PROXY": "*", "HYPOTHESIS_STORAGE_DIRECTORY": str(folder)},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )  # fmt: skip
    print(ran.stdout[-20_000:], ran.stderr[-5_000:])
    assert ran.returncode == 0


@pytest.fixture
def lively(broker: Broker) -> Broker:
    """Some jobs in all states, so that there is something to ask of."""
    churn = Churn(broker, SEED)
    for _ in range(60):
        churn.step()
    broker.submit("echo", {"n": 1}, id="7")
    held(broker, broker.submit("echo", 1, id="done").key).finish("completed", result=[1])
    return broker


@pytest.mark.usefixtures("lively")
def test_whatever_is_asked_is_answered_as_the_document_says(url: str, tmp_path: Path) -> None:
    ask(url, document_of(url), tmp_path, "--phases", "examples,coverage")


@pytest.mark.usefixtures("lively")
def test_the_same_holds_with_a_token_and_without_the_one_that_is_asked_for(
    serve: Callable[..., str], tmp_path: Path
) -> None:
    url = serve(token=TOKEN)
    bearer = ("--header", f"Authorization: Bearer {TOKEN}")
    document = document_of(url, Authorization=f"Bearer {TOKEN}")
    ask(url, document, tmp_path, "--phases", "fuzzing", "--max-examples", 6, *bearer)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            said = httpx.request(
                method,
                url + path.replace("{", "").replace("}", ""),
                headers={"content-type": "application/json"},
                trust_env=False,
                timeout=60,
            )
            is_open = "security" not in operation and method == "get"
            assert (said.status_code == 401) is not is_open or path in ("/login", "/logout"), path
            assert str(said.status_code) in operation["responses"], path


def test_a_stream_is_asked_for_as_the_document_says(url: str) -> None:
    document = document_of(url)
    operation = schemathesis.openapi.from_dict(document)[STREAM]["GET"]
    answers = document["paths"][STREAM]["get"]["responses"]
    seen = set()

    @seed(SEED)
    @settings(
        max_examples=25,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def holds(case: Any) -> None:
        asked = case.as_transport_kwargs(base_url=url)
        headers = {name: str(value).encode() for name, value in asked["headers"].items()}
        with (
            httpx.Client(trust_env=False, timeout=60) as client,
            client.stream("GET", asked["url"], params=asked["params"], headers=headers) as answer,
        ):
            seen.add(answer.status_code)
            content = answer.headers["content-type"].partition(";")[0]
            assert content in answers[str(answer.status_code)]["content"]

    holds()
    assert 200 in seen


def test_every_answer_of_every_route_is_a_problem_document_where_it_is_an_error(url: str) -> None:
    document = document_of(url)
    assert document["openapi"].startswith("3.")
    for path, item in document["paths"].items():
        for method, operation in item.items():
            assert operation.get("summary"), (path, method)
            for status, answer in operation["responses"].items():
                assert status != "422"
                if int(status) >= 400 and path not in ("/readyz", "/livez"):
                    assert list(answer["content"]) == ["application/problem+json"], (path, status)
    routes = set(document["paths"])
    assert {"/v1/jobs", "/v1/jobs/{key}", "/v1/watch", "/v1/events", "/login", "/readyz"} <= routes


def test_bounds_of_a_submission_are_told_in_words_where_null_may_stand_instead(url: str) -> None:
    """Many a page of documents shows a choice of types without their bounds."""
    document = document_of(url)
    body = document["paths"]["/v1/jobs"]["post"]["requestBody"]
    fields = body["content"]["application/json"]["schema"]["properties"]
    for name in ("id", "attempts", "timeout"):
        [bounded] = [way for way in fields[name]["anyOf"] if way["type"] != "null"]
        for bound in ("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"):
            if bound in bounded:
                assert f" {bounded[bound]} " in f" {fields[name]['description']} ".replace(
                    ",", " "
                ).replace(";", " "), (name, bound)
