"""`broker top` on a real terminal: it leaves it as it was, whoever ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pytest
import redis

from tests.system.beats import Beats
from tests.system.command import reported
from tests.system.test_cli_terminal import HOSTILE

#: What a terminal is told at the end: the other screen, a cursor, no mouse, no pasting in brackets.
GIVEN_BACK = (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l")
COLOUR = re.compile(rb"\x1b\[[0-9;:]*?(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?![0-9])[0-9;:]*m")


class Terminal:
    """A terminal with `broker top` on it."""

    def __init__(self, command, *words, columns=100, lines=24, env=None):
        self._master, self._slave = pty.openpty()
        self.size(columns, lines)
        self.before = termios.tcgetattr(self._slave)
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), self._slave)
        clean = {"TERM": "xterm-256color", **(env or {})}
        self.process = command.start(
            "top", *words, **ends, env=clean, start_new_session=True, preexec_fn=self._control
        )
        self.seen = b""

    def _control(self):
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)  # ^C and the hang-up are for this one

    def size(self, columns, lines):
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys):
        os.write(self._master, keys)

    def until(self, *texts, seconds=60):
        """Wait for what comes from here on."""
        deadline, found = time.monotonic() + seconds, b""
        while not all(text in found for text in texts):
            assert time.monotonic() < deadline, (texts, found[-2000:])
            found += self._read()
        return found

    def _read(self):
        ready, _, _ = select.select([self._master], [], [], 0.1)
        data = os.read(self._master, 65536) if ready else b""
        self.seen += data
        return data

    def end(self):
        """Its exit code; the terminal is as it was."""
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen[-2000:]
            self._read()
        while self._read():
            pass
        assert termios.tcgetattr(self._slave) == self.before
        assert all(word in self.seen for word in GIVEN_BACK)
        assert b"Traceback" not in self.seen
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def top(command, broker):
    broker.report(reported("7", "failed", error=HOSTILE))
    with contextlib.ExitStack() as ending:

        def start(*words, **options):
            made = Terminal(options.pop("on", command), *words, **options)
            ending.callback(made.close)
            made.until(b"desk/ollama//7", b"1 of 1 jobs")
            return made

        yield start


@pytest.mark.parametrize(
    "end,code",
    [
        (lambda top: top.type(b"q"), 0),
        (lambda top: top.type(b"\x03"), 130),
        (lambda top: top.process.send_signal(signal.SIGINT), 130),
        (lambda top: top.process.send_signal(signal.SIGTERM), 130),
        (lambda top: top.process.send_signal(signal.SIGHUP), 130),
    ],
    ids=["q", "ctrl-c", "int", "term", "hup"],
)
def test_it_gives_the_terminal_back(top, end, code):
    shown = top()
    end(shown)
    assert shown.end() == code


def test_ctrl_c_ends_it_from_every_page(top):
    shown = top()
    for keys, text in ((b"\r", b"decided by"), (b"c", b"y yes")):
        shown.type(keys)
        shown.until(text)
    shown.type(b"\x03")
    assert shown.end() == 130


def test_another_size_is_drawn_at_once(top):
    shown = top()
    shown.size(40, 12)
    shown.process.send_signal(signal.SIGWINCH)
    shown.until(b"/ s t list")
    shown.size(160, 40)
    shown.process.send_signal(signal.SIGWINCH)
    shown.until(b"d remove")
    shown.type(b"q")
    assert shown.end() == 0


def test_no_color_means_none_and_no_text_steers_it(top):
    shown = top(env={"NO_COLOR": "1"})
    shown.type(b"\r")
    shown.until(b"[bold red]x[/]")
    shown.type(b"\x03")
    shown.end()
    assert not COLOUR.search(shown.seen)
    assert b"\x1b]0;owned" not in shown.seen
    coloured = top()
    coloured.type(b"q")
    coloured.end()
    assert COLOUR.search(coloured.seen)


def test_it_ends_at_once_where_redis_does_not_answer(command, broker, server, namespace, top):
    url = f"redis://127.0.0.1:{server.port}"
    command.env["REDIS_URL"] = url
    with redis.Redis.from_url(url) as client:
        pid = client.info("server")["process_id"]
    assert command.process("report", stdin=b'{"event":"report","origin":"desk","engine":"ollama",'
        b'"id":"7","state":"running","created_at":1700000000000}').code == 0  # fmt: skip
    shown = top()
    os.kill(pid, signal.SIGSTOP)
    try:
        shown.until(b"Redis is away")
        with Beats() as passed:
            shown.type(b"q")
            assert shown.end() == 0
        assert passed.seconds < 5  # a call that is waited for ends after 9
    finally:
        os.kill(pid, signal.SIGCONT)


def test_without_a_terminal_it_says_so_in_one_line(command, broker):
    for ran in (
        command.process("top"),
        command.process("top", env={"TERM": "dumb"}),
        command("top"),
    ):
        assert (ran.code, ran.out) == (2, "")
        assert re.fullmatch(r"broker: broker top needs a terminal; .*\n", ran.err)


def test_what_is_wrong_is_said_before_the_screen_is_taken(command):
    assert "none of queued" in command("top", "--state", "done").err
    assert command("top", "--node", "NO NODE").code == 2
