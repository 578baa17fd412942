"""`broker why` tells the truth: what fell silent, whose error it was, who was given up, where slots are free."""

from __future__ import annotations

import re

import pytest

from broker import WorkerInfo
from broker.rules.event import Finish, Requeue, Unplace
from tests.system.command import guessed, held, patient, placed, reported, submit


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    patient(monkeypatch)


def beat(broker, name, node="node-a", job=""):
    broker.beat(WorkerInfo(name, node, "echo", pid=1, started_at=1, job=job))


def failed(broker, key, **said):
    """Its holder's word on a failure that may be tried again, at once."""
    record = broker.get(key)
    names = {"created_at": record.created_at, "attempt": record.attempt, "holder": record.holder}
    event = Finish(key=key, state="failed", retryable=True, **names, **said)
    assert broker.view.apply([event])[0].rule == "requeued"


def requeued(broker, key):
    """A sweep's word after a guess that nothing was heard since."""
    event = Requeue(key=key, rev=broker.get(key).rev, term=1)
    assert broker.view.apply([event])[0].rule == "requeued"


def cell(command, key):
    """Its ERROR in the table of jobs."""
    head, *lines = command.ok("jobs").out.splitlines()
    [line] = [line for line in lines if str(key) in line]
    return line[head.index("ERROR") :].strip()


def row(command, verb, key, name):
    """Its row of that name, None where there is none."""
    found = re.search(rf"^{name}  +(.*)$", command.ok(verb, key).out, re.MULTILINE)
    return found and found[1]


@pytest.fixture
def key(command, broker):
    return broker.find(submit(command))


class TestWhatFellSilent:
    def test_a_node_that_beats_is_said_to(self, command, broker, key):
        held(broker, key)
        guessed(broker, key)
        beat(broker, "other")
        assert broker.get(key).error == "node-a went offline"
        said = command.ok("why", key).out
        assert re.search(
            r"Its worker node-a-w on node-a has been silent since .* UTC; the node itself beats\.",
            said,
        )
        assert "node-a went offline (what fell silent: see below)" in said

    def test_a_node_that_does_not_beat_is_not(self, command, broker, key):
        held(broker, key)
        guessed(broker, key)
        said = command.ok("why", key).out
        assert "Its worker node-a-w on node-a has been silent since" in said
        assert "beats." not in said

    def test_a_worker_that_beats_for_something_else_is_said_to(self, command, broker, key):
        held(broker, key)
        guessed(broker, key)
        beat(broker, "node-a-w")
        assert (
            "node-a-w on node-a beats, but has not spoken of this job" in command.ok("why", key).out
        )


class TestWhoseError:
    def test_what_waits_again_tells_it_as_the_last_try_s(self, command, broker, key):
        held(broker, key)
        failed(broker, key, error="boom", reason="oops")
        assert cell(command, key) == "last try: boom"
        assert row(command, "show", key, "error") == "last try: boom"
        assert row(command, "show", key, "reason") is None
        assert row(command, "why", key, "last try") == "try 1 ended: boom"
        assert row(command, "why", key, "error") is None
        shown = command.ok("show", key, "-o", "json").json
        assert (shown["error"], shown["reason"]) == ("boom", "oops")

    def test_what_runs_again_has_none(self, command, broker, key):
        held(broker, key)
        failed(broker, key, error="boom", reason="oops")
        held(broker, key, "node-b")
        assert cell(command, key) == "-"
        assert row(command, "show", key, "error") is row(command, "show", key, "reason") is None
        assert row(command, "why", key, "last try") == "try 1 ended: boom"
        [listed] = command.ok("jobs", "-o", "json").json
        assert listed["error"] == "boom"

    def test_guesses_ends_and_reports_keep_theirs(self, command, broker, key):
        held(broker, key)
        guessed(broker, key)
        broker.report(reported("7", "running", error="odd"))
        done = broker.find(submit(command))
        held(broker, done).finish("failed", error="boom")
        assert [cell(command, each) for each in (key, "desk/ollama//7", done)] == [
            "node-a went offline",
            "odd",
            "boom",
        ]
        assert row(command, "why", done, "error") == row(command, "show", done, "error") == "boom"


class TestWhoWasGivenUp:
    def test_none_was_where_the_first_attempt_goes_on(self, command, broker, key):
        held(broker, key)
        assert "given up, the newest" not in command.ok("why", key).out
        assert command.ok("why", key, "-o", "json").json["given_up"] == []

    def test_each_is_told_with_its_node_and_why(self, command, broker, key):
        held(broker, key)
        guessed(broker, key)
        requeued(broker, key)
        placed(broker, key, "node-b")
        broker.view.apply([Unplace(key=key, rev=broker.get(key).rev, term=1)])
        held(broker, key, "node-c")
        failed(broker, key, error="boom")
        submit(command)
        said = command.ok("why", key).out.partition("the newest first\n")[2].splitlines()
        at = r"20[0-9-]* [0-9:.]*Z"
        for line, told in zip(
            said,
            (
                f"  attempt 3 on node-c ended at {at}: requeued, boom",
                f"  attempt 2 on node-b was given up at {at}: unplaced",
                f"  attempt 1 on node-a was given up at {at}: requeued, its worker node-a-w spoke of it no more",
                "",
            ),
            strict=False,
        ):
            assert re.fullmatch(told, line)
        found = command.ok("why", key, "-o", "json").json
        assert [(one["attempt"], one["node"]) for one in found["given_up"]] == [
            (3, "node-c"),
            (2, "node-b"),
            (1, "node-a"),
        ]
        assert found["untold"] == 0
        assert "1 holder was lost" in row(command, "why", key, "tries")

    def test_what_the_log_no_longer_tells_is_said(self, command, broker, key):
        held(broker, key)
        failed(broker, key)
        requeue = broker.get(key).rev
        held(broker, key, "node-b")
        failed(broker, key)
        log = broker.store.keys.of(key.origin).log
        broker.store.client.xtrim(log, minid=requeue, approximate=False)
        found = command.ok("why", key, "-o", "json").json
        assert [(one["attempt"], one["node"]) for one in found["given_up"]] == [
            (2, "node-b"),
            (1, ""),
        ]
        broker.store.client.xtrim(log, maxlen=2, approximate=False)
        said = command.ok("why", key).out
        assert "attempt 2 on node-b" in said
        assert "the log no longer tells of attempt 1, or not near enough" in said
        broker.store.client.xtrim(log, maxlen=0, approximate=False)
        assert "no longer tells of attempts 1 to 2" in command.ok("why", key).out

    def test_of_a_busy_log_the_end_of_the_job_s_own_story_is_read(self, command, broker, key):
        held(broker, key)
        guessed(broker, key)
        list(broker.report_many(reported(f"{n}") for n in range(1_100)))
        requeued(broker, key)
        list(broker.report_many(reported(f"{n}+") for n in range(1_100)))
        found = command.ok("why", key, "-o", "json").json
        assert [(one["attempt"], one["node"], one["rule"]) for one in found["given_up"]] == [
            (1, "", "requeued")
        ]

    def test_a_job_cancelled_before_anybody_had_it_gave_nobody_up(self, command, key):
        command.ok("cancel", key)
        assert "given up, the newest" not in command.ok("why", key).out


class TestWhereSlotsAreFree:
    @pytest.mark.parametrize("verb, word", [("drain", "drained"), ("dead", "dead")])
    def test_a_slot_of_a_shut_node_is_named(self, command, broker, key, verb, word):
        beat(broker, "one", "n1", job="desk/echo//1")
        beat(broker, "two", "n2")
        command.ok("node", verb, "n2")
        said = command.ok("why", key).out
        assert "Every slot for engine echo on open nodes (n1) is taken" in said
        assert f"n2 has a free slot, but is {word}: `broker node resume n2`." in said


class TestWhatIsGone:
    def test_the_end_of_a_key_hints_at_the_whole_one(self, command):
        key = submit(command, "--id", "7")
        command.ok("remove", key)
        ran = command("why", "7")
        assert (ran.code, ran.err.count("\n")) == (3, 1)
        assert "whether it was removed, its whole key tells: origin/engine/run/id" in ran.err
        assert "It was removed" in command.ok("why", key).out

    def test_a_whole_key_that_nobody_knows_is_told_without_it(self, command):
        assert "whole key" not in command("why", "desk/echo//8").err
