"""`broker up` and `broker serve`, as real processes: what they start, what they leave, who may run beside them."""

from __future__ import annotations

import json
import os
import re
import signal
import socketserver
import stat
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker import Broker
from broker.cli.up import _print_where, _told
from broker.config import data_dir, running_up, settings
from broker.store.server import PrivateRedis
from tests.ports import free_port
from tests.system.machine import Machine, command_of, family
from tests.workers.fleet import alive, parent, until


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    made.close()


def test_up_runs_jobs_ends_whole_and_keeps_the_data(machine):
    up = machine.up("--engine", "echo", "--engine", "checksum")
    file = machine.home / "file"
    file.write_text("abc")
    with machine.broker() as broker:
        assert broker.submit("echo", {"a": [1]}, id="1").result(timeout=60) == {"a": [1]}
        summed = broker.submit("checksum", {"path": str(file)}, id="2").result(timeout=60)
        assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" in str(summed)
        before = {listed.key: listed.record for listed in broker.jobs()}

    # Others find it, and a second one does not run beside it.
    code, said = machine.run("show", "echo//1", "-o", "json")
    assert (code, json.loads(said)["state"]) == (0, "completed")
    code, said = machine.run("up")
    assert code == 1
    assert str(up.pid) in said
    assert machine.url() in said
    assert len(said.strip().splitlines()) == 1
    assert up.poll() is None

    # It says where things are, to this user alone.
    said = up.log.read_text()
    assert machine.url() in said
    assert f"redis-cli -s {machine.url().removeprefix('unix://')}" in said
    assert str(machine.data) in said
    assert json.loads((machine.data / "up.json").read_text())["pid"] == up.pid
    assert stat.S_IMODE((machine.data / "up.json").stat().st_mode) == 0o600

    # Ctrl-C ends all of it.
    until(lambda: len(family(up.pid)) >= 2 + 2 + 4)  # the last worker may come after "ready"
    machine.pids |= set(family(up.pid))
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 0
    until(lambda: not machine.left())
    assert machine.url() is None
    assert "Traceback" not in up.log.read_text()

    # The data is still there.
    machine.up("--engine", "echo", nodes=1)
    with machine.broker() as broker:
        assert {listed.key: listed.record for listed in broker.jobs()} == before
        assert broker.submit("echo", 2).result(timeout=60) == 2


def test_a_killed_up_leaves_no_process_and_is_not_believed(machine, monkeypatch):
    up = machine.up("--engine", "sleep", nodes=1)
    with machine.broker() as broker:
        job = broker.submit("sleep", {"seconds": 600}, id="long")
        until(lambda: job.record().state == "running")
    machine.pids |= set(family(up.pid))  # and the one that runs the job
    stale = machine.url()
    up.kill()
    up.wait()

    until(lambda: not machine.left())
    assert machine.url() == stale
    monkeypatch.setenv("XDG_DATA_HOME", str(machine.home))
    assert running_up() is None

    machine.up("--engine", "echo", nodes=1)
    with machine.broker() as broker:
        # Soon its sweeper takes the one that ran for lost, and offers it anew.
        assert not broker.get(job.key).ended
        assert broker.submit("echo", 1).result(timeout=60) == 1


def test_an_order_to_end_cuts_a_long_job_off_and_leaves_no_process(machine):
    up = machine.up("--engine", "sleep", nodes=1)
    with machine.broker() as broker:
        wrong = broker.submit("sleep", {"seconds": "x"}).wait(60)
        assert (wrong.state, wrong.reason) == ("failed", "permanent")
        job = broker.submit("sleep", {"seconds": 600})
        until(lambda: job.record().state == "running")
        job.cancel()
        assert job.wait(60).state == "cancelled"
        job = broker.submit("sleep", {"seconds": 600})
        until(lambda: job.record().state == "running")
    machine.pids |= set(family(up.pid))
    up.terminate()
    until(lambda: "jobs in hand have 8 s, once more" in up.log.read_text())
    up.terminate()

    assert up.wait(60) == 0
    until(lambda: not machine.left())


def test_killed_workers_come_back(machine):
    up = machine.up("--engine", "echo", nodes=1)
    # Who was forked a moment ago still has the name of its parent.
    supervisors = [pid for pid in family(up.pid) if "broker.cli worker" in command_of(pid)]
    [supervisor] = [pid for pid in supervisors if parent(pid) == up.pid]
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not alive(supervisor))

    with machine.broker() as broker:
        assert broker.submit("echo", 3).result(timeout=60) == 3


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    """Python names none where a write fails, only where an open does."""

    def on_a_full_disk(descriptor, mode):
        os.close(descriptor)
        return Path("/dev/full").open(mode)

    monkeypatch.setattr("os.fdopen", on_a_full_disk)
    redis = SimpleNamespace(url="unix:///run/x", redis_cli="redis-cli")
    full = re.escape(f"No space left on device: '{tmp_path / 'up.json.new'}'")
    with pytest.raises(OSError, match=full), _told(tmp_path, redis, settings(), "off"):
        pytest.fail("what it says of itself is not written")
    assert list(tmp_path.iterdir()) == []


def test_up_tells_how_to_reach_it_where_commands_do_not_find_it(capsys, monkeypatch, tmp_path):
    class Redis:
        url, redis_cli = "unix:///run/x", "redis-cli -s /run/x"

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("REDIS_URL", raising=False)
    _print_where(data_dir(), Redis, ["node-a"])
    assert "export" not in capsys.readouterr().out

    _print_where(tmp_path / "elsewhere", Redis, ["node-a"])
    assert "export REDIS_URL=unix:///run/x" in capsys.readouterr().out
    monkeypatch.setenv("REDIS_URL", "redis://other")
    _print_where(data_dir(), Redis, ["node-a"])
    assert "export REDIS_URL=unix:///run/x" in capsys.readouterr().out


@pytest.mark.parametrize(
    "order, said",
    [
        (signal.SIGKILL, "the private Redis was killed by SIGKILL"),
        (signal.SIGTERM, "the private Redis ended by itself: "),
    ],
)
def test_an_up_whose_redis_ends_says_how_and_ends(machine, order, said):
    up = machine.up("--engine", "echo", nodes=1)
    with machine.broker() as broker:
        pid = broker.store.client.info("server")["process_id"]
    os.kill(pid, order)

    assert up.wait(60) == 1
    [last] = [line for line in up.log.read_text().splitlines() if line.startswith("broker: ")]
    assert last.startswith(f"broker: {said}")
    until(lambda: not machine.left())


def test_an_engine_that_nobody_knows_ends_it_with_a_reason(machine):
    code, said = machine.run("up", "--engine", "nonsense", "--nodes", 1)

    assert code == 1
    assert "nonsense" in said
    assert "gave up" in said


# --- serve ------------------------------------------------------------------------------------------------------


@pytest.fixture
def url(redis_url, namespace, monkeypatch):
    monkeypatch.setenv("BROKER_NAMESPACE", namespace)
    return {"REDIS_URL": redis_url, "BROKER_NAMESPACE": namespace}


def leader(store):
    return store.client.get(store.keys.leader("dispatcher"))


@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGINT])
def test_serve_leads_and_gives_the_lead_back_when_it_ends(machine, url, store, order):
    serve = machine.start("serve", "--allow-volatile", **url)
    until(lambda: leader(store))
    serve.send_signal(order)

    assert serve.wait(60) == 0
    assert leader(store) is None
    assert "Traceback" not in serve.log.read_text()


def test_a_second_serve_stands_by_and_takes_over(machine, url, store):
    """With a lease of twice the length: the first one keeps it also where it alone stands still for a while."""
    url |= {"BROKER_BUDGETS__GUESS_MS": "10000"}
    first = machine.start("serve", "--allow-volatile", **url)
    held = until(lambda: leader(store))
    second = machine.start("serve", "--allow-volatile", **url)
    until(lambda: "the roles run" in second.log.read_text())
    assert leader(store) == held

    first.send_signal(signal.SIGKILL)
    until(lambda: leader(store) not in (None, held))
    assert second.poll() is None


def test_serve_without_redis_is_told_at_once(machine):
    code, said = machine.run("serve", REDIS_URL="redis://127.0.0.1:1")

    assert code == 6
    assert len(said.strip().splitlines()) == 1


class OldRedis(socketserver.StreamRequestHandler):
    """Says that it is Redis 6.2, and else nothing but OK."""

    def handle(self):
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            if words[0] == b"HELLO":
                self.wfile.write(b"%1\r\n+proto\r\n:3\r\n")
            elif words[0] == b"INFO":
                told = b"# Server\r\nredis_version:6.2.14\r\n"
                self.wfile.write(b"$%d\r\n%s\r\n" % (len(told), told))
            else:
                self.wfile.write(b"+OK\r\n")


@pytest.mark.parametrize("words", [[], ["--allow-volatile"]])
def test_serve_refuses_an_old_redis_by_its_version(machine, words):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OldRedis) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"redis://127.0.0.1:{server.server_address[1]}"
        code, said = machine.run("serve", *words, REDIS_URL=url)
        server.shutdown()

    assert code == 1
    assert "Redis 6.2.14 is too old" in said
    assert len(said.strip().splitlines()) == 1


#: The roles that need Redis all the time.
ROLES = ("dispatcher", "janitor")


def said(process, role, what):
    """How often a role told this."""
    lines = process.log.read_text().splitlines()
    return sum(what in line and role in line for line in lines)


def test_serve_outlives_a_restart_of_redis(machine, tmp_path):
    port = free_port()
    url = f"redis://127.0.0.1:{port}"
    redis = PrivateRedis(tmp_path / "own", port)
    with redis, Broker.from_url(url, node="desk") as broker:
        serve = machine.start("serve", REDIS_URL=url)
        until(lambda: leader(broker.store))
        redis.stop()
        until(lambda: all(said(serve, role, "trying on") for role in ROLES))
        redis.start()
        until(lambda: all(said(serve, role, "works again") for role in ROLES))
        until(lambda: leader(broker.store))

        serve.terminate()
        assert serve.wait(60) == 0
    for role in ROLES:
        assert (said(serve, role, "trying on"), said(serve, role, "works again")) == (1, 1)
    assert "Traceback" not in serve.log.read_text()
