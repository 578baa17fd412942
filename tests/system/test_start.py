"""Before the roles start, they look whether Redis is set to keep what it takes; `doctor` tells what changes later."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, RedisError

from broker import Misconfigured
from broker.fleet.checkup import check_start
from broker.store.health import way_to
from broker.store.server import PrivateRedis, find_server
from broker.store.store import Store
from tests.ports import free_port
from tests.system.machine import ROOT, Machine
from tests.system.test_cli_fleet import HEALTHY
from tests.workers.fleet import until

POLICY = "maxmemory-policy is allkeys-lru"
AOF = "appendonly is no"
ACCESS = "is unprotected"
READY = "the roles run"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def redis(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PrivateRedis]:
    """A server with the settings that the test wishes."""
    with PrivateRedis(tmp_path / "redis", options=getattr(request, "param", None)) as made:
        yield made


LOSSY = pytest.mark.parametrize(
    "redis,names",
    [
        ({"maxmemory-policy": "allkeys-lru"}, [POLICY]),
        ({"appendonly": "no"}, [AOF]),
        ({"maxmemory-policy": "allkeys-lru", "appendonly": "no"}, [POLICY, AOF]),
    ],
    indirect=["redis"],
    ids=["evicts", "no-aof", "both"],
)


@LOSSY
def test_serve_refuses_a_redis_that_forgets_and_names_each_setting(
    machine: Machine, redis: PrivateRedis, names: list[str]
) -> None:
    code, said = machine.run("serve", REDIS_URL=redis.url)
    assert code == 1
    assert len(said.strip().splitlines()) == 1
    assert [name for name in (POLICY, AOF) if name in said] == names
    assert "--allow-volatile" in said


@pytest.mark.parametrize("by", ["flag", "environment", "file"])
@LOSSY
def test_serve_starts_on_it_where_that_is_allowed_and_warns_of_each(
    machine: Machine, redis: PrivateRedis, names: list[str], by: str
) -> None:
    words = ["--allow-volatile"] if by == "flag" else []
    more = {"BROKER_ALLOW_VOLATILE": "1"} if by == "environment" else {}
    if by == "file":
        (machine.home / "broker.toml").write_text("[broker]\nallow_volatile = true\n")
    serve = machine.start("serve", *words, REDIS_URL=redis.url, **more)
    until(lambda: READY in serve.log.read_text())
    warnings = [line for line in serve.log.read_text().splitlines() if "warning" in line]
    assert len(warnings) == len(names)
    assert all(name in line for name, line in zip(names, warnings, strict=True))
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(60) == 0


def test_serve_starts_without_a_word_on_a_redis_that_keeps_everything(
    machine: Machine, redis: PrivateRedis
) -> None:
    serve = machine.start("serve", REDIS_URL=redis.url)
    until(lambda: READY in serve.log.read_text())
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(60) == 0
    assert "warning" not in serve.log.read_text()


def test_so_does_up_on_its_own(machine: Machine) -> None:
    up = machine.up("--engine", "echo", nodes=1)
    assert "warning" not in up.log.read_text()
    assert "appendonly" not in up.log.read_text()


def own_address() -> str:
    """An address of this machine that others reach; empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        address = str(found.getsockname()[0])
    return "" if address.startswith("127.") else address


@pytest.fixture
def exposed(tmp_path: Path) -> Iterator[tuple[str, int, Redis]]:
    """A server at an address of this machine that others reach, if it has one, and the way to its settings."""
    address, port = own_address() or "127.0.0.1", free_port()
    options = {"bind": " ".join({address, "127.0.0.1"}), "protected-mode": "no"}
    with PrivateRedis(tmp_path / "open", port, options) as server, Redis.from_url(server.url) as it:
        yield address, port, it


def test_serve_and_doctor_warn_of_a_server_that_asks_nobody_who_he_is(
    machine: Machine, exposed: tuple[str, int, Redis]
) -> None:
    address, port, _ = exposed
    url = f"redis://{address}:{port}"
    if address == "127.0.0.1":  # a host without a network: judged by the way that a url names
        [told] = check_start(replace(HEALTHY, host="redis.example"), allow_volatile=False)
        assert ACCESS in told
        return
    warning = warned(machine, url)
    assert f"Redis at {address} {ACCESS}" in warning
    assert "requirepass" in warning
    assert machine.run("doctor", REDIS_URL=url)[1].count(ACCESS) == 1


def test_the_same_server_is_nobodys_who_comes_from_the_machine_itself(
    machine: Machine, exposed: tuple[str, int, Redis]
) -> None:
    for host in ("localhost", "127.0.0.1"):
        assert warned(machine, f"redis://{host}:{exposed[1]}") == ""


def test_a_password_ends_the_warning_and_is_never_shown(
    machine: Machine, exposed: tuple[str, int, Redis]
) -> None:
    address, port, settings = exposed
    settings.config_set("requirepass", "hunter2")
    assert warned(machine, f"redis://:hunter2@{address}:{port}") == ""
    code, said = machine.run("serve", REDIS_URL=f"redis://{address}:{port}")
    assert (code, len(said.strip().splitlines())) == (6, 1)
    assert "hunter2" not in "".join(process.log.read_text() for process in machine.started)


def warned(machine: Machine, url: str) -> str:
    """What a `serve` that came up warned of."""
    serve = machine.start("serve", REDIS_URL=url)
    until(lambda: READY in serve.log.read_text() or serve.poll() is not None)
    serve.send_signal(signal.SIGTERM)
    assert serve.wait(60) == 0, serve.log.read_text()
    return "".join(line for line in serve.log.read_text().splitlines() if "warning" in line)


def test_the_redis_of_the_containers_passes_without_a_warning(
    machine: Machine, tmp_path: Path
) -> None:
    """Started by the very file that the stack makes for it, but for where it keeps its data and listens."""
    secrets, data = tmp_path / "secrets", tmp_path / "data"
    secrets.mkdir()
    data.mkdir()
    subprocess.run([sys.executable, ROOT / "docker" / "make-secrets.py", secrets], check=True)
    address, port = own_address() or "127.0.0.1", free_port()
    conf = (secrets / "redis.conf").read_text()
    (secrets / "redis.conf").write_text(conf.replace("dir /data", f"dir {data}"))
    command = [find_server().path, secrets / "redis.conf", "--port", str(port), "--bind", address]
    url = (secrets / "redis-url").read_text().replace("redis:6379", f"{address}:{port}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as redis, Redis.from_url(url) as it:
        try:
            until(lambda: answers(it))
            assert warned(machine, url) == ""
        finally:
            redis.terminate()


def answers(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


@pytest.mark.parametrize(
    "change, names",
    [
        ({}, []),
        ({"host": "redis.example"}, [ACCESS]),
        ({"host": "redis.example", "login": True}, []),
        ({"role": "slave"}, ["takes no writes"]),
        ({"aof_ok": False}, ["is the disk full"]),
        ({"used": 99, "clock_ahead_ms": 9_000, "answer_ms": 999.0}, []),
    ],
)
def test_what_is_no_danger_to_what_was_accepted_is_only_told(
    change: dict[str, Any], names: list[str]
) -> None:
    told = check_start(replace(HEALTHY, **change), allow_volatile=False)
    assert len(told) == len(names)
    assert all(name in line for name, line in zip(names, told, strict=True))


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-random", ""])
def test_every_other_policy_is_refused(policy: str) -> None:
    with pytest.raises(Misconfigured, match="maxmemory-policy is"):
        check_start(replace(HEALTHY, policy=policy), allow_volatile=False)


@pytest.mark.parametrize(
    "url,way",
    [
        ("unix:///run/redis.sock", ("", False)),
        ("redis://127.0.0.1", ("", False)),
        ("redis://127.9.9.9:6380/3", ("", False)),
        ("redis://[::1]", ("", False)),
        ("redis://localhost", ("", False)),
        ("redis://192.0.2.7", ("192.0.2.7", False)),
        ("redis://nowhere.invalid", ("nowhere.invalid", False)),
        ("redis://me@192.0.2.7", ("192.0.2.7", False)),
        ("redis://:secret@192.0.2.7", ("192.0.2.7", True)),
        ("redis://192.0.2.7?password=secret", ("192.0.2.7", True)),
        ("rediss://192.0.2.7?ssl_certfile=mine.crt", ("192.0.2.7", True)),
    ],
)
def test_a_url_tells_whom_it_leads_past(url: str, way: tuple[str, bool]) -> None:
    with Store.from_url(url).client as client:
        assert way_to(client) == way


def test_what_is_changed_under_a_running_serve_is_told_by_doctor(
    machine: Machine, redis: PrivateRedis
) -> None:
    serve = machine.start("serve", REDIS_URL=redis.url)
    until(lambda: READY in serve.log.read_text())
    before = machine.run("doctor", REDIS_URL=redis.url)[1]
    assert POLICY not in before
    assert AOF not in before
    with Redis.from_url(redis.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("appendonly", "no")
    code, said = machine.run("doctor", REDIS_URL=redis.url)
    assert code == 1
    assert POLICY in said
    assert AOF in said
    assert serve.poll() is None
