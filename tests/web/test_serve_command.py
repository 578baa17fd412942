"""HTTP as `broker serve` and `broker up` start it: by the settings, beside the roles, and ended with them."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis

from broker import Misconfigured
from broker import settings as settings_of
from broker.store.server import PrivateRedis
from tests.ports import free_port
from tests.system.machine import ROOT, Machine
from tests.web.asking import BEARER, JSON, TOKEN, ask, connected, heard, post
from tests.workers.fleet import until

WRONG = ("Authorization", "Bearer incorrect-horse-battery")


@pytest.fixture
def machine(tmp_path: Path, namespace: str, redis_url: str) -> Iterator[Machine]:
    """A machine on whose Redis the test has a namespace of its own."""
    made = Machine(tmp_path)
    made.here = {"REDIS_URL": redis_url, "BROKER_NAMESPACE": namespace}
    yield made
    made.close()


def serve(machine: Machine, *words: str, **more: str) -> tuple[subprocess.Popen[bytes], str]:
    """`broker serve` at a port of its own, and the url that it tells."""
    listen = f"127.0.0.1:{free_port()}"
    environment = {"BROKER_LISTEN": listen} | machine.here | more
    process = machine.start("serve", "--allow-volatile", *words, **environment)
    until(lambda: "HTTP at" in process.log.read_text() or process.poll() is not None)
    said = process.log.read_text()
    assert "HTTP at" in said, said
    return process, said.partition("HTTP at ")[2].partition(";")[0]


def refused(machine: Machine, *words: str, **more: str) -> str:
    """What `serve` said instead of starting: one line, but for warnings of this Redis."""
    code, said = machine.run("serve", "--allow-volatile", *words, **machine.here, **more)
    assert code == 1, said
    [line] = [line for line in said.strip().splitlines() if "[warning" not in line]
    return str(line)


def test_serve_answers_beside_its_roles_and_ends_with_them(machine: Machine) -> None:
    process, url = serve(machine)
    until(lambda: ask(url, "/readyz").status == 200)
    roles = {"dispatcher", "janitor", "sweeper", "auditor", "announcer", "readers"}
    until(lambda: ask(url, "/livez").json["checks"].keys() >= roles)  # each begins by itself
    assert post(url, "/v1/jobs", JSON, body=b'{"engine":"e","payload":1}').status == 201
    with closing(connected(url)) as follower:
        follower.sendall(f"GET /v1/watch HTTP/1.1\r\nHost: {url[7:]}\r\n\r\n".encode())
        until(lambda: b"ready" in follower.recv(65_536))
        process.send_signal(signal.SIGTERM)
        heard(follower)
    assert process.wait(60) == 0
    assert "Traceback" not in process.log.read_text()
    assert "rror" not in process.log.read_text()


def test_a_second_serve_is_told_which_setting_to_change_and_how_to_do_so(machine: Machine) -> None:
    process, url = serve(machine)
    line = refused(machine, BROKER_LISTEN=url.removeprefix("http://"))
    assert line.startswith(
        f"broker: setting listen: cannot listen at {url.removeprefix('http://')}: "
    )
    assert "--listen" in line
    _, other = serve(machine, "--listen", f"127.0.0.1:{free_port()}", BROKER_LISTEN=url[7:])
    assert ask(other, "/livez").status == ask(url, "/livez").status == 200
    assert process.poll() is None


def test_others_are_served_with_a_token_alone(machine: Machine) -> None:
    everywhere = {"BROKER_LISTEN": f"0.0.0.0:{free_port()}"}
    assert "setting token: " in refused(machine, **everywhere)
    assert "setting token: " in refused(machine, **everywhere, BROKER_TOKEN="")
    (machine.home / "token").write_text(TOKEN + "\n")
    _, url = serve(machine, **everywhere, BROKER_TOKEN_FILE=str(machine.home / "token"))
    assert url == f"http://127.0.0.1:{everywhere['BROKER_LISTEN'].partition(':')[2]}"
    assert ask(url, "/v1/jobs").refusal == (401, "unauthorized")
    assert ask(url, "/v1/jobs", BEARER).status == 200


@pytest.mark.parametrize(
    "token", ["short", "fifteen-letters", "with a space in it", "ünïcödé-ünïcödé-ünï", "x" * 1_025]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused_and_not_shown(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(token)
    for name, value in (("BROKER_TOKEN", token), ("BROKER_TOKEN_FILE", str(tmp_path / "token"))):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(Misconfigured, match=r"setting token: must be 16 to 1,024") as told:
                settings_of()
        assert token not in str(told.value)


def test_an_empty_file_is_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("\n")
    monkeypatch.setenv("BROKER_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(Misconfigured, match="setting token: "):
        settings_of()
    monkeypatch.setenv("BROKER_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match="No such file"):
        settings_of()


def test_the_token_is_shown_by_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert TOKEN not in repr(settings_of(token=TOKEN))
    assert TOKEN not in settings_of(token=TOKEN).model_dump_json()
    monkeypatch.setenv("BROKER_CONFIG", str(tmp_path / "broker.toml"))
    for written in ("1234567890123456", '["correct-horse-battery-staple"]'):
        (tmp_path / "broker.toml").write_text(f"[broker]\ntoken = {written}\n")
        with pytest.raises(Misconfigured, match="setting token") as told:
            settings_of()
        assert "1234567890123456" not in str(told.value)
        assert "horse" not in str(told.value)


@pytest.mark.parametrize(
    "listen",
    ["7070", ":7070", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:x", "::1:7070", "http://localhost:7070",
     "localhost:70 70", "on", "localhost:-1", ""],
)  # fmt: skip
def test_an_address_that_is_none_is_told_in_words(listen: str) -> None:
    with pytest.raises(
        Misconfigured, match=r"setting listen: must be HOST:PORT .* or off, not "
    ) as told:
        settings_of(listen=listen)
    assert len(str(told.value).splitlines()) == 1


def test_names_are_given_with_commas_or_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_HOSTS", "Fleet.example, broker")
    assert settings_of().hosts == ("fleet.example", "broker")
    assert settings_of(hosts=["a.example"]).hosts == ("a.example",)
    for wrong in ("fleet.example:7070", "https://fleet.example", "*", "a..", "-"):
        with pytest.raises(Misconfigured, match="setting hosts: must be host names without a port"):
            settings_of(hosts=wrong)
    with pytest.raises(Misconfigured, match="setting hosts"):
        settings_of(hosts=7)


def test_the_containers_make_a_token_once_that_serve_takes(tmp_path: Path) -> None:
    def made(**more: str) -> str:
        make = [sys.executable, ROOT / "docker" / "make-secrets.py", tmp_path]
        subprocess.run(make, check=True, env={"PATH": os.environ["PATH"]} | more)
        return (tmp_path / "http-token").read_text()

    token = made()
    assert settings_of(token=token).token
    assert made() == token != (tmp_path / "redis-password").read_text()
    assert made(BROKER_TOKEN=TOKEN) == made() == TOKEN
    assert stat.S_IMODE((tmp_path / "http-token").stat().st_mode) == 0o600


def test_the_token_is_in_no_log(machine: Machine) -> None:
    process, url = serve(machine, BROKER_TOKEN=TOKEN, BROKER_LOG_LEVEL="debug")
    login = post(url, "/login", JSON, body=b'{"token":"%s"}' % TOKEN.encode())
    assert login.status == 204
    assert post(url, "/login", JSON, body=b'{"token":"%s!"}' % TOKEN.encode()).status == 401
    assert ask(url, f"/v1/jobs?token={TOKEN}", BEARER).status in (200, 400)
    assert ask(url, "/v1/jobs", WRONG).status == 401
    with closing(connected(url)) as connection:
        connection.sendall(f"Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        heard(connection)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    said = process.log.read_text()
    assert TOKEN not in said
    assert login.headers["set-cookie"].partition("=")[2].partition(";")[0] not in said


def test_a_second_order_ends_it_at_once_whatever_hangs(
    machine: Machine, server: PrivateRedis
) -> None:
    """Redis is frozen, so the roles can not give up their leads."""
    process, url = serve(machine, REDIS_URL=f"redis://127.0.0.1:{server.port}")
    until(lambda: ask(url, "/readyz").status == 200)
    assert server._process
    server._process.send_signal(signal.SIGSTOP)
    try:
        process.send_signal(signal.SIGTERM)
        until(lambda: ending(url))
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 1  # one order alone ends with 0, or not before Redis is back
    finally:
        server._process.send_signal(signal.SIGCONT)
    assert "\nbroker serve: ended at once" in process.log.read_text()


def ending(url: str) -> bool:
    """Whether it says that it is about to end; it may hang up on a question that comes meanwhile."""
    with suppress(ConnectionError):
        return ask(url, "/readyz").json["checks"]["process"] == "about to end"
    return False


def test_up_tells_its_dashboard_and_its_workers_no_token(machine: Machine) -> None:
    listen = f"127.0.0.1:{free_port()}"
    machine.environment = lambda start=machine.environment, **more: start(
        **{"BROKER_LISTEN": listen, "BROKER_TOKEN": TOKEN} | more
    )
    up = machine.up("--engine", "echo", nodes=1)
    url = f"http://{listen}"
    assert f"  dashboard  {url}/\n" in up.log.read_text()
    file = machine.data / "up.json"
    assert json.loads(file.read_text())["http"] == url
    assert TOKEN not in file.read_text()
    until(lambda: ask(url, "/readyz").status == 200)
    assert post(url, "/v1/jobs", JSON).refusal == (401, "unauthorized")
    body = b'{"engine":"echo","payload":{"a":1},"origin":"desk","id":"1"}'
    assert post(url, "/v1/jobs", JSON, BEARER, body=body).status == 201
    until(lambda: ask(url, "/v1/jobs/desk%2Fecho%2F%2F1/result", BEARER).status == 200)
    workers = machine.pids - {up.pid}
    assert workers
    for pid in workers:
        assert TOKEN.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 0
    assert TOKEN not in up.log.read_text()


def test_up_refuses_a_port_that_is_taken_before_anything_runs(machine: Machine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = machine.run("up", "--nodes", 1, "--listen", listen)
    assert (code, len(said.strip().splitlines())) == (1, 1)
    assert f"setting listen: cannot listen at {listen}: " in said
    assert not (machine.data / "up.json").exists()


@pytest.mark.parametrize("denied", ["-@write", "-eval"])
def test_a_redis_user_who_may_not_write_is_refused_at_the_start(
    machine: Machine, server: PrivateRedis, denied: str
) -> None:
    machine.here["REDIS_URL"] = restricted(server, denied)
    line = refused(machine)
    assert line.startswith("broker: Redis lets our user not write (")
    assert "permission" in line
    assert "REDIS_URL" in line
    assert "word" not in line  # the password


def restricted(server: PrivateRedis, *rules: str) -> str:
    """The url of a user who lacks some permission."""
    with redis.Redis(port=server.port) as admin:
        admin.execute_command(
            "ACL", "SETUSER", "watcher", "reset", "on", ">password", "~*", "&*", "+@all", *rules
        )
    return f"redis://watcher:password@127.0.0.1:{server.port}"
