"""`jobs show why`, and how a job is named: what they print, and their exit codes."""

from __future__ import annotations

import re

import pytest

from broker import WorkerInfo
from tests.system.command import (
    RECORD_FIELDS,
    guessed,
    held,
    patient,
    placed,
    reported,
    submit,
)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    patient(monkeypatch)


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
        one, two, three = (broker.find(submit(command, n)) for n in range(3))
        held(broker, one)
        held(broker, two)
        guessed(broker, two)
        broker.store.client.hset(broker.store.keys.of_job(one).job, "last_seen", "1000")
        lines = command.ok("jobs").out.splitlines()
        assert [line.split()[1] for line in lines] == ["STATE", "running?", "failed~", "queued"]
        assert str(three) in lines[3]

    def test_a_guess_is_found_by_what_it_was(self, command, broker):
        key = broker.find(submit(command))
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
        key = broker.find(submit(command, "1"))
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

    def test_a_record_that_cannot_be_read_is_a_remark_beside_the_others(self, command, broker):
        """A line of the program's log, as a command says what it has to say."""
        keys = [broker.submit("echo", number, id=str(number)).key for number in (1, 2)]
        name = broker.store.keys.of_job(keys[0]).job
        broker.store.client.hset(name, "sightings", "some\x1b[31m")
        ran = command.process("jobs", "-o", "jsonl")
        assert [shown["key"] for shown in ran.lines] == [str(keys[1])]
        why = r"sightings is 'some\x1b[31m', not a number"
        assert ran.err == f"broker: warning: the record of {keys[0]} cannot be read: {why}\n"

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
    def test_a_time_beyond_every_calendar_is_shown_as_it_was_told(self, command, broker):
        far = 999_999_999_999_999
        broker.report(reported("7", state="completed", completed_at=far))
        assert re.search(rf"completed_at +{far} \(in ", command.ok("show", "7").out)

    def test_show_is_an_object(self, command):
        key = submit(command, '{"n": 1}')
        shown = command.ok("show", key, "-o", "json").json
        assert list(shown)[:20] == RECORD_FIELDS
        assert (shown["payload"], shown["suspect"], shown["refused"]) == ({"n": 1}, False, [])
        assert command.ok("show", key, "-o", "jsonl").out.count("\n") == 1

    def test_why_names_the_deciding_event_and_what_comes_next(self, command, broker):
        key = broker.find(submit(command))
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

    def test_why_knows_whether_a_slot_is_free(self, command, broker):
        key = submit(command)
        broker.beat(WorkerInfo("w", "nas", "echo", pid=1, started_at=1))
        assert "a free slot for engine echo (nas)" in command.ok("why", key).out
        broker.beat(WorkerInfo("w", "nas", "echo", pid=1, started_at=1, job="desk/echo//1"))
        assert (
            "Every slot for engine echo on open nodes (nas) is taken" in command.ok("why", key).out
        )
        command.ok("node", "drain", "nas")
        assert "drained or dead (nas)" in command.ok("why", key).out

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
