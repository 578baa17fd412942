"""`wait result cancel retry remove`: a job's end, as text, JSON and exit code."""

from __future__ import annotations

import json
import time

import pytest

from broker import Key
from tests.system.command import guessed, held, reported, submit, until, waits


class TestWaitAndResult:
    def test_completed_is_0(self, command, broker):
        key = broker.find(submit(command))
        held(broker, key).finish("completed", result={"é": 1})
        assert command.ok("wait", key).out == "completed\n"
        assert command.ok("wait", key, "-o", "json").json["state"] == "completed"
        assert command.ok("result", key).json == {"é": 1}

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_failed_or_cancelled_is_7(self, command, broker, state):
        key = broker.find(submit(command))
        held(broker, key).finish(state, error="boom\nline two\x1b[2J")
        assert command("wait", key).code == 7
        ran = command("result", key)
        assert (ran.code, ran.out) == (7, "")
        assert "boom\nline two\\x1b[2J\n" in ran.err

    def test_removed_while_waiting_is_3(self, command, broker):
        key = broker.find(submit(command))
        with command.start("wait", key) as waiting:
            until(lambda: waits(broker))
            broker.remove(key)
            out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out) == (3, b"")
        assert err == f"broker: {key} was removed\n".encode()

    def test_out_of_time_is_5(self, command):
        key = submit(command)
        begun = time.monotonic()
        ran = command("wait", key, "--timeout", "0.2")
        assert (ran.code, ran.err.count("\n")) == (5, 1)
        assert time.monotonic() - begun < 30  # as milliseconds read as seconds it would be minutes

    def test_a_guess_is_no_end(self, command, broker):
        key = broker.find(submit(command))
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
        key = broker.find(submit(command))
        held(broker, key).finish("completed", result=1)
        broker.store.client.delete(broker.store.keys.of_job(key).result)
        assert command("result", key).code == 3

    def test_a_null_result_is_a_result(self, command, broker):
        key = broker.find(submit(command))
        held(broker, key).finish("completed")
        assert command.ok("result", key).out == "null\n"

    def test_submit_and_wait(self, command, broker):
        key = Key("desk", "echo", "", "7")
        waiting = command.start("submit", "echo", "--id", "7", "--wait")
        assert waiting.stdout.readline() == f"{key}\n".encode()
        held(broker, key).finish("failed", error="boom")
        out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out) == (7, b"failed\n")
        assert b"boom" in err

    def test_submit_and_wait_as_json_is_json_alone(self, command, broker):
        key = Key("desk", "echo", "", "7")
        waiting = command.start("submit", "echo", "--id", "7", "--wait", "-o", "json")
        until(lambda: broker.view.get(key))
        held(broker, key).finish("completed", result=1)
        out, _ = waiting.communicate(timeout=60)
        assert json.loads(out)["state"] == "completed"


class TestWishes:
    def test_cancel_ends_a_queued_job(self, command, broker):
        key = submit(command)
        assert command.ok("cancel", key).out == f"{key} cancelled\n"
        assert broker.get(broker.find(key)).state == "cancelled"

    def test_cancel_asks_a_running_one(self, command, broker):
        key = broker.find(submit(command))
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
        anew = broker.find(command.ok("retry", key).out.strip())
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
        key = broker.find(submit(command))
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
        "words", ["--id 7", "7 --origin d --id 7", "--origin d --id 7 --node n"]
    )
    def test_remove_of_a_pair_needs_both_of_its_names_alone(self, command, words):
        ran = command("remove", *words.split())
        assert ran.code == 2
        assert "--id goes with --origin" in ran.err
