"""`log replay nodes node doctor`: what they print, and their exit codes."""

from __future__ import annotations

import json

import pytest

from broker import WorkerInfo
from broker.cli.log import _followed
from broker.fleet.checkup import judge_server
from broker.store.health import Health
from broker.store.health import read as read_health
from broker.store.log import Log
from tests.system.command import Ran, guessed, held, patient, placed, reported


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    patient(monkeypatch)


def worker(broker, node="nas", engine="echo", job="", name=""):
    broker.beat(WorkerInfo(name or f"{node}-{engine}", node, engine, pid=1, started_at=1, job=job))


def silence(broker, node="nas"):
    """The node's and its workers' last beat was long ago."""
    keys = broker.store.keys
    broker.store.client.zadd(keys.nodes, {node: 1_000})
    for seen in broker.workers():
        if seen.node == node:
            broker.store.client.zadd(keys.workers, {seen.name: 1_000})


def load(broker, node="nas"):
    """Two jobs run there, one waits there, and one is reported from there; others ended, or are elsewhere."""
    running, doubtful, waiting, ended, elsewhere = (broker.submit("echo", n).key for n in range(5))
    held(broker, running, node)
    held(broker, doubtful, node)
    guessed(broker, doubtful)
    placed(broker, waiting, node)
    held(broker, ended, node).finish("completed")
    placed(broker, elsewhere, "other")
    broker.report(reported("7", node=node))


class TestLog:
    def test_tells_what_happened_in_order(self, command, broker):
        job = broker.submit("echo", id="7")
        held(broker, job.key).finish("completed")
        entries = command.ok("log", "desk", "-o", "json").json
        assert [entry["rule"] for entry in entries] == [
            "submitted",
            "placed",
            "started",
            "finished",
        ]
        assert list(entries[0]) == [
            "rev",
            "at",
            "event",
            "rule",
            "by",
            "key",
            "generation",
            "record",
        ]
        assert entries[-1]["record"]["state"] == "completed"
        assert command.ok("log", "desk", "-o", "jsonl").lines == entries
        assert [line.split()[3] for line in command.ok("log", "desk").out.splitlines()[1:]] == [
            "submitted", "placed", "started", "finished",
        ]  # fmt: skip

    def test_a_removal_has_no_record(self, command, broker):
        broker.remove_pair("desk", "7")
        [entry] = command.ok("log", "desk", "-o", "json").json
        assert (entry["key"], entry["rule"], entry["record"]) == ("desk/7", "removed", None)
        assert entry["generation"] > 0
        assert command.ok("log", "desk").out.splitlines()[1].split()[-3:] == ["gone", "-", "user"]

    def test_more_than_a_page(self, command, broker):
        list(broker.report_many(reported(str(n)) for n in range(1_203)))
        assert len(command.ok("log", "desk", "-o", "json").json) == 1_203
        assert len(command.ok("log", "desk").out.splitlines()) == 1_204

    def test_follows(self, command, broker):
        broker.submit("echo", id="1")
        with command.start("log", "desk", "--follow", "-o", "jsonl") as following:
            assert json.loads(following.stdout.readline())["key"] == "desk/echo//1"
            broker.submit("echo", id="2")
            assert json.loads(following.stdout.readline())["key"] == "desk/echo//2"
            following.send_signal(2)
            out, err = following.communicate(timeout=60)
            assert (following.returncode, out, err) == (130, b"", b"")

    def test_says_what_was_trimmed_while_it_followed(self, command, broker):
        broker.submit("echo", id="1")
        with command.start("log", "desk", "--follow", "-o", "jsonl") as following:
            following.stdout.readline()
            broker.store.client.delete(broker.store.keys.of("desk").log)
            broker.submit("echo", id="2")
            broker.submit("echo", id="3")
            assert b"no longer holds this position" in following.stderr.readline()
            broker.submit("echo", id="4")
            while json.loads(following.stdout.readline())["key"] != "desk/echo//4":
                pass
            following.kill()

    def test_what_comes_after_that_remark_is_shown(self, broker, monkeypatch):
        def remark(text):
            broker.submit("echo", id="3")

        def wait(*_):
            raise AssertionError("it waits for what was there already")

        monkeypatch.setattr("broker.cli.log.warn", remark)
        monkeypatch.setattr(Log, "wait", wait)
        broker.submit("echo", id="1")
        pages = _followed(broker, "desk")
        assert [entry.key("desk").id for entry in next(pages)] == ["1"]
        broker.store.client.delete(broker.store.keys.of("desk").log)
        broker.submit("echo", id="2")
        assert [entry.key("desk").id for entry in next(pages)] == ["3"]

    def test_an_array_never_ends_while_it_follows(self, command):
        assert command("log", "desk", "--follow", "-o", "json").code == 2

    @pytest.mark.parametrize("verb", ["log", "replay"])
    def test_an_origin_that_nobody_knows(self, command, verb):
        assert command(verb, "nas").code == 3
        assert command(verb, "Nas").code == 2


class TestReplay:
    def test_gives_the_list(self, command, broker):
        for n in range(3):
            broker.report(reported(str(n)))
        broker.remove("desk/ollama//1")
        fields = ("key", "state", "rev")
        shown = command.ok("replay", "desk", "-o", "json").json
        listed = command.ok("jobs", "-o", "json").json
        assert [[job[name] for name in fields] for job in shown] == [
            [job[name] for name in fields] for job in listed
        ]

    def test_gives_the_list_as_it_was(self, command, broker):
        rev = broker.report(reported("7", "queued", seq=1)).rev
        broker.report(reported("7", "completed", seq=2))
        assert [
            job["state"] for job in command.ok("replay", "desk", "--until", rev, "-o", "json").json
        ] == ["queued"]
        assert [job["state"] for job in command.ok("replay", "desk", "-o", "json").json] == [
            "completed"
        ]

    @pytest.mark.parametrize("rev", ["x", "1-2-3", "0x10", "-", "1e3"])
    def test_a_rev_that_is_none(self, command, broker, rev):
        broker.report(reported())
        assert command("replay", "desk", "--until", rev).code == 2


class TestNodes:
    def test_lists_slots_and_what_is_busy(self, command, broker):
        worker(broker, name="a", job="desk/echo//7")
        worker(broker, name="b")
        worker(broker, engine="other")
        [node] = command.ok("nodes", "-o", "json").json
        assert (node["node"], node["slots"], node["running"], node["flag"], node["suspect"]) == (
            "nas",
            3,
            1,
            None,
            False,
        )
        assert node["engines"] == {
            "echo": {"slots": 2, "running": 1},
            "other": {"slots": 1, "running": 0},
        }
        row = command.ok("nodes").out.splitlines()[1].split()
        assert row[:3] == ["nas", "up", "1/3"]

    def test_a_silent_node_offers_nothing(self, command, broker):
        worker(broker)
        silence(broker)
        [node] = command.ok("nodes", "-o", "json").json
        assert (node["slots"], node["suspect"], node["engines"]) == (0, True, {})
        assert "silent" in command.ok("nodes").out

    def test_a_node_whose_workers_said_farewell_has_left(self, command, broker):
        for name in ("a", "b"):
            worker(broker, name=name)
        silence(broker)
        broker.fleet.leave("a")
        assert command.ok("nodes", "-o", "json").json[0]["left"] is False  # b was killed
        broker.fleet.leave("b")
        [node] = command.ok("nodes", "-o", "json").json
        assert (node["left"], node["suspect"], node["slots"]) == (True, True, 0)
        assert command.ok("nodes").out.splitlines()[1].split()[:2] == ["nas", "left"]
        worker(broker)
        assert command.ok("nodes").out.splitlines()[1].split()[:2] == ["nas", "up"]

    def test_no_nodes(self, command):
        assert command.ok("nodes", "-o", "json").json == []
        assert "no nodes" in command.ok("nodes").err

    def test_flags_come_and_go(self, command, broker):
        worker(broker)
        for verb, flag in (("drain", "drained"), ("dead", "dead"), ("resume", None)):
            command.ok("node", verb, "nas")
            assert command.ok("nodes", "-o", "json").json[0]["flag"] == flag

    def test_a_node_is_forgotten(self, command, broker):
        worker(broker)
        command.ok("node", "remove", "nas")
        assert command.ok("nodes", "-o", "json").json == []
        assert command("node", "remove", "nas").code == 3
        assert command("node", "resume", "nas").code == 3

    def test_drain_says_what_becomes_of_its_jobs(self, command, broker):
        worker(broker)
        load(broker)
        assert command.ok("node", "drain", "nas") == Ran(
            0,
            "nas is drained: it gets no new jobs; running there: 2, left to end; waiting there: 1, placed elsewhere; "
            "reported: 1, left to their origin\n",
            "",
        )

    def test_dead_warns_of_a_node_that_beats(self, command, broker):
        worker(broker)
        ran = command.ok("node", "dead", "nas")
        assert ran.out == "nas counts as dead: it gets no new jobs; no jobs are there\n"
        assert "still beats" in ran.err
        assert "broker node drain nas" in ran.err

    def test_dead_says_that_its_jobs_are_given_up(self, command, broker):
        worker(broker)
        load(broker)
        silence(broker)
        ran = command.ok("node", "dead", "nas")
        assert "running there: 2, given up once their worker is silent" in ran.out
        assert "reported: 1, doubted once their origin is silent" in ran.out
        assert ran.err == ""

    def test_resume_says_whether_anything_was_said_before(self, command, broker):
        worker(broker)
        assert command.ok("node", "resume", "nas").out == "nas had no flag\n"
        command.ok("node", "drain", "nas")
        assert command.ok("node", "resume", "nas") == Ran(0, "nas is like any other again\n", "")
        silence(broker)
        assert "has been silent for" in command.ok("node", "resume", "nas").err
        command.ok("node", "drain", "never")
        assert "node never never beat" in command.ok("node", "resume", "never").err

    def test_remove_says_what_is_still_there(self, command, broker):
        worker(broker)
        load(broker)
        ran = command.ok("node", "remove", "nas")
        assert ran.out.startswith("nas is forgotten, and its flag; running there: 2, given up")
        assert "comes back with its next beat" in ran.err
        worker(broker)
        silence(broker)
        assert command.ok("node", "remove", "nas").err == ""

    def test_a_flag_may_wait_for_its_node(self, command):
        assert "has not been heard of" in command.ok("node", "drain", "nas").err

    @pytest.mark.parametrize("words", [["drain"], ["stop", "nas"], ["drain", "Nas"], []])
    def test_usage(self, command, words):
        assert command("node", *words).code == 2


HEALTHY = Health("7.2.0", "redis", "master", "noeviction", True, True, 10, 100, 0.2, 0)


class TestDoctor:
    def test_finds_a_job_that_nobody_can_run(self, command, broker):
        broker.submit("echo")
        """No error: submit takes such a job, with the same warning."""
        assert {
            "level": "warning", "topic": "engine", "text": "1 jobs wait for engine echo, which no node offers",
            "key": "",
        } in command.ok("doctor", "-o", "json").json  # fmt: skip
        worker(broker)
        assert not any(
            found["topic"] == "engine" for found in command.ok("doctor", "-o", "json").json
        )

    def test_finds_a_silent_node(self, command, broker):
        worker(broker)
        silence(broker)
        assert any(
            "nas has been silent" in found["text"]
            for found in command.ok("doctor", "-o", "json").json
        )

    def test_a_node_that_was_stopped_in_good_order_is_fine(self, command, broker):
        worker(broker)
        silence(broker)
        broker.fleet.leave("nas-echo")
        found = command.ok("doctor", "-o", "json").json
        assert [(found["level"], found["text"]) for found in found if found["topic"] == "node"] == [
            ("ok", "nas has left: its workers ended in good order")
        ]

    @pytest.mark.parametrize(
        "change, level, topic",
        [
            ({}, None, ""),
            ({"policy": "allkeys-lru"}, "error", "policy"),
            ({"policy": "volatile-lru", "used_max": 0}, "warning", "policy"),
            ({"aof": False}, "warning", "aof"),
            ({"aof_ok": False}, "error", "aof"),
            ({"used": 95}, "error", "memory"),
            ({"role": "slave"}, "error", "role"),
            ({"answer_ms": 900.0}, "warning", "redis"),
            ({"clock_ahead_ms": -5_000}, "warning", "clock"),
        ],
    )
    def test_judges_the_server(self, change, level, topic):
        from dataclasses import replace

        found = [
            finding for finding in judge_server(replace(HEALTHY, **change)) if finding.level != "ok"
        ]
        assert [(finding.level, finding.topic) for finding in found] == (
            [(level, topic)] if level else []
        )

    def test_reads_the_server(self, store):
        health = read_health(store)
        assert (health.role, health.policy, health.aof) == ("master", "noeviction", False)
        assert abs(health.clock_ahead_ms) < 1_000 + health.answer_ms  # it may have been slow to say
