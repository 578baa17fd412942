"""`submit`: payloads, options, files, and what is no payload."""

from __future__ import annotations

import io
import json
import sys

import pytest

import broker.cli.submit as submit_command
from broker import Broker, Unavailable
from tests.system.command import RECORD_FIELDS, submit


class TestSubmit:
    def test_prints_the_key(self, command, broker):
        key = submit(command, '{"n": 1}', "--id", "7")
        assert key == "desk/echo//7"
        assert broker.view.spec(broker.find(key)) == {"n": 1}

    @pytest.mark.parametrize("payload", ["null", "3", '"text"', "[1, {}]", "-0.5"])
    def test_takes_any_json(self, command, broker, payload):
        key = submit(command, "--", payload)
        assert broker.view.spec(broker.find(key)) == json.loads(payload)

    def test_no_payload_is_null(self, command, broker):
        assert broker.view.spec(broker.find(submit(command))) is None

    def test_reads_a_payload_from_stdin(self, command, broker, monkeypatch):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(b'\xef\xbb\xbf{"n": "\xc3\xa9"}\r\n'))
        )
        assert broker.view.spec(broker.find(submit(command, "-"))) == {"n": "é"}

    def test_keeps_every_option(self, command, broker):
        key = submit(
            command, "1", "--origin", "nas", "--run", "r1", "--id", "a b", "--priority", "-5", "--timeout", "1.5",
            "--attempts", "1", "--at-most-once", "--delay", "60", "--model", "m:1",
        )  # fmt: skip
        assert key == "nas/echo/r1/a%20b"
        record = broker.get(broker.find(key))
        assert (record.priority, record.timeout, record.attempts, record.at_most_once, record.model) == (
            -5, 1500, 1, 1, "m:1",
        )  # fmt: skip
        assert record.due - record.created_at == 60_000

    def test_the_same_id_and_payload_again_is_the_same_job(self, command):
        assert submit(command, '{"a":1,"b":2}', "--id", "7") == submit(
            command, '{"b":2,"a":1}', "--id", "7"
        )

    def test_the_same_id_with_another_payload_is_refused(self, command):
        submit(command, "1", "--id", "7")
        ran = command("submit", "echo", "2", "--id", "7")
        assert (ran.code, ran.out) == (4, "")
        assert "/echo//7 is known already with another payload" in ran.err

    def test_warns_where_no_node_offers_the_engine(self, command):
        assert "no node offers engine echo" in command.ok("submit", "echo").err

    def test_prints_the_record(self, command):
        ran = command.ok("submit", "echo", "1", "-o", "json")
        assert list(ran.json)[:20] == RECORD_FIELDS
        assert (ran.json["state"], ran.json["suspect"]) == ("queued", False)

    def test_hands_in_a_job_a_line(self, command, broker, tmp_path):
        file = tmp_path / "jobs.jsonl"
        file.write_bytes(b'{"n": 1}\n\nnot json\n3\r\n')
        ran = command("submit", "echo", "--jsonl", file)
        assert ran.code == 1
        assert "line 3: payload is not JSON" in ran.err
        assert [broker.view.spec(broker.find(key)) for key in ran.out.split()] == [{"n": 1}, 3]

    def test_says_how_far_it_came_where_redis_goes_away(
        self, command, broker, tmp_path, monkeypatch
    ):
        file = tmp_path / "jobs.jsonl"
        file.write_text("1\n2\n3\n4\n5\n")
        submit_many = Broker.submit_many

        def fails_at_the_second(self, engine, values, **options):
            if values == [3, 4]:
                raise Unavailable("Redis is away")
            return submit_many(self, engine, values, **options)

        monkeypatch.setattr(Broker, "submit_many", fails_at_the_second)
        monkeypatch.setattr(submit_command, "BATCH", 2)
        ran = command("submit", "echo", "--jsonl", file)
        assert (ran.code, len(ran.out.split())) == (6, 2)
        assert "all up to line 2 are handed in, of lines 3 to 4 it is not known" in ran.err
        file.write_text("3\n4\n")
        assert (
            "Redis is away; of lines 1 to 2 it is not known"
            in command("submit", "echo", "--jsonl", file).err
        )

    def test_the_help_says_what_a_line_is(self, command):
        said = " ".join(command.ok("submit", "--help").out.replace("\u2502", " ").split())
        assert "each line is one payload" in said

    def test_one_payload_too_large_stops_none_of_the_others(self, command, tmp_path):
        file = tmp_path / "jobs.jsonl"
        file.write_text("1\n" + json.dumps("x" * 1024 * 1024) + "\n2\n")
        ran = command("submit", "echo", "--jsonl", file, "-o", "jsonl")
        assert (ran.code, len(ran.lines)) == (1, 2)
        assert "line 2: payload has 1048578 bytes" in ran.err

    def test_half_a_character_stops_none_of_the_others(self, command, tmp_path):
        file = tmp_path / "jobs.jsonl"
        file.write_text('1\n{"a":"\\uD800"}\n2\n"\\ud83d\\ude00"\n')
        ran = command("submit", "echo", "--jsonl", file, "-o", "jsonl")
        assert (ran.code, len(ran.lines)) == (1, 3)
        assert "line 2: payload.a is not valid Unicode text" in ran.err

    @pytest.mark.parametrize(
        "words, line",
        [
            (["{"], "payload is not JSON"),
            (['"\\udc00"'], r"payload is not valid Unicode text: half a character, \udc00, stands there"),
            (['{"a":[0,{"b":"\\ud800x"}]}'], "payload.a.1.b is not valid Unicode text"),
            (['{"a":{"\\ud800":1}}'], "payload.a is not valid Unicode text"),
            (['{"%s":"\\ud800"}' % ("k" * 999)], f"payload.{'k' * 192} is not valid Unicode text"),
            (["text"], "a text is written as"),
            (["NaN"], "NaN is no number"),
            (["[Infinity]"], "Infinity is no number"),
            (["1e999"], "payload"),
            (["9" * 5000], "payload"),
            (["[" * 100_000], "payload"),
            (["1", "--priority", "0x10"], "Invalid value for '--"),
            (["1", "--priority", "1e3"], "'--priority': must be a whole number, not '1e3' ("),
            (["1", "--delay", "soon"], "'--delay': must be a number, not 'soon' ("),
            (["1", "--priority", str(2**53 + 1)], "priority must be"),
            (["1", "--attempts", "0"], "attempts must be"),
            (["1", "--timeout", "nan"], "timeout must be"),
            (["1", "--timeout", "0x10"], "Invalid value for '--"),
            (["1", "--delay", "inf"], "delay must be"),
            (["1", "--delay", "-1"], "delay must be"),
            (["1", "--at-most-once", "--attempts", "2"], "at_most_once"),
            (["1", "--origin", "Desk"], "'Desk' is not a name"),
            (["1", "--origin", "a/b"], "'a/b' is not a name"),
            (["1", "--id", "x" * 257], "id must have 1 to 256 bytes"),
            (["1", "--id", ""], "id must have"),
            (["1", "--run", "x" * 65], "run must have"),
            (["1", "--jsonl", "-"], "--jsonl takes"),
            (["--jsonl", "no/such/file"], "no/such/file"),
            (["1", "-o", "xml"], "'-o': 'xml' is not one of 'table', 'json', 'jsonl'"),
            (["1", "2"], "2"),
        ],
    )  # fmt: skip
    def test_a_wrong_value_is_a_usage_error_in_one_line(self, command, broker, words, line):
        ran = command("submit", "echo", *words)
        assert (ran.code, ran.out) == (2, "")
        assert line in ran.err
        assert ran.err.count("\n") == 1
        assert broker.jobs() == []

    def test_a_payload_over_one_mebibyte_is_refused(self, command, monkeypatch):
        for size in (1024 * 1024, 9 * 1024 * 1024):
            raw = json.dumps("x" * size).encode()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
            ran = command("submit", "echo", "-")
            assert (ran.code, ran.err.count("\n")) == (2, 1)
            assert "payload" in ran.err
