"""The engine of programs: its template, its bounds, its end."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from types import SimpleNamespace

import pytest

from broker import Misconfigured
from tests.workers.engine_suite import context
from tests.workers.fleet import alive, until
from workers.engine import Permanent, Stopped
from workers.engines.process import KEPT_BYTES_MAX, ProcessEngine, ProgramFailed, fill


@pytest.mark.parametrize(
    "template,payload,argv",
    [
        (
            ["sha256sum", "--", "{path}"],
            {"path": "a b; rm -rf $HOME"},
            ["sha256sum", "--", "a b; rm -rf $HOME"],
        ),
        (["p", "{a}{b}"], {"a": "x", "b": "y z"}, ["p", "xy z"]),
        (["p", "--size={n}"], {"n": 12}, ["p", "--size=12"]),
        (["p", "{x}"], {"x": "{y}", "y": "never"}, ["p", "{y}"]),
        (["p", "{{literal}}", "{x}"], {"x": ""}, ["p", "{literal}", ""]),
        (["p", "--", "{x}"], {"x": "-rf"}, ["p", "--", "-rf"]),
        (["p", "--", "{x}"], {"x": -5}, ["p", "--", "-5"]),
        (["p", "{x}"], {"x": True}, ["p", "true"]),
        (["p", "{x}"], {"x": 1.5}, ["p", "1.5"]),
        (["p", "-{a}"], {"a": "n"}, ["p", "-n"]),
        (["p", "--", "{a}-{b}"], {"a": "", "b": "n"}, ["p", "--", "-n"]),
        (["p", "{x}"], {"x": "naïve\nline"}, ["p", "naïve\nline"]),
        (["p"], None, ["p"]),
    ],
)
def test_each_element_of_the_template_is_one_argument(template, payload, argv):
    assert fill(template, payload) == argv


@pytest.mark.parametrize(
    "template,payload,says",
    [
        (["p", "{x}"], {"x": "-rf"}, "begins with '-'"),
        (["p", "{x}"], {"x": -5}, "begins with '-'"),
        (["p", "--a={x}"], {"x": "-rf"}, "begins with '-'"),
        (["p", "{a}{b}"], {"a": "", "b": "-rf"}, "begins with '-'"),
        (["p", "{x}", "--", "{y}"], {"x": "--", "y": "-rf"}, "payload.x begins with '-'"),
        (["p", "{a}-{b}"], {"a": "", "b": "n"}, "'{a}-{b}' begins with '-' once it is filled"),
        (["p", "{a}--"], {"a": ""}, "begins with '-'"),
        (["p", "{x}"], {}, "no 'x'"),
        (["p", "{x}"], None, "no 'x'"),
        (["p", "{x}"], ["x"], "no 'x'"),
        (["p", "{x}"], {"x": None}, "a text or a number"),
        (["p", "{x}"], {"x": ["a"]}, "a text or a number"),
        (["p", "{x}"], {"x": "a\0b"}, "NUL"),
        (["p", "{x}"], {"x": "\ud800"}, "Unicode"),
    ],
)
def test_a_payload_that_does_not_fit_is_a_permanent_failure(template, payload, says):
    with pytest.raises(Permanent, match=says):
        fill(template, payload)


@pytest.mark.parametrize(
    "table,says",
    [
        ({}, "argv must be a list"),
        ({"argv": []}, "argv must be a list"),
        ({"argv": "sha256sum {path}"}, "argv must be a list"),
        ({"argv": ["p", 1]}, "argv must be a list"),
        ({"argv": ["{program}"]}, "the program itself"),
        ({"argv": ["p", "{x"]}, "single {"),
        ({"argv": ["p", "{0}"]}, "single {"),
        ({"argv": ["p\0"]}, "NUL"),
        ({"argv": ["p"], "permanent_exit_codes": [0]}, "numbers 1 to 255"),
        ({"argv": ["p"], "permanent_exit_codes": [True]}, "numbers 1 to 255"),
        ({"argv": ["p"], "shell": True}, "unknown setting shell"),
    ],
)
def test_a_table_that_is_wrong_is_refused_by_name(table, says):
    with pytest.raises(Misconfigured, match=says) as raised:
        ProcessEngine.from_table("sum", table)
    assert "engines.sum" in str(raised.value)


def run(code, payload=None, *argv, ctx=None, permanent=()):
    engine = ProcessEngine((sys.executable, "-c", code, *argv), frozenset(permanent))
    return engine.run(ctx or context(), payload)


def test_the_result_holds_the_exit_code_and_what_was_written():
    assert run("print('out')") == {"exit_code": 0, "stdout": "out\n"}


def test_a_long_output_is_cut_and_counted():
    size = KEPT_BYTES_MAX * 3
    result = run(f"print('x' * {size}, end='')")
    assert len(result["stdout"]) == KEPT_BYTES_MAX
    assert result["stdout_bytes"] == size


def test_output_that_is_no_text_does_no_harm():
    assert run(r"import os; os.write(1, b'\xff\x00a')")["stdout"] == "\ufffd\0a"


def test_a_failure_tells_the_exit_code_and_the_end_of_stderr():
    with pytest.raises(ProgramFailed) as raised:
        run("import sys; sys.exit('first line\\nno such file')")
    assert str(raised.value).startswith("exit code 1: no such file\n")
    assert "first line" in str(raised.value)


def test_a_permanent_exit_code_is_a_permanent_failure():
    with pytest.raises(Permanent, match="exit code 4"):
        run("import sys; sys.exit(4)", permanent=[4, 5])


def test_a_program_killed_by_a_signal_tells_which():
    with pytest.raises(ProgramFailed, match="killed by SIGSEGV"):
        run("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")


def test_a_program_that_is_not_there_may_be_elsewhere():
    with pytest.raises(ProgramFailed, match="cannot run no-such-program: No such file"):
        ProcessEngine(("no-such-program",)).run(context(), None)


def test_no_shell_ever_reads_the_payload(tmp_path):
    trap = tmp_path / "trap"
    code = "import sys; print(sys.argv[1], end='')"
    evil = f"$(touch {trap}); `touch {trap}` | touch {trap}"
    assert run(code, {"x": evil}, "{x}")["stdout"] == evil
    assert not trap.exists()


def test_the_program_knows_its_job():
    ctx = context()
    ctx.attempt = 3
    code = "import os; print(os.environ['BROKER_JOB'], os.environ['BROKER_ATTEMPT'])"
    assert run(code, ctx=ctx)["stdout"] == "home/any//1 3\n"


def test_stdin_is_empty():
    assert run("import sys; print(repr(sys.stdin.read()))")["stdout"] == "''\n"


#: For programs: wait for a file, for a minute at most.
AWAIT = """
import fcntl, os, subprocess, sys, time
def wait(path):
    end = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
"""


def heard_by(lane, monkeypatch, act):
    """Have this done with each piece of output that the lane is given."""
    keep = lane.write
    monkeypatch.setattr(lane, "write", lambda chunk: (keep(chunk), act()))


def test_output_comes_while_the_program_runs(tmp_path, monkeypatch):
    """The program goes on when its first piece was heard."""
    ctx, heard = context(), tmp_path / "heard"
    heard_by(ctx.lane, monkeypatch, heard.touch)
    run(f"{AWAIT}os.write(1, b'a'); wait({str(heard)!r}); os.write(1, b'b')", ctx=ctx)
    assert ctx.lane.chunks == ["a", "b"]


@pytest.mark.parametrize("child", [["sleep", "600"], ["yes"]], ids=["silent", "chatty"])
def test_a_child_that_holds_the_pipes_open_does_not_keep_the_job(child, tmp_path):
    pid_file = tmp_path / "pid"
    begin = f"import subprocess; pid = subprocess.Popen({child!r}).pid"
    run(f"{begin}; open({str(pid_file)!r}, 'w').write(str(pid))")
    pid = int(pid_file.read_text())
    if child[0] == "sleep":
        assert alive(pid)  # it was not waited for; the other one writes to nobody by now
        os.kill(pid, signal.SIGKILL)  # a worker kills the whole group
    until(lambda: not alive(pid))


@pytest.fixture
def still(monkeypatch):
    """The reading side stands still for a quarter of an hour between any two looks at the clock."""
    clock = SimpleNamespace(monotonic=itertools.count(1_000, 1_000).__next__)
    monkeypatch.setattr("workers.engines.process.time", clock)


@pytest.fixture
def program(tmp_path):
    """A file for the pid of a program; a program that begins with `noting(program)` writes it there."""
    return tmp_path / "program"


def noting(program):
    draft = f"{program}.draft"
    return (
        f"{AWAIT}open({draft!r}, 'w').write(str(os.getpid())); os.rename({draft!r}, '{program}')\n"
    )


def has_ended(program):
    return program.exists() and not alive(int(program.read_text()))


def test_what_a_program_left_in_its_pipe_is_read_however_late(still, program, monkeypatch):
    """Its pipe holds more than one look takes."""
    ctx, size = context(), 8 * KEPT_BYTES_MAX
    heard_by(ctx.lane, monkeypatch, lambda: until(lambda: has_ended(program)))
    pipe = f"fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, {2 * size})"
    code = f"{noting(program)}{pipe}; os.write(1, b'a'); os.write(1, b'b' * {size - 1})"
    assert run(code, ctx=ctx)["stdout_bytes"] == size
    assert len("".join(ctx.lane.chunks)) == size


def test_what_a_child_writes_soon_after_its_programs_end_is_read_however_late(
    still, program, tmp_path
):
    go, said = tmp_path / "go", tmp_path / "said"
    looks = itertools.count()

    def look():
        """At the second one after the program's end its child writes."""
        if has_ended(program) and next(looks) == 1:
            go.touch()
            until(said.exists)
        return False

    child = f"{AWAIT}wait({str(go)!r}); os.write(1, b'late'); open({str(said)!r}, 'w')"
    code = f"{noting(program)}subprocess.Popen([sys.executable, '-c', {child!r}])"
    assert run(code, ctx=context(look))["stdout"] == "late"


def test_a_program_that_closed_its_pipes_is_still_waited_for_and_stopped():
    ctx = context(stop=lambda: True)
    began_at = time.monotonic()
    with pytest.raises(Stopped):
        run("import os, time; os.close(1); os.close(2); time.sleep(600)", ctx=ctx)
    assert time.monotonic() - began_at < 60


def test_a_program_dies_with_the_horse_that_ran_it(tmp_path):
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    horse = os.fork()
    if horse == 0:
        run(code)
        os._exit(0)
    program = int(until(lambda: pid_file.exists() and pid_file.read_text()))
    os.kill(horse, signal.SIGKILL)
    os.waitpid(horse, 0)
    until(lambda: not alive(program))


# --- in a worker

CONFIG = """
[engines.checksum]
type = "process"
argv = ["sha256sum", "--", "{path}"]

[engines.sleep]
type = "process"
argv = ["sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; wait"]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "broker.toml"
    path.write_text(CONFIG)
    return {"BROKER_CONFIG": str(path), "imports": "json"}


def test_a_program_of_the_configuration_file_runs(fleet, config, tmp_path):
    (tmp_path / "-a file").write_text("content")
    fleet.worker("checksum", **config)
    job = fleet.hand(fleet.submit("checksum", {"path": str(tmp_path / "-a file")}))
    assert fleet.ended(job).state == "completed"
    assert fleet.broker.result(job.key)["stdout"].startswith("ed7002b439e9ac845f22357d822bac14")


def test_a_program_that_does_not_end_is_killed_with_its_children(fleet, config):
    fleet.worker("sleep", **config)
    job = fleet.hand(fleet.submit("sleep"))
    [chunk] = until(job.output)
    job.cancel()
    assert fleet.ended(job).state == "cancelled"
    until(lambda: not alive(int(chunk.text)))
