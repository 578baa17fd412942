"""`report`: one outcome for each event, in order, whatever stands between them."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from broker.rules.key import Key
from tests.system.command import Command, reported

OUTCOME = ["key", "outcome", "rule", "rev"]


def write(tmp_path, *lines: object) -> str:
    file = tmp_path / "events.jsonl"
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    file.write_bytes(b"\n".join(raw) + b"\n")
    return str(file)


def test_answers_each_line_in_order(command: Command, tmp_path):
    file = write(
        tmp_path,
        reported("7", "running", seq=2),
        reported("7", "queued", seq=1),
        reported("8", "queued", origin="nas"),
        reported("7", "running", seq=2),
        {"event": "remove", "origin": "desk", "id": "7"},
        reported("7", "completed", seq=3),
    )
    ran = command.ok("report", file)
    assert all(list(line) == OUTCOME for line in ran.lines)
    assert [(line["key"], line["outcome"], line["rule"]) for line in ran.lines] == [
        ("desk/ollama//7", "applied", "first_sighting"),
        ("desk/ollama//7", "refused", "stale_seq"),
        ("nas/ollama//8", "applied", "first_sighting"),
        ("desk/ollama//7", "duplicate", "no_change"),
        ("desk/7", "applied", "removed"),
        ("desk/ollama//7", "refused", "tombstoned"),
    ]
    assert ran.err == ""


def test_takes_the_frames_of_the_sources(command, tmp_path):
    info = {
        "originatedFrom": "desk",
        "engine": "ollama",
        "id": "7",
        "state": "running",
        "createdAt": 1_700_000_000_000,
    }
    frame = {"jsonrpc": "2.0", "method": "workload:started", "params": {"workloadInfo": info}}
    [line] = command.ok("report", write(tmp_path, frame)).lines
    assert (line["key"], line["rule"]) == ("desk/ollama//7", "first_sighting")


MALFORMED = [
    b"not json",
    b"{",
    b'{"event": "report"',
    b'{"event": "cry"}',
    b"[]",
    b"7",
    b"null",
    b'"text"',
    b"{}",
    b"\xff\xfe",
    b'{"seq": NaN}',
    b'{"seq": 0x10}',
    b'{"seq": ' + b"9" * 5000 + b"}",
    b"[" * 5000,
    b'{"a": "' + b"x" * 1_100_000 + b'"}',
]


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: repr(line[:20]))
def test_a_malformed_line_is_named_by_its_number_and_stops_nothing(command, tmp_path, line):
    ran = command("report", write(tmp_path, reported("1"), line, reported("2")))
    assert ran.code == 1
    first, bad, last = ran.lines
    assert (first["rule"], last["rule"]) == ("first_sighting", "first_sighting")
    assert bad == {"key": "", "outcome": "error", "rule": "malformed", "rev": "", "line": 2}
    assert ran.err.startswith("broker: line 2: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("name", ["seq", "created_at", "started_at", "completed_at"])
@pytest.mark.parametrize(
    "value", ["0x10", "1e3", 1e3, "nan", 2**53 + 1, -1, True, "", " 1", "١", [1]]
)
def test_a_number_that_is_none_is_refused_and_named(command, tmp_path, name, value):
    ran = command.ok("report", write(tmp_path, reported("7", **{name: value})))
    [line] = ran.lines
    assert line == {"key": "desk/ollama//7", "outcome": "refused", "rule": "invalid", "rev": ""}
    assert ran.err.startswith(f"broker: line 1: refused: {name} ")
    assert command.ok("jobs", "-o", "json").json == []


@pytest.mark.parametrize(
    "name, value",
    [("origin", "Desk"), ("origin", ""), ("origin", "a" * 64), ("origin", "a/b"), ("node", "Nas"), ("engine", ""),
     ("engine", "x" * 65), ("id", ""), ("id", "x" * 257), ("run", "x" * 65), ("state", "done"), ("state", None)],
)  # fmt: skip
def test_a_part_out_of_bounds_is_refused(command, tmp_path, name, value):
    ran = command.ok("report", write(tmp_path, reported("7") | {name: value}))
    assert [(line["outcome"], line["rule"]) for line in ran.lines] == [("refused", "invalid")]


def test_blank_lines_are_counted_but_not_answered(command, tmp_path):
    file = write(tmp_path, b"", reported("1"), b"  \r", b"bad", b"")
    ran = command("report", file)
    assert [line["rule"] for line in ran.lines] == ["first_sighting", "malformed"]
    assert ran.lines[1]["line"] == 4


def test_takes_a_byte_order_mark_and_windows_line_ends(command, tmp_path):
    raw = json.dumps(reported("7")).encode()
    file = write(tmp_path, b"\xef\xbb\xbf" + raw + b"\r", raw + b"\r")
    assert [line["rule"] for line in command.ok("report", file).lines] == [
        "first_sighting",
        "no_change",
    ]


def test_a_last_line_without_an_end_counts(command, tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text(json.dumps(reported("7")))
    assert len(command.ok("report", file).lines) == 1


def test_no_events_are_no_outcomes(command, tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text("")
    ran = command.ok("report", file)
    assert (ran.out, ran.err) == ("", "")


def test_a_file_that_is_not_there_is_a_usage_error(command, tmp_path):
    assert command("report", tmp_path / "none").code == 2
    assert command("report", tmp_path).code == 2


def test_one_damaged_record_harms_only_itself(command, broker, tmp_path):
    broken = Key("desk", "ollama", "", "2")
    broker.store.client.set(broker.store.keys.of_job(broken).job, "no hash")
    ran = command("report", write(tmp_path, *(reported(id) for id in "123")))
    assert ran.code == 1
    assert [line["outcome"] for line in ran.lines] == ["applied", "error", "applied"]


def test_more_than_a_window_stays_in_order(command, tmp_path):
    events = [
        reported(str(n % 700), "running", seq=n // 700 + 1, origin=f"o{n % 3}")
        for n in range(2_500)
    ]
    ran = command.ok("report", write(tmp_path, *events))
    assert [line["key"] for line in ran.lines] == [
        f"{event['origin']}/ollama//{event['id']}" for event in events
    ]
    assert {line["outcome"] for line in ran.lines} <= {"applied", "duplicate"}


def test_answers_while_the_input_pauses(command):
    """Each line by a slow hand is answered before the next is typed."""
    with command.start("report") as process:
        for seq in range(1, 6):
            process.stdin.write(json.dumps(reported("7", seq=seq, node=f"n{seq}")).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["outcome"] == "applied"
        process.stdin.close()
        assert process.wait(60) == 0


def test_stops_where_nobody_reads_the_outcomes(command):
    reading, writing = os.pipe()
    os.close(reading)
    ran = command.process("report", stdin=json.dumps(reported("7")).encode(), stdout=writing)
    os.close(writing)
    assert ran.code == 1
    assert "stopped after line 1" in ran.err


#: Reports a file, and tells on stderr the peak of its memory. Of small size itself: Linux counts for a child what the
#: process that started it had.
PEAK = """
import os, sys
report = [sys.executable, "-m", "broker.cli", "report", sys.argv[1]]
_, status, usage = os.wait4(os.posix_spawn(sys.executable, report, os.environ), 0)
print(usage.ru_maxrss, file=sys.stderr)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_long_stream_needs_no_more_memory_than_a_short_one(command, tmp_path):
    def peak(count: int) -> int:
        """Peak resident memory in KiB of a report of so many lines over 10,000 jobs."""
        file = tmp_path / f"{count}.jsonl"
        with file.open("w") as out:
            for n in range(count):
                event = reported(str(n % 10_000), seq=n // 10_000 + 1, origin=f"o{n % 4}")
                out.write(json.dumps(event) + "\n")
        with command.start(file, program=("-c", PEAK), stdout=subprocess.DEVNULL) as process:
            _, told = process.communicate(timeout=100)
        assert process.returncode == 0
        return int(told)

    assert peak(12_000) < peak(3_000) * 1.1
