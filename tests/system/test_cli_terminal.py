"""The command line on a terminal: hostile text, narrow and wide ones, colours."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import termios

import pytest

from broker.cli.table import cells
from tests.system.command import Command, held, reported

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2066[bold red]x[/]\x7f\r\n"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def on_terminal(
    command: Command, *words: str, columns: int = 80, env: dict[str, str] | None = None
) -> str:
    """What a terminal of that width would be sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {"TERM": "xterm", "COLUMNS": str(columns), **(env or {})}
    with command.start(*words, stdin=slave, stdout=slave, stderr=slave, env=clean) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            seen += data
        assert process.wait(60) == 0
    os.close(master)
    return seen.decode().replace("\r\n", "\n")


class TestTerminal:
    @pytest.fixture
    def hostile(self, broker):
        """Escape sequences in every text that somebody else chose."""
        nasty = dict.fromkeys(("error", "model", "requester"), HOSTILE)
        broker.report(
            reported(
                HOSTILE, "failed", engine="e" + HOSTILE, run="r" + HOSTILE, extra=HOSTILE, **nasty
            )
        )
        broker.report(reported(HOSTILE, "queued", engine="e" + HOSTILE, run="r" + HOSTILE, seq=1))
        job = broker.submit("echo", {HOSTILE: HOSTILE}, id="7", model=HOSTILE, requester=HOSTILE)
        held(broker, job.key).finish("failed", error=HOSTILE, reason=HOSTILE)
        broker.submit("e" + HOSTILE, id="9", run="r" + HOSTILE)
        done = broker.submit("echo", HOSTILE, id="8")
        held(broker, done.key).finish("completed", result={HOSTILE: HOSTILE})
        return [str(listed.key) for listed in broker.jobs()]

    @pytest.mark.parametrize("format", ["table", "json", "jsonl"])
    def test_no_text_steers_it(self, command, hostile, format):
        seen = ""
        for key in hostile:
            for verb in ("show", "why"):
                seen += command.ok(verb, key, "-o", format).out
        for words in (["jobs"], ["log", "desk"], ["replay", "desk"]):
            seen += command.ok(*words, "-o", format).out
        for words in (
            ["result", "7"],
            ["result", "8"],
            ["wait", "7"],
            ["show", HOSTILE],
            [HOSTILE],
            ["jobs", HOSTILE],
        ):
            ran = command(*words)
            seen += ran.out + ran.err
        assert "[bold red]x[/]" in seen
        assert not CONTROL.search(seen)

    def test_an_event_that_is_wrong_steers_it_neither(self, command, tmp_path):
        file = tmp_path / "events.jsonl"
        file.write_text(
            json.dumps({"event": HOSTILE})
            + "\n"
            + json.dumps(reported(origin=HOSTILE))
            + "\n"
            + HOSTILE.strip()
        )
        ran = command("report", file)
        assert not CONTROL.search(ran.out + ran.err)

    @pytest.mark.parametrize("columns", [40, 60, 80, 200])
    def test_a_list_never_wraps(self, command, broker, columns):
        broker.report(
            reported(
                "漢字" * 30, "failed", node="a-node-with-a-long-name", error="it went wrong " * 4
            )
        )
        broker.submit("echo", id="7")
        seen = on_terminal(command, "jobs", columns=columns, env={"NO_COLOR": "1"})
        assert all(cells(line) <= columns for line in seen.splitlines())
        assert len(seen.splitlines()) == 3
        assert "\x1b" not in seen
        assert ("it went " in seen) == (columns >= 60)

    def test_watching_shows_the_list_until_ctrl_c(self, command, broker):
        broker.submit("echo", id="7")
        master, slave = pty.openpty()
        with command.start("jobs", "--watch", stdin=slave, stdout=slave, stderr=slave) as watching:
            os.close(slave)
            seen = b""
            while b"1 jobs" not in seen:
                seen += os.read(master, 65536)
            watching.send_signal(2)
            with contextlib.suppress(OSError):  # the other end is closed
                while os.read(master, 65536):
                    pass
            assert watching.wait(60) == 130
        os.close(master)
        assert b"desk/echo//7" in seen

    @pytest.mark.parametrize(
        "words", [["report"], ["submit", "echo", "--jsonl"]], ids=lambda words: words[0]
    )
    def test_progress_goes_beside_the_output(self, command, tmp_path, words):
        """With stderr on a terminal and stdout elsewhere."""
        file = tmp_path / "lines.jsonl"
        file.write_text("".join(json.dumps(reported(str(n))) + "\n" for n in range(50)) + "bad\n")
        master, slave = pty.openpty()
        with command.start(*words, file, stderr=slave, env={"TERM": "xterm"}) as process:
            os.close(slave)
            out = process.stdout.read()
            shown = b""
            with contextlib.suppress(OSError):  # the other end is closed
                while data := os.read(master, 65536):
                    shown += data
            assert process.wait(60) == 1
        os.close(master)
        assert len([line for line in out.splitlines() if b"desk/" in line]) == 50
        assert b"line 51" in shown
        assert b"50 jobs" in shown or b"51 events" in shown
        assert b"desk/" not in shown

    def test_colours_only_where_they_are_wanted(self, command, broker):
        broker.report(reported("7", "failed"))
        assert "\x1b[31mfailed" in on_terminal(command, "jobs")
        assert "\x1b" not in on_terminal(command, "jobs", env={"NO_COLOR": "1"})
        assert "\x1b" not in on_terminal(command, "jobs", env={"TERM": "dumb"})
        assert "\x1b" not in command.ok("jobs").out

    def test_a_pipe_gets_it_whole(self, command, broker):
        broker.report(reported("x" * 250, error="it went wrong " * 4))
        ran = command.process("jobs", env={"COLUMNS": "40"})
        assert "x" * 250 in ran.out
