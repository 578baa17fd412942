"""What docs/producers.md shows is what happens: each event is posted, each command run, each answer compared."""

from __future__ import annotations

import json
import random
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker import Broker
from broker import settings as settings_of
from broker.store.server import PrivateRedis
from broker.store.store import Store
from broker.web.server import serving
from tests.store.readers import patient

PAGE = (Path(__file__).parents[2] / "docs" / "producers.md").read_text()
ADDRESS = "http://127.0.0.1:7070"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCKS if name == language]


def events(block: str) -> list[Any]:
    return [json.loads(line) for line in block.splitlines()]


@pytest.fixture
def url(redis_url: str, namespace: str) -> Iterator[str]:
    given = settings_of(namespace=namespace, node="desk", listen="127.0.0.1:0")
    with serving(Broker(Store.from_url(patient(redis_url), namespace), given)) as found:
        yield found


def ask(method: str, url: str, **more: Any) -> Any:
    """What is answered, as JSON."""
    return httpx.request(method, url, trust_env=False, timeout=60, **more).json()


def unrevised(told: Any) -> Any:
    """The same with every rev told by whether there is one."""
    if isinstance(told, list):
        return [unrevised(one) for one in told]
    return told | {"rev": bool(told["rev"])} if "rev" in told else told


def test_each_command_is_answered_as_the_page_says(url: str) -> None:
    commands = [
        (text, BLOCKS[place + 1]) for place, (name, text) in enumerate(BLOCKS) if name == "sh"
    ]
    assert len(commands) == 3
    for command, (language, answer) in commands:
        assert language == "json"
        ran = subprocess.run(
            ["sh", "-c", command.replace(ADDRESS, url)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert unrevised(json.loads(ran.stdout)) == unrevised(json.loads(answer)), command


def test_each_event_of_the_page_is_taken(url: str) -> None:
    """In the order of the page: the removals come last, and meet what they name."""
    told = [
        answer
        for block in blocks("jsonl")
        for answer in ask("POST", f"{url}/v1/events", json=events(block))
    ]
    assert len(told) == 14
    assert {one["outcome"] for one in told} == {"applied"}


def test_the_lines_of_the_page_are_lines_of_broker_report_too(broker: Broker) -> None:
    lines = [event for block in blocks("jsonl") for event in events(block)]
    assert {outcome.outcome for outcome in broker.report_many(lines)} == {"applied"}


def test_any_order_of_the_pages_story_gives_the_same_record(broker: Broker) -> None:
    story = events(blocks("jsonl")[-1])
    chance = random.Random(7)
    for number in range(60):
        told = story + chance.sample(story, 3)
        chance.shuffle(told)
        list(broker.report_many(event | {"id": str(number)} for event in told))
    found = {
        (listed.record.state, listed.record.node, listed.record.seq) for listed in broker.jobs()
    }
    assert found == {("completed", "gpu-2", 6)}


def test_the_loop_of_the_page_posts_until_it_is_answered(
    server: PrivateRedis, namespace: str
) -> None:
    [program] = blocks("python")
    named: dict[str, Any] = {}
    exec(program, named)
    where = f"redis://127.0.0.1:{server.port}"
    given = settings_of(namespace=namespace, node="desk", listen="127.0.0.1:0")
    with serving(Broker(Store.from_url(patient(where), namespace), given)) as url:
        said = events(blocks("jsonl")[-1])
        server.stop()
        started = threading.Timer(0.5, server.start)
        started.start()
        told = named["post"](said, f"{url}/v1/events", 0.1)
        started.join()
        assert [one["outcome"] for one in told] == ["applied"] * 6
        with pytest.raises(named["urllib"].error.HTTPError, match="400"):
            named["post"]([{}], f"{url}/v1/events")


def test_the_page_names_every_status(url: str) -> None:
    told = ask("GET", f"{url}/openapi.json")["paths"]["/v1/events"]["post"]
    named = set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE))
    assert named == {*told["responses"], "405"}
