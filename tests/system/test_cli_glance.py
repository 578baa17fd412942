"""The quick way of `show` gives what the catalog gives, or leaves the answer to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker import Broker, WorkerInfo
from broker.glance import glance
from broker.rules.key import Key
from broker.store.bare import Bare, NotPlain
from broker.store.server import PrivateRedis
from tests.system.command import guessed, held, placed, reported


@pytest.fixture
def jobs(command, broker) -> list[Key]:
    """A job in each situation that a record tells."""
    queued = broker.submit("echo", {"é": [1, None]}, id="queued").key
    delayed = broker.submit("echo", id="delayed", delay=60, model="m", timeout=1.5).key
    waiting = broker.submit("echo", id="placed").key
    placed(broker, waiting)
    running = broker.submit("echo", id="running").key
    held(broker, running)
    broker.beat(WorkerInfo("node-a-w", "node-a", "echo", pid=1, started_at=1))
    broker.store.client.hset(broker.store.keys.of_job(running).job, "last_seen", "1000")
    silent = broker.submit("echo", id="silent").key
    held(broker, silent, "node-b")
    broker.store.client.hset(broker.store.keys.of_job(silent).job, "last_seen", "1000")
    doubted = broker.submit("echo", id="guess").key
    held(broker, doubted)
    guessed(broker, doubted)
    done = broker.submit("echo", id="done").key
    held(broker, done).finish("completed", result=1)
    failed = broker.submit("echo", id="a/b %{}", run="r:1", origin="nas").key
    held(broker, failed).finish("failed", error="boom\x1b")
    broker.report(reported("7", "running", seq=2, extra={"x": 1}, error="e" * 200))
    broker.report(reported("7", "queued", seq=1))
    told = Key("desk", "ollama", "", "7")
    return [queued, delayed, waiting, running, silent, doubted, done, failed, told]


def test_the_quick_way_gives_what_the_catalog_gives(broker: Broker, jobs):
    for key in jobs:
        assert glance(str(key)) == broker.show(key)
    assert [glance(str(key))["suspect"] for key in jobs].count(True) == 1


def test_it_finds_a_job_by_its_end(broker, jobs):
    for key in jobs:
        end = "/".join(str(key).split("/")[1:])
        assert glance(end) == glance(end.rpartition("/")[2]) == broker.show(key)


def test_it_leaves_every_error_to_the_catalog(command, broker, jobs):
    broker.submit("other", id="7")
    for text in ("7", "nobody", "desk/echo//nobody", "a/b/c/d/e", "Desk/echo//7", "", "/", "%ff"):
        assert glance(text) is None
    key = Key("desk", "echo", "", "broken")
    broker.store.client.set(broker.store.keys.of_job(key).job, "no hash")
    assert glance(str(key)) is None


def test_it_is_not_taken_where_a_setting_may_change_the_answer(
    command, broker, monkeypatch, tmp_path
):
    broker.submit("echo", id="7")
    assert glance("7")
    for name, value in (
        ("BROKER_BUDGETS__SUSPECT_MS", "1"),
        ("BROKER_CONFIG", "x"),
        ("REDIS_URL_FILE", "x"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert glance("7") is None
    (tmp_path / "broker.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert glance("7") is None
    monkeypatch.delenv("REDIS_URL")
    assert glance("7") is None


def test_an_old_server_is_left_to_the_catalog(command, broker, monkeypatch):
    broker.submit("echo", id="7")
    monkeypatch.setattr("broker.glance._VERSION_MIN", 99)
    assert glance("7") is None


def test_a_plain_show_loads_nothing_slow(command, broker):
    broker.submit("echo", id="7")
    code = "import sys; from broker.cli import main; main(['show', '7']); print(*sys.modules, file=sys.stderr)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "desk/echo//7" in said.stdout
    assert not {"typer", "rich", "redis", "pydantic", "asyncio"} & set(said.stderr.split())


def test_both_ways_print_the_same(command, jobs):
    for key in jobs:
        quick = command.ok("show", key, "-o", "json").out
        assert command.ok("show", key, "-ojson").out == quick


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server on a port, with a password."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("guarded")
    with PrivateRedis(folder, port=port, options={"appendonly": "no"}) as server:
        with Bare(server.url) as bare:
            bare.ask(
                [
                    ("ACL", "SETUSER", "u", "on", ">p@ss", "~*", "+@all"),
                    ("CONFIG", "SET", "requirepass", "p/ss"),
                ]
            )
        yield port


@pytest.mark.parametrize("login", [":p%2Fss", "u:p%40ss", "default:p%2Fss"])
@pytest.mark.parametrize("rest", ["/3", "?db=3"])
def test_a_password_a_user_and_a_database(guarded, login, rest):
    with Bare(f"redis://{login}@127.0.0.1:{guarded}{rest}") as bare:
        told = bare.ask([("SET", "x", login), ("GET", "x"), ("GET", "none"), ("CLIENT", "INFO")])
    assert told[1:3] == [login.encode(), None]
    assert b" db=3 " in told[3]


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:p@"])
def test_a_wrong_login_is_not_plain(guarded, login):
    with pytest.raises(NotPlain), Bare(f"redis://{login}127.0.0.1:{guarded}") as bare:
        bare.ask([("PING",)])


@pytest.mark.parametrize(
    "url",
    [
        "rediss://x",
        "redis://127.0.0.1:1",
        "redis://x:port",
        "unix:///none",
        "redis://127.0.0.1?ssl=1",
        "x",
    ],
)
def test_what_is_not_plain(url):
    with pytest.raises(NotPlain):
        Bare(url)
