"""What the README shows is what happens: its redis-cli lines are run, its examples executed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from broker import Broker, Holder, WorkerInfo, settings
from broker.rules.event import Place
from broker.store.group import Group
from broker.store.store import Store
from broker.web import health
from broker.web.server import serving
from tests.system.command import PATIENCE_MS, until
from tests.system.machine import Machine

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def desk(broker: Broker) -> Broker:
    """An origin `desk` about which every question has an answer."""
    report = {"event": "report", "origin": "desk", "engine": "ollama", "id": "7", "created_at": 9}
    broker.report(report | {"run": "r2", "state": "running", "seq": 2})
    broker.report(report | {"run": "r2", "state": "queued", "seq": 1})
    broker.submit("ollama", {"n": 1}, id="8")
    broker.submit("ollama", {"n": 1}, id="9", delay=3600)
    job = broker.submit("ollama", {"n": 1}, id="7")
    broker.view.apply([Place(key=job.key, node="gpu-1", rev=job.record().rev, term=1)])
    held = Holder(
        broker,
        job.key,
        created_at=job.record().created_at,
        attempt=1,
        node="gpu-1",
        worker="gpu-1-w",
    )
    held.start()
    held.write("half way")
    held.finish("completed", result={"n": 2})
    held.finish("failed")
    broker.submit("ollama", {"n": 1}, id="6").cancel()
    broker.remove("6")
    broker.beat(WorkerInfo(name="gpu-1-w", node="gpu-1", engine="ollama", pid=1, started_at=1_000))
    broker.flag_node("gpu-1", "drained")
    group = Group(broker.store, "billing", "billing-1", lease_ms=PATIENCE_MS, parked_max=10)
    group.look(["desk"])
    term = group.claim("desk").term
    (first, _), _ = group.fetch("desk", term, 2).entries
    group.park("desk", term, first.decode(), "the printer is on fire")
    return broker


#: XREAD waits for what comes next: in a quiet second, nothing.
NOTHING = ""

#: A word that the answer to each line must hold, in the order of the README.
EXPECTED = [
    "desk",
    "ollama//8",
    "ollama//7",
    "gpu-1",
    "rule=terminal event=finish",
    "removed",
    NOTHING,
    "ollama//8",
    "ollama//9",
    "7/ollama/r2",
    "17",
    "16",
    "gpu-1-w",
    "drained",
    '{"n":2}',
    "half way",
    "billing",
    "billing-1",
    "billing consumers 1 pending 1",
    "the printer is on fire",
]


def test_the_questions_are_answered_by_redis_alone(desk: Broker, namespace: str) -> None:
    lines = [line for block in blocks("redis-cli") for line in block.strip().splitlines()]
    assert len(lines) == len(EXPECTED)
    assert len(blocks("redis-cli")) > 10
    desk.store.client.zadd(desk.store.keys.of("desk").gone, {"ollama//7": 17})
    desk.store.client.hset(desk.store.keys.of("desk").meta, "horizon", 16)
    for line, expected in zip(lines, EXPECTED, strict=True):
        words = shlex.split(line.replace("broker:", f"{namespace}:"))
        told = told_by(desk.store.client.execute_command(*words))
        fits = told == "" if expected is NOTHING else expected in told
        assert fits, f"{line}\n{told}"


def told_by(answer: object) -> str:
    if isinstance(answer, bytes):
        return answer.decode()
    if isinstance(answer, dict):
        return " ".join(f"{told_by(name)} {told_by(value)}" for name, value in answer.items())
    if isinstance(answer, (list, tuple)):
        return " ".join(map(told_by, answer))
    return str(answer)


def test_the_engine_of_the_readme_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker import engines

    [table] = blocks("toml")
    (tmp_path / "broker.toml").write_text(table)
    monkeypatch.setenv("BROKER_CONFIG", str(tmp_path / "broker.toml"))
    assert engines()["checksum"].slots == tomllib.loads(table)["engines"]["checksum"]["slots"] == 2


def test_the_reports_of_the_readme_are_answered_as_it_says(broker: Broker) -> None:
    [shell] = [block for block in blocks("sh") if "broker report" in block]
    events = [json.loads(line) for line in re.findall(r"'({.*})'", shell)]
    assert [outcome.rule for outcome in broker.report_many(events)] == [
        "first_sighting",
        "stale_seq",
    ]


def test_the_nodes_of_the_readme_trust_each_other(tmp_path: Path, here: dict[str, str]) -> None:
    """Each line as it stands there, in a shell on the node that was named last; the files are carried by the folder."""
    [shell] = [block for block in blocks("sh") if "broker trust" in block]
    command = tmp_path / "bin" / "broker"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker.cli "$@"\n')
    command.chmod(0o700)
    path = f"{command.parent}:{os.environ['PATH']}"
    environment = {**os.environ, **here, "PYTHONPATH": str(README.parent), "PATH": path}
    said = {}
    for line in shell.splitlines():
        if node := re.fullmatch(r"# on (\w+)", line):
            environment["BROKER_NODE"] = node[1]
            environment["BROKER_TRUST_DIR"] = str(tmp_path / node[1])
            continue
        ran = subprocess.run(
            ["sh", "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), line
        said[line.partition("#")[0].strip()] = ran.stdout
    assert "sha256:" in said["broker trust pin alpha.json"]
    assert [row.split()[0] for row in said["broker trust show"].splitlines()[1:]] == [
        "beta",
        "alpha",
        "gamma",
    ]
    told = said["broker trust announcements"].splitlines()[1:]
    changes = [tuple(row.split()[-3:-1]) for row in told]
    assert changes == [("pinned", "alpha"), ("pinned", "gamma"), ("removed", "gamma")]


def test_http_is_asked_as_the_readme_says(
    here: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line of curl as it would ask, but for the port; Redis answers in time, however slow this machine is."""
    monkeypatch.setattr(health, "ANSWER_SECONDS_MAX", 60.0)
    [shell] = [block for block in blocks("sh") if "curl" in block]
    store = Store.from_url(here["REDIS_URL"], here["BROKER_NAMESPACE"])
    answers = []
    with serving(Broker(store, settings(listen="127.0.0.1:0"))) as url:
        until(lambda: httpx.get(f"{url}/readyz", trust_env=False, timeout=60).is_success)
        for line in shell.splitlines():
            words = shlex.split(line)
            named = dict(pairwise(words))
            header = dict([named["-H"].split(": ", 1)]) if "-H" in named else {}
            answers.append(
                httpx.request(
                    "POST" if "-d" in named else "GET",
                    words[-1].replace("http://127.0.0.1:7070", url),
                    content=named.get("-d"),
                    headers=header,
                    trust_env=False,
                    timeout=60,
                )
            )
    assert [answer.status_code for answer in answers] == [200, 201, 200]
    assert answers[1].json()["engine"] == "checksum"


def python(word: str) -> str:
    [block] = [block for block in blocks("python") if word in block]
    return block


@pytest.fixture
def here(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment that leads to this test's namespace."""
    found = {"REDIS_URL": redis_url, "BROKER_NAMESPACE": namespace, "BROKER_NODE": "desk"}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def test_the_producer_of_the_readme_reports_a_job(broker: Broker, here: dict[str, str]) -> None:
    exec(python("JobEvents"), {})
    [listed] = broker.jobs()
    assert (listed.record.state, listed.record.node, listed.record.seq) == ("completed", "desk", 4)


def test_the_watcher_of_the_readme_lists_what_there_is(
    broker: Broker, here: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    broker.submit("echo", origin="desk", id="7")
    exec(python("broker.watch()"), {})
    assert capsys.readouterr().out == "desk/echo//7 queued\n"


def test_the_readers_of_the_readme_hold_what_there_is(
    broker: Broker, here: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    broker.submit("echo", origin="desk", id="7")
    exec(python("broker.readers()"), {})
    assert capsys.readouterr().out == "desk/echo//7\n"


def test_the_subscriber_of_the_readme_is_told_until_control_c(
    broker: Broker, here: dict[str, str]
) -> None:
    ended = {"event": "report", "origin": "desk", "engine": "ollama", "id": "7", "created_at": 1}
    broker.report(ended | {"state": "running", "seq": 1})
    broker.report(ended | {"state": "completed", "seq": 2})
    program = subprocess.Popen(
        [sys.executable, "-u", "-c", python("subscribe")],
        env=os.environ | {"PYTHONPATH": str(README.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    group = broker.store.keys.of("desk").sub("billing")
    try:
        assert program.stdout.readline() == "desk/ollama//7 completed\n"
        taken = broker.store.client.hget(group, "until")
        # Its second thread renews the lease: it is long since it began to wait for the end.
        until(lambda: broker.store.client.hget(group, "until") != taken)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
    finally:
        program.kill()
    assert out == ""
    assert err.strip().endswith("KeyboardInterrupt")


def test_the_fleet_of_the_readme_runs_its_jobs(
    tmp_path: Path, here: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_engines.py").write_text(python("@engine"))
    machine = Machine(tmp_path)
    try:
        machine.start("serve", "--allow-volatile", **here)
        machine.start("worker", "--node", "gpu-1", "--import", "my_engines", **here)
        exec(python("priority=10"), {})
        exec(python("AsyncBroker"), {})
    finally:
        machine.close()
    assert capsys.readouterr().out.splitlines() == [
        "{'width': 120}",
        "[{'width': 160}, {'width': 80}]",
        "told of thumbnail",
    ]
