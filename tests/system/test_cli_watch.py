"""`broker jobs --watch`: the list as it changes, on a terminal and as lines."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import time

import pytest

from broker import Broker
from broker import settings as settings_of
from broker.rules.record import UNLOGGED
from broker.store.nodes import WorkerInfo
from broker.store.store import Store
from tests.system.command import held, reported, until


class Lines:
    """What a process prints, a record a line."""

    def __init__(self, process):
        self.process = process
        self.found = []
        self._rest = b""

    def until(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not any(map(condition, self.found)):
            assert time.monotonic() < deadline, self.found
            self.read()

    def read(self):
        if select.select([self.process.stdout], [], [], 0.1)[0]:
            *lines, self._rest = (self._rest + os.read(self.process.stdout.fileno(), 65536)).split(
                b"\n"
            )
            self.found += map(json.loads, lines)

    @property
    def folded(self):
        """What the lines add up to."""
        known = {}
        for line in self.found:
            if line.get("gone"):
                del known[line["key"]]
            else:
                known[line["key"]] = line
        return known


@pytest.fixture
def watch(command):
    with contextlib.ExitStack() as ending:

        def start(*words, on=command):
            process = ending.enter_context(on.start("jobs", "--watch", "-o", "jsonl", *words))
            ending.callback(process.kill)
            return Lines(process)

        yield start


def test_the_list_comes_first_and_the_lines_add_up_to_the_list(watch, command, broker):
    for id in ("a", "b"):
        broker.submit("echo", id=id)
    lines = watch()
    lines.until(lambda line: line["id"] == "b")
    assert [line["key"] for line in lines.found] == ["desk/echo//a", "desk/echo//b"]
    assert lines.found == command.ok("jobs", "-o", "jsonl").lines
    held(broker, broker.find("a")).finish("completed", result=1)
    broker.remove("b")
    broker.report(reported("7", created_at=1_700_000_000_000))
    broker.submit("echo", id="last")
    lines.until(lambda line: line.get("id") == "last")
    gone = lines.found[-3]
    assert gone == {
        "key": "desk/echo//b",
        "gone": True,
        "rev": gone["rev"],
        "rule": "removed",
        "by": "user",
    }
    assert [line["rule"] for line in lines.found[-2:]] == ["first_sighting", "submitted"]
    listed = {job["key"]: logged(job) for job in command.ok("jobs", "-o", "jsonl").lines}
    assert {key: logged(job) for key, job in lines.folded.items()} == listed


def logged(job):
    """Without what moves with no entry of the log."""
    return {name: value for name, value in job.items() if name not in UNLOGGED or name == "rev"}


def test_a_job_that_fits_no_more_is_told_of_once(watch, broker):
    for id in ("7", "8"):
        broker.report(reported(id, node="gpu-1"))
    lines = watch("--state", "running", "--node", "gpu-1")
    lines.until(lambda line: line["id"] == "8")
    broker.report(reported("7", "failed", node="gpu-1"))
    lines.until(
        lambda line: line.get("state") == "failed"
    )  # else its removal, newer, is all that is told
    broker.remove("desk/ollama//7")  # of a job that fits no more
    broker.report(reported("9", node="gpu-2"))  # never fitted
    broker.remove("desk/ollama//8")
    lines.until(lambda line: line.get("gone"))
    told = [(line["key"][-1], line.get("state", "gone")) for line in lines.found]
    assert told == [("7", "running"), ("8", "running"), ("7", "failed"), ("8", "gone")]


def test_a_doubt_is_told_of_when_it_begins_and_ends(watch, broker):
    job = broker.submit("echo", id="7")
    worker = WorkerInfo("node-a-w", "node-a", "echo", 12, 1)
    broker.beat(worker)
    held(broker, job.key)
    lines = watch()
    lines.until(lambda line: line["suspect"])

    def believed(line):
        broker.beat(worker)  # one beat may be over before anybody looks
        return line is lines.found[-1] and not line["suspect"]

    lines.until(believed)
    assert [line["state"] for line in lines.found] == ["running"] * len(lines.found)
    assert lines.found[-2]["suspect"]


def test_it_ends_with_its_reader_and_with_ctrl_c(watch, broker):
    broker.submit("echo", id="7")
    lines = watch()
    lines.until(lambda line: line["id"] == "7")
    lines.process.send_signal(signal.SIGINT)
    assert lines.process.wait(60) == 130
    assert lines.process.stderr.read() == b""
    lines = watch()
    lines.until(lambda line: line["id"] == "7")
    lines.process.stdout.close()  # and nothing happens that would be written
    assert lines.process.wait(60) == 0
    assert lines.process.stderr.read() == b""


def test_it_goes_on_where_it_stood_when_redis_comes_back(watch, command, server, namespace):
    command.env["REDIS_URL"] = url = f"redis://127.0.0.1:{server.port}"
    with Broker(Store.from_url(url, namespace), settings_of(namespace=namespace)) as broker:
        broker.report(reported("7"))
        lines = watch()
        lines.until(lambda line: line["id"] == "7")
        server.stop()
        server.start()
        broker.report(reported("8"))
        lines.until(lambda line: line["id"] == "8")
        assert [line["id"] for line in lines.found] == ["7", "8"]
    lines.process.send_signal(signal.SIGINT)
    assert lines.process.wait(60) == 130
    assert b"Traceback" not in lines.process.stderr.read()


@pytest.mark.parametrize("words", [["-o", "json"], ["-o", "table"], []])
def test_what_never_ends_is_no_array_and_a_table_needs_a_terminal(command, words):
    ran = command.process("jobs", "--watch", *words)
    assert (ran.code, ran.out) == (2, "")
    assert "--watch needs -o jsonl, or a terminal" in ran.err


def test_an_origin_that_is_no_name_is_refused(command):
    assert command("jobs", "--watch", "-o", "jsonl", "--origin", "NO NAME").code == 2


def test_the_table_is_drawn_anew_by_each_change_and_not_by_a_clock(command, broker):
    broker.submit_many("echo", range(1_000))
    master, slave = pty.openpty()
    # An hour, and not a second, until it draws anew by itself.
    program = (
        "from broker.cli import main, watching; watching.LOOK_SECONDS = 3_600;"
        "raise SystemExit(main(['jobs', '--watch']))"
    )
    ends = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
    with command.start(program=("-c", program), **ends) as watching:
        os.close(slave)

        def shown(text):
            seen = b""
            while text not in seen:
                assert select.select([master], [], [], 30)[0], seen
                seen += os.read(master, 65536)

        shown(b"1000 jobs")
        for number in range(1_001, 1_008):
            broker.submit("echo")
            shown(b"%d jobs" % number)
        watching.send_signal(signal.SIGTERM)
        last = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(master, 65536):
                last += data
        until(lambda: watching.poll() is not None)
        assert b"\x1b[?1049l" in last
    os.close(master)
