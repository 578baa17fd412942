"""What docs/operators.md shows can be done: its commands run in their order, on a Redis, a serve and a worker."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker import Broker
from broker.cli import main
from broker.fleet.checkup import examine
from broker.store.server import PrivateRedis
from tests.ports import free_port
from tests.system.machine import Machine

PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text()
PROGRAMS = ("redis-cli", "redis-server", "redis-check-aof")
ENGINES = """
from workers import engine

@engine("echo")
def echo(ctx, payload):
    return payload
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    command = tmp_path / "bin" / "broker"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker.cli "$@"\n')
    command.chmod(0o700)
    (tmp_path / "my_engines.py").write_text(ENGINES)
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_the_commands_of_the_page_can_be_run(machine: Machine, server: PrivateRedis) -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    assert not missing, f"the page needs Redis's own programs: {missing}"
    here = {
        "REDIS_URL": f"redis://127.0.0.1:{server.port}",
        "REDIS_DATA": str(server.data_dir),
        "RESTORED_PORT": str(free_port()),
        "BROKER_NODE": "desk",
        "PATH": f"{machine.home / 'bin'}:{os.environ['PATH']}",
    }
    machine.start("serve", **here)
    machine.start("worker", "--node", "gpu-1", "--import", "my_engines", **here)
    with Broker.from_url(here["REDIS_URL"], node="desk") as broker:
        broker.submit("echo", {"n": 1}, id="kept").result(timeout=60)
        broker.submit("echo", id="dropped", delay=3600).cancel()
    said = []
    for block in blocks("sh"):
        ran = subprocess.run(
            # Without `pipefail`: who writes into a pipe that its reader left, with all it needs, has not failed.
            ["bash", "-euc", block],
            cwd=machine.home,
            env=machine.environment(**here),
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert ran.returncode == 0, f"{block}\n{ran.stdout}{ran.stderr}"
        said.append(ran.stdout)
    assert len(said) == 6
    assert "gpu-1" in said[0]
    assert "dropped" in said[2]
    assert "desk/echo//kept" in said[5]


def test_who_may_only_look_can_not_write(server: PrivateRedis, broker: Broker) -> None:
    [line] = [line for line in "".join(blocks("sh")).splitlines() if "ACL SETUSER" in line]
    words = shlex.split(line)
    url = f"redis://127.0.0.1:{server.port}"
    with Broker.from_url(url, node="desk") as writer:
        writer.store.client.execute_command(*words[words.index("ACL") :])
        writer.submit("echo", id="7")
    with Broker.from_url(url.replace("//", "//looker:a-password-of-its-own@")) as looker:
        assert [str(listed.key) for listed in looker.jobs()] == ["desk/echo//7"]
        with pytest.raises(Exception, match="permission"):
            looker.cancel("7")
        [told] = [one for one in examine(looker) if one.topic == "permission"]
        assert told.level == "warning"


def test_the_units_of_the_page_start_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(
        r"^ExecStart=\S*/broker (\w+) (.*)$", "".join(blocks("ini")), re.MULTILINE
    )
    assert len(commands) == 2
    for verb, options in commands:
        assert main([verb, "--help"]) == 0
        told = capsys.readouterr().out
        assert all(word in told for word in options.split() if word.startswith("--"))
