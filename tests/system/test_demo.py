"""The demo on a real fleet: odd files, liars, wrong input, and what is left of it when it is stopped: nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker import Broker
from tests.system.scripts import ROOT, SCRIPTS, load

DEMO = SCRIPTS / "_demo"
#: Catches a hang, and no slow machine.
SECONDS_MAX = 240.0

files = load("_demo", "files")
stories = load("_demo", "stories")
work = load("_demo", "work")

ODD = {
    b"a b.txt": b"one two\nthree",
    b"-rf": b"no option\n",
    b"new\nline": b"x\n\ny\n",
    b"back\\slash": b"\\",
    "schöne-日本語-🎉".encode(): "wörter über\u00a0alles\n".encode(),
    b"latin-\xe9": b"\xff\xfe\x00 \x00",
    b"esc\x1b[31mred": b"\x1b[31m\n",
    b"{path}": b"{path} {{}}\n",
    b"empty": b"",
    b".hidden": b"seen all the same\n",
    b"big": b"ab \n" * 700_000 + b"x" * 3_000_000,
}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A folder of odd names, with what is no work of ours among them."""
    root = tmp_path / "odd folder"
    (root / "sub" / "deep").mkdir(parents=True)
    for name, content in ODD.items():
        (root / os.fsdecode(name)).write_bytes(content)
    (root / "sub" / "deep" / "x").write_bytes(b"deep\n")
    (root / "link").symlink_to("empty")
    (root / "folder-link").symlink_to("sub")
    (root / "nowhere").symlink_to("missing")
    os.mkfifo(root / "pipe")
    (root / ".git").mkdir()
    (root / ".git" / "HEAD").write_text("no work\n")
    return root


class Demo:
    """`scripts/_demo` in a process of its own; what it starts can be told by a mark in its environment."""

    def __init__(self, folder: Path) -> None:
        self._mark = f"DEMO_TEST_MARK={uuid.uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self.env = os.environ | {name: value, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
        # A demo minds no settings of the user.
        self.env |= {"REDIS_URL": "redis://127.0.0.1:1", "BROKER_NAMESPACE": "not-mine"}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: object) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        argv = [sys.executable, str(DEMO), *map(str, words)]
        process = subprocess.Popen(argv, env=self.env, stdout=pipe, stderr=pipe, text=True)
        self._started.append(process)
        return process

    def run(self, *words: object) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=SECONDS_MAX)
        assert "Traceback" not in err
        return process.returncode, out, err

    @property
    def left(self) -> dict[int, str]:
        """What still runs: process id -> command line."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    words = (path / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(path.name)] = words.decode(errors="replace")
            except OSError:
                continue  # it ended just now
        return found

    def assert_nothing_left(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while self.left and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.left == {}

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=SECONDS_MAX)
        for pid in self.left:  # a test has failed: leave nothing all the same
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    folder = tmp_path / "t"
    folder.mkdir()
    made = Demo(folder)
    yield made
    made.close()


def test_every_file_has_its_sum_whatever_its_name(demo: Demo, odd: Path, tmp_path: Path) -> None:
    code, out, err = demo.run(odd)
    assert (code, err) == (0, "")
    contents = [*ODD.values(), b"deep\n"]
    for content in contents:
        [line] = [
            line
            for line in out.splitlines()
            if line.startswith(hashlib.sha256(content).hexdigest())
        ]
        counts = [content.count(b"\n"), len(content.split()), len(content)]
        assert line.split()[1:4] == [f"{count:,}" for count in counts]
        assert line.endswith("  ok")
    assert f"proven: {2 * len(contents)} jobs on node-a and node-b" in out
    assert "9 stories were answered by the rules; every list equals its log" in out
    assert "3 symbolic links, 1 neither files nor folders" in out
    assert "\x1b" not in out
    assert r"new\nline" in out
    demo.assert_nothing_left()
    assert list((tmp_path / "t").iterdir()) == []


def test_one_wrong_result_is_enough_to_fail(demo: Demo, odd: Path, tmp_path: Path) -> None:
    liar = tmp_path / "bin" / "sha256sum"
    liar.parent.mkdir()
    honest = shutil.which("sha256sum")
    zeros = "0" * 64
    liar.write_text(f'#!/bin/sh\ncase "$2" in */-rf) echo {zeros};; *) exec {honest} "$@";; esac\n')
    liar.chmod(0o755)
    demo.env["PATH"] = f"{liar.parent}:{demo.env['PATH']}"
    code, out, err = demo.run(odd)
    assert code == 1
    assert "demo: NOT proven: 1 files with a wrong result" in err
    assert [line.split()[-2:] for line in out.splitlines() if line.endswith("WRONG")] == [
        ["-rf", "WRONG"]
    ]
    demo.assert_nothing_left()


@pytest.mark.parametrize(
    "line, number",
    [
        ("files in", signal.SIGINT),  # while the fleet comes up
        ("the fleet is up", signal.SIGINT),
        ("the fleet is up", signal.SIGTERM),
        ("the fleet is up", signal.SIGKILL),
    ],
)
def test_stopped_at_any_time_it_leaves_no_process(
    demo: Demo, odd: Path, line: str, number: signal.Signals
) -> None:
    process = demo.start(odd)
    assert process.stdout
    while line not in (said := process.stdout.readline()):
        assert said, process.communicate()
    assert demo.left
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS_MAX)
    if number != signal.SIGKILL:
        assert (process.returncode, err) == (130, "demo: interrupted; everything is ended\n")
    demo.assert_nothing_left()


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["{}/missing"], 1, "demo: {}/missing: no such folder\n"),
        (["{}/file"], 1, "demo: {}/file: not a folder\n"),
        (["{}/nothing"], 1, "demo: {}/nothing: no readable file is in there\n"),
        (["{}", "{}"], 2, "unrecognized arguments"),
        (["--files-max", "0"], 2, "argument --files-max"),
    ],
)
def test_wrong_input_is_told_in_one_line_before_anything_is_started(
    demo: Demo, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nothing").mkdir()
    found, out, err = demo.run(*(word.format(tmp_path) for word in words))
    assert (found, out) == (code, "")
    assert said.format(tmp_path) in err


def test_no_more_files_than_asked_for_are_looked_at(tmp_path: Path) -> None:
    for number in range(5_000):
        (tmp_path / f"{number:04}").touch()
    found = files.find_files(tmp_path, 1_000)
    assert [path.name for path in found.files] == [f"{number:04}" for number in range(1_000)]
    assert list(found.passed_over) == ["beyond the first 1,000 files"]


def test_an_unreadable_file_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("secret", "open"):
        (tmp_path / name).touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path.name != "secret")  # root reads it all
    found = files.find_files(tmp_path, 10)
    assert [path.name for path in found.files] == ["open"]
    assert found.passed_over == {"unreadable": 1}


def test_by_default_it_works_on_what_git_knows() -> None:
    found = files.find_files(ROOT, 10_000, tracked=True)
    names = {found.name(path) for path in found.files}
    assert "scripts/test" in names
    assert not any("__pycache__" in name for name in names)


@pytest.fixture
def told_to(redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that `broker report` reaches as well."""
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("BROKER_NAMESPACE", namespace)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with Broker.from_url() as broker:
        yield broker


def test_a_story_that_ends_otherwise_is_named(told_to: Broker, tmp_path: Path) -> None:
    """Answers that differ, jobs that differ, and a job in another state."""
    expected = "left-node.expected.jsonl"
    changes = {
        "answers": (
            '{"outcome": "refused", "rule": "stale_seq"}',
            '{"outcome": "applied", "rule": "ghost"}',
        ),
        "jobs": ('"left-node/ollama/r1/7"', '"left-node/ollama/r1/8"'),
        "state": ('"node": "node-b"', '"node": "node-a"'),
        "nothing": ("", ""),
    }
    said = {}
    for name, (old, new) in changes.items():
        folder = tmp_path / name
        folder.mkdir()
        for file in (expected, "left-node.jsonl"):
            text = (stories.FOLDER / file).read_text().replace("left-node", f"{name}-left-node")
            old, new = (part.replace("left-node", f"{name}-left-node") for part in (old, new))
            (folder / file).write_text(
                text.replace(old, new, 1) if file == expected and old else text
            )
        [told] = stories.tell(told_to, stories.read_stories(folder))
        said[name] = told.wrong
    assert said == {
        "answers": "line 4: refused stale_seq",
        "jobs": "the list holds jobs-left-node/ollama/r1/7",
        "state": "state-left-node/ollama/r1/7: node is 'node-b'",
        "nothing": "",
    }


def test_a_list_that_differs_from_its_log_is_a_lie(told_to: Broker) -> None:
    event = {"event": "report", "origin": "o", "engine": "e", "id": "7", "created_at": 1, "seq": 1}
    told_to.report(event | {"state": "running"})
    assert stories.lies(told_to) == []
    [key] = [listed.key for listed in told_to.jobs()]
    told_to.store.client.hset(told_to.store.keys.of_job(key).job, "state", "completed")
    assert stories.lies(told_to) == ["o/e//7: the list does not show what the log tells"]
