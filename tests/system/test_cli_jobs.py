"""`submit jobs show why wait result cancel retry remove`: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import sys
import time

import pytest

from broker import Broker, Key
from tests.system.command import Command, guessed, held, placed, reported

RECORD_FIELDS = [
    "key", "kind", "origin", "engine", "run", "id", "state", "inferred", "desired", "node", "seq",
    "attempt", "tries", "rev", "created_at", "started_at", "completed_at", "last_seen", "error", "model",
]  # fmt: skip


def submit(command: Command, *words: object) -> str:
    return command.ok("submit", "echo", *words).out.strip()


def key_of(broker: Broker, text: str) -> Key:
    return broker.find(text)


class TestSubmit:
    def test_prints_the_key(self, command, broker):
        key = submit(command, '{"n": 1}', "--id", "7")
        assert key == "desk/echo//7"
        assert broker.view.spec(key_of(broker, key)) == {"n": 1}

    @pytest.mark.parametrize("payload", ["null", "3", '"text"', "[1, {}]", "-0.5"])
    def test_takes_any_json(self, command, broker, payload):
        key = submit(command, "--", payload)
        assert broker.view.spec(key_of(broker, key)) == json.loads(payload)

    def test_no_payload_is_null(self, command, broker):
        assert broker.view.spec(key_of(broker, submit(command))) is None

    def test_reads_a_payload_from_stdin(self, command, broker, monkeypatch):
        monkeypatch.setattr(
            sys, "stdin", io.TextIOWrapper(io.BytesIO(b'\xef\xbb\xbf{"n": "\xc3\xa9"}\r\n'))
        )
        assert broker.view.spec(key_of(broker, submit(command, "-"))) == {"n": "é"}

    def test_keeps_every_option(self, command, broker):
        key = submit(
            command, "1", "--origin", "nas", "--run", "r1", "--id", "a b", "--priority", "-5", "--timeout", "1.5",
            "--attempts", "1", "--at-most-once", "--delay", "60", "--model", "m:1",
        )  # fmt: skip
        assert key == "nas/echo/r1/a%20b"
        record = broker.get(key_of(broker, key))
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
        assert "conflict" in ran.err

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
        assert [broker.view.spec(key_of(broker, key)) for key in ran.out.split()] == [{"n": 1}, 3]

    def test_one_payload_too_large_stops_none_of_the_others(self, command, tmp_path):
        file = tmp_path / "jobs.jsonl"
        file.write_text("1\n" + json.dumps("x" * 1024 * 1024) + "\n2\n")
        ran = command("submit", "echo", "--jsonl", file, "-o", "jsonl")
        assert (ran.code, len(ran.lines)) == (1, 2)
        assert "line 2: payload has 1048578 bytes" in ran.err

    @pytest.mark.parametrize(
        "words, line",
        [
            (["{"], "payload is not JSON"),
            (["text"], "a text is written as"),
            (["NaN"], "NaN is no number"),
            (["[Infinity]"], "Infinity is no number"),
            (["1e999"], "payload"),
            (["9" * 5000], "payload"),
            (["[" * 100_000], "payload"),
            (["1", "--priority", "0x10"], "Invalid value for '--"),
            (["1", "--priority", "1e3"], "Invalid value for '--priority"),
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
            (["1", "-o", "xml"], "xml"),
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


class TestListing:
    def test_json_is_one_array_and_jsonl_one_record_a_line(self, command):
        keys = [submit(command, n) for n in range(3)]
        for records in (
            command.ok("jobs", "-o", "json").json,
            command.ok("jobs", "-o", "jsonl").lines,
        ):
            assert [record["key"] for record in records] == keys
            assert all(list(record)[:20] == RECORD_FIELDS for record in records)
            assert all(record["suspect"] is False for record in records)

    def test_no_jobs_are_an_empty_array_and_no_line(self, command):
        assert command.ok("jobs", "-o", "json").json == []
        assert command.ok("jobs", "-o", "jsonl").out == ""
        ran = command.ok("jobs")
        assert (ran.out, ran.err) == ("", "no jobs\n")

    def test_the_table_shows_guesses_and_doubts(self, command, broker):
        one, two, three = (key_of(broker, submit(command, n)) for n in range(3))
        held(broker, one)
        held(broker, two)
        guessed(broker, two)
        broker.store.client.hset(broker.store.keys.of_job(one).job, "last_seen", "1000")
        lines = command.ok("jobs").out.splitlines()
        assert [line.split()[1] for line in lines] == ["STATE", "running?", "failed~", "queued"]
        assert str(three) in lines[3]

    def test_a_guess_is_found_by_what_it_was(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key)
        guessed(broker, key)
        assert command.ok("jobs", "--state", "failed", "-o", "json").json == []
        [found] = command.ok("jobs", "--state", "running", "-o", "json").json
        assert (found["state"], found["inferred"], found["guessed_from"]) == (
            "failed",
            True,
            "running",
        )

    def test_filters(self, command, broker):
        key = key_of(broker, submit(command, "1"))
        command.ok("submit", "other", "--origin", "nas")
        placed(broker, key, "node-b")
        for words in (
            ["--node", "node-b"],
            ["--engine", "echo"],
            ["--origin", "desk"],
            ["--state", "queued", "--engine", "echo"],
        ):
            assert [job["key"] for job in command.ok("jobs", *words, "-o", "json").json] == [
                str(key)
            ]

    def test_a_state_that_is_none_is_a_usage_error(self, command):
        ran = command("jobs", "--state", "done")
        assert ran.code == 2
        assert "queued, running, completed" in ran.err

    def test_watching_needs_a_terminal(self, command):
        assert command("jobs", "--watch").code == 2

    def test_the_four_parts_make_four_jobs(self, command):
        for words in (
            ["a:b", "--run", "c"],
            ["a", "--run", "b:c"],
            ["a", "--run", "b"],
            ["a", "--run", "b", "--origin", "nas"],
        ):
            command.ok("submit", *words, "--id", "7")
        assert len({job["key"] for job in command.ok("jobs", "-o", "json").json}) == 4


class TestKeys:
    def test_any_end_that_one_job_has_names_it(self, command):
        key = submit(command, "--id", "7")
        for text in (key, "echo//7", "echo/7", "7"):
            assert command.ok("show", text, "-o", "json").json["key"] == key

    def test_an_end_that_two_jobs_have_names_neither(self, command):
        submit(command, "--id", "7")
        command.ok("submit", "other", "--id", "7")
        for verb in ("show", "why", "wait", "result", "cancel", "retry", "remove"):
            ran = command(verb, "7")
            assert (ran.code, ran.out) == (2, "")
            assert "desk/echo//7, desk/other//7" in ran.err

    @pytest.mark.parametrize("verb", ["show", "why", "wait", "result", "cancel", "retry"])
    @pytest.mark.parametrize("text", ["7", "desk/echo//7"])
    def test_what_nobody_knows_is_not_found(self, command, verb, text):
        ran = command(verb, text)
        assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)

    @pytest.mark.parametrize(
        "text", ["", "/", "a/b/c/d/e", "Desk/echo//7", "desk/echo//", "desk///7", "desk/echo//%ff"]
    )
    def test_what_is_no_key_is_a_usage_error(self, command, text):
        assert command("show", text).code == 2


class TestShowAndWhy:
    def test_show_is_an_object(self, command):
        key = submit(command, '{"n": 1}')
        shown = command.ok("show", key, "-o", "json").json
        assert list(shown)[:20] == RECORD_FIELDS
        assert (shown["payload"], shown["suspect"], shown["refused"]) == ({"n": 1}, False, [])
        assert command.ok("show", key, "-o", "jsonl").out.count("\n") == 1

    def test_why_names_the_deciding_event_and_what_comes_next(self, command, broker):
        key = key_of(broker, submit(command))
        rev = broker.get(key).rev
        shown = command.ok("why", key, "-o", "json").json
        assert shown["deciding"] | {"at": 0} == {
            "rev": rev,
            "rule": "submitted",
            "by": "user",
            "at": 0,
            "reason": "",
        }
        assert shown["next"][0].startswith("No node offers engine echo")
        text = command.ok("why", key).out
        for part in ("submitted, said by user", rev, "0 of 3", "No node offers engine echo"):
            assert part in text

    def test_why_names_what_was_refused_by_its_rule(self, command, broker):
        for state, seq in (("completed", 5), ("running", 3), ("running", 4)):
            broker.report(reported("7", state, seq=seq))
        shown = command.ok("why", "7", "-o", "json").json
        assert [(refusal["rule"], refusal["count"]) for refusal in shown["refused"]] == [
            ("terminal", 2)
        ]
        assert "terminal x2" in command.ok("why", "7").out

    def test_why_knows_what_was_removed(self, command):
        key = submit(command, "--id", "7")
        command.ok("remove", key)
        assert "It was removed" in command.ok("why", key).out
        shown = command.ok("why", key, "-o", "json").json
        assert shown["record"] is None
        assert shown["tombstone"] > 0


class TestWaitAndResult:
    def test_completed_is_0(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key).finish("completed", result={"é": 1})
        assert command.ok("wait", key).out == "completed\n"
        assert command.ok("wait", key, "-o", "json").json["state"] == "completed"
        assert command.ok("result", key).json == {"é": 1}

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_failed_or_cancelled_is_7(self, command, broker, state):
        key = key_of(broker, submit(command))
        held(broker, key).finish(state, error="boom\nline two\x1b[2J")
        assert command("wait", key).code == 7
        ran = command("result", key)
        assert (ran.code, ran.out) == (7, "")
        assert "boom\nline two\\x1b[2J\n" in ran.err

    def test_removed_while_waiting_is_3(self, command, broker):
        key = key_of(broker, submit(command))
        waiting = command.start("wait", key)
        time.sleep(0)
        broker.remove(key)
        assert waiting.wait(20) == 3
        waiting.communicate()

    def test_out_of_time_is_5(self, command):
        key = submit(command)
        begun = time.monotonic()
        ran = command("wait", key, "--timeout", "0.2")
        assert (ran.code, ran.err.count("\n")) == (5, 1)
        assert time.monotonic() - begun < 3

    def test_a_guess_is_no_end(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key)
        guessed(broker, key)
        assert command("wait", key, "--timeout", "0.1").code == 5

    @pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "0x10", "soon"])
    def test_a_timeout_that_is_no_time_is_a_usage_error(self, command, seconds):
        assert command("wait", "7", "--timeout", seconds).code == 2

    def test_no_result_before_the_end_is_4(self, command):
        ran = command("result", submit(command))
        assert (ran.code, ran.out) == (4, "")
        assert "has not ended" in ran.err

    def test_a_result_that_is_gone_is_3(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key).finish("completed", result=1)
        broker.store.client.delete(broker.store.keys.of_job(key).result)
        assert command("result", key).code == 3

    def test_a_null_result_is_a_result(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key).finish("completed")
        assert command.ok("result", key).out == "null\n"

    def test_submit_and_wait(self, command, broker):
        key = Key("desk", "echo", "", "7")
        waiting = command.start("submit", "echo", "--id", "7", "--wait")
        assert waiting.stdout.readline() == f"{key}\n".encode()
        held(broker, key).finish("failed", error="boom")
        out, err = waiting.communicate(timeout=20)
        assert (waiting.returncode, out) == (7, b"failed\n")
        assert b"boom" in err


class TestWishes:
    def test_cancel_ends_a_queued_job(self, command, broker):
        key = submit(command)
        assert command.ok("cancel", key).out == f"{key} cancelled\n"
        assert broker.get(key_of(broker, key)).state == "cancelled"

    def test_cancel_asks_a_running_one(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key)
        assert command.ok("cancel", key).out == f"{key} asked to stop\n"
        assert command.ok("cancel", key).out == f"{key} was asked before\n"
        assert "asked to stop it, and kills it" in command.ok("why", key).out
        assert command.ok("cancel", key, "--force").out == f"{key} cancelled\n"

    def test_cancel_is_too_late_after_the_end(self, command):
        key = submit(command)
        command.ok("cancel", key)
        ran = command("cancel", key)
        assert ran.code == 4
        assert "too_late" in ran.err

    def test_an_outcome_as_json(self, command):
        key = submit(command)
        outcome = command.ok("cancel", key, "-o", "json").json
        assert outcome == {
            "key": key,
            "outcome": "applied",
            "rule": "desired",
            "rev": outcome["rev"],
        }
        ran = command("cancel", key, "-o", "json")
        assert (ran.code, ran.json["rule"]) == (4, "too_late")

    def test_retry_is_a_new_job(self, command, broker):
        key = submit(command, '{"n": 1}')
        assert command("retry", key).code == 4
        command.ok("cancel", key)
        anew = key_of(broker, command.ok("retry", key).out.strip())
        assert broker.get(anew).retry_of == key
        assert broker.view.spec(anew) == {"n": 1}
        assert command.ok("retry", key, "-o", "json").json["retry_of"] == key

    def test_retry_of_a_reported_job_is_refused(self, command, broker):
        broker.report(reported("7", "failed"))
        ran = command("retry", "7")
        assert ran.code == 4
        assert "reported" in ran.err

    def test_remove_takes_it_off_the_list(self, command):
        key = submit(command)
        assert command.ok("remove", key).out == f"{key} removed\n"
        assert command.ok("jobs", "-o", "json").json == []
        assert command.ok("remove", key).out == f"{key} was removed before\n"

    def test_remove_asks_a_running_one_first(self, command, broker):
        key = key_of(broker, submit(command))
        held(broker, key)
        assert "removed when it has ended" in command.ok("remove", key).out
        assert command.ok("remove", key, "--force").out == f"{key} removed\n"

    def test_remove_keeps_out_what_is_still_on_its_way(self, command, broker):
        assert command.ok("remove", "desk/ollama//7").out == "desk/ollama//7 removed\n"
        assert broker.report(reported("7")).rule == "tombstoned"

    def test_remove_of_every_engine_and_run(self, command):
        for engine in ("a", "b"):
            command.ok("submit", engine, "--id", "7")
        command.ok("remove", "--origin", "desk", "--id", "7")
        assert command.ok("jobs", "-o", "json").json == []

    @pytest.mark.parametrize(
        "words", [[], ["--origin", "desk"], ["--id", "7"], ["7", "--origin", "desk", "--id", "7"]]
    )
    def test_remove_needs_one_name(self, command, words):
        ran = command("remove", *words)
        assert ran.code == 2
        assert "name a KEY, or --origin and --id" in ran.err
