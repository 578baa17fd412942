"""The command line as a shell sees it: exit codes, streams, terminals."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from broker.cli import main
from broker.cli.commands import COMMANDS
from tests.system.beats import Beats
from tests.system.command import ROOT, Command, reported, until, waits


class TestHelp:
    def test_lists_every_command(self, command: Command):
        ran = command.ok("--help")
        assert all(f"  {name} " in ran.out for name in COMMANDS)
        assert max(map(len, ran.out.splitlines())) <= 120
        assert command("-h").out == ran.out
        assert command().code == 2

    @pytest.mark.parametrize("name", sorted(COMMANDS))
    def test_each_command_tells_its_own(self, command, name):
        ran = command.ok(name, "--help")
        assert f"broker {name}" in ran.out
        assert "--help" in ran.out

    def test_says_which_verbs_there_are_in_one_line(self, command):
        ran = command("node")
        assert (ran.code, ran.out) == (2, "")
        assert "Choose from: drain, resume, dead, remove (broker node --help)\n" in ran.err

    def test_names_a_verb_once(self, command):
        assert command.ok("node", "--help").out.count("drain|resume|dead|remove") == 1

    def test_knows_no_other(self, command):
        ran = command("shwo")
        assert (ran.code, ran.out, ran.err) == (
            2,
            "",
            "broker: there is no command 'shwo'; did you mean show?\n",
        )
        assert command("top").code == 2

    @pytest.mark.parametrize(
        "words", [["trust"], ["trust", "pni"], ["trust", "pin"], ["trust", "pin", "a", "b"]]
    )
    def test_a_verb_that_is_missing_or_wrong_is_a_usage_error(self, command, words):
        ran = command(*words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert ran.err.endswith("(broker trust --help)\n")

    def test_the_overview_loads_nothing_heavy(self):
        code = "import sys; from broker.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stderr.split()
        assert not {"typer", "rich", "redis", "pydantic", "asyncio", "json"} & set(said)

    @pytest.mark.parametrize("words", [["show", "-o", "json"], ["jobs"], ["why"]])
    def test_a_command_loads_no_rich(self, command, broker, words):
        broker.submit("echo", id="7")
        words = words + ["7"] * (words[0] != "jobs")
        code = f"import sys; from broker.cli import main; main({words!r}); print(*sys.modules, file=sys.stderr)"
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stderr.split()
        assert not {"rich", "rq", "workers"} & set(said)


class TestRedis:
    COMMANDS = (
        ["jobs"], ["show", "7"], ["why", "7"], ["wait", "7"], ["result", "7"], ["cancel", "7"], ["retry", "7"],
        ["remove", "7"], ["submit", "echo"], ["report", os.devnull], ["log", "desk"], ["replay", "desk"], ["nodes"],
        ["node", "drain", "nas"], ["doctor"], ["groups"], ["trust", "announcements", "nas"],
    )  # fmt: skip

    @pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
    def test_a_redis_that_is_down_is_6(self, command, monkeypatch, words):
        monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1")
        with Beats() as passed:
            ran = command(*words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (6, "", 1)
        assert passed.seconds < 5

    def test_a_host_that_never_answers_is_6_within_5_seconds(self, command, monkeypatch):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf:
            port = deaf.getsockname()[1]
            full = [socket.socket() for _ in range(4)]
            for client in full:
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
            monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{port}")
            with Beats() as passed:
                assert command("jobs").code == 6
            assert passed.seconds < 5
            for client in full:
                client.close()

    @pytest.mark.parametrize("words", [["jobs"], ["show", "7"]])
    def test_a_redis_that_is_frozen_is_6_within_5_seconds(self, command, monkeypatch, words):
        with socket.create_server(("127.0.0.1", 0)) as frozen:  # the kernel accepts, nobody answers
            monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{frozen.getsockname()[1]}")
            with Beats() as passed:
                assert command(*words).code == 6
            assert passed.seconds < 5  # tried once more, it would be 6

    def test_redis_6_is_refused_by_name(self, command, monkeypatch):
        info = b"# Server\r\nredis_version:6.2.14\r\n"
        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=_answer, args=(server, info), daemon=True).start()
            monkeypatch.setenv(
                "REDIS_URL", f"redis://127.0.0.1:{server.getsockname()[1]}?protocol=2"
            )
            ran = command("jobs")
        assert (ran.code, ran.out) == (1, "")
        assert (
            ran.err
            == "broker: Redis 6.2.14 is too old: fleet-broker needs Redis 7.0 or later, or Valkey\n"
        )

    @pytest.mark.parametrize("url", ["http://x", "redis://:secret@127.0.0.1:port"])
    def test_a_url_that_is_none_is_named_without_its_password(self, command, monkeypatch, url):
        monkeypatch.setenv("REDIS_URL", url)
        ran = command("jobs")
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert "secret" not in ran.err

    def test_a_wrong_setting_is_named(self, command, monkeypatch):
        monkeypatch.setenv("BROKER_NODE", "Not A Name")
        ran = command("jobs")
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert "setting node" in ran.err or "BROKER_NODE" in ran.err


def _answer(server: socket.socket, info: bytes) -> None:
    """A server of an old version: INFO tells it, everything else is fine."""
    while True:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            while data := client.recv(65536):
                for request in re.findall(rb"\*\d+\r\n(?:\$\d+\r\n[^\r]*\r\n)+", data):
                    client.sendall(
                        b"$%d\r\n%s\r\n" % (len(info), info)
                        if b"INFO" in request.upper()
                        else b"+OK\r\n"
                    )


class TestStreams:
    def test_ctrl_c_is_130_and_quiet(self, command, broker):
        broker.submit("echo", id="7")
        with command.start("wait", "7") as waiting:
            until(lambda: waits(broker))
            waiting.send_signal(2)
            out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out, err) == (130, b"", b"")

    @pytest.mark.parametrize("format", ["table", "json", "jsonl"])
    def test_a_reader_that_has_seen_enough_is_no_error(self, command, broker, format):
        list(broker.report_many(reported(str(n)) for n in range(1_000)))
        with command.start("jobs", "-o", format) as listing:
            listing.stdout.read(10)
            listing.stdout.close()
            assert listing.stderr.read() == b""
            assert listing.wait(60) == 0

    def test_closed_streams_are_no_error(self, command, broker):
        broker.submit("echo", id="7")
        shell = f"exec {sys.executable} -m broker.cli show 7 <&- >&- 2>&-"
        env = {**os.environ, **command.env, "PYTHONPATH": str(ROOT)}
        assert subprocess.run(["sh", "-c", shell], env=env, check=False).returncode == 0

    def test_a_full_disk_is_an_error(self, command, broker):
        broker.submit("echo", id="7")
        with Path("/dev/full").open("w") as full:
            ran = command.process("show", "7", stdout=full)
        assert ran.code == 1
        assert "No space left" in ran.err

    def test_an_ascii_stdout_shows_escapes(self, command, broker):
        broker.submit("echo", id="é")
        ran = command.process("jobs", env={"PYTHONIOENCODING": "ascii"})
        assert r"desk/echo//\xe9" in ran.out

    def test_a_bug_is_one_line_unless_debugging(self, monkeypatch, capsys):
        monkeypatch.setattr("broker.cli._dispatch", lambda words: 1 / 0)
        monkeypatch.delenv("BROKER_LOG_LEVEL", raising=False)
        assert main(["jobs"]) == 1
        assert capsys.readouterr().err.startswith("broker: ZeroDivisionError: ")
        monkeypatch.setenv("BROKER_LOG_LEVEL", "debug")
        assert main(["jobs"]) == 1
        assert "Traceback" in capsys.readouterr().err
