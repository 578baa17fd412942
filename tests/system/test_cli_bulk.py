"""`cancel retry remove` of all jobs that fit: the question, what is said of each, and how an end halfway is told."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios

import pytest

from broker import Broker
from broker.cli.signals import Stop
from broker.errors import Unavailable
from tests.system.command import guessed, held, reported, until


def states(broker):
    return [listed.record.state for listed in broker.jobs()]


def failed(broker, count=1, **options):
    keys = []
    for _ in range(count):
        job = broker.submit("echo", {"n": 1}, **options)
        held(broker, job.key).finish("failed", error="boom")
        keys.append(str(job.key))
    return keys


class TestWhatFits:
    def test_cancel_means_what_has_not_ended(self, command, broker):
        broker.submit("echo")
        held(broker, broker.submit("echo").key)
        doubtful = broker.submit("echo").key
        held(broker, doubtful)
        guessed(broker, doubtful)
        failed(broker)
        broker.submit("other")
        ran = command.ok("cancel", "--engine", "echo", "--yes")
        assert ran.out == "2 asked to stop; 1 cancelled\n"
        assert states(broker) == ["cancelled", "running", "failed", "failed", "queued"]

    def test_retry_means_what_failed_and_was_not_retried_before(self, command, broker):
        keys = failed(broker, 3)
        broker.retry(keys[0])
        broker.cancel(broker.submit("echo").key)
        ran = command.ok("retry", "--engine", "echo", "--yes", "-o", "jsonl")
        assert [line["key"] for line in ran.lines] == keys[1:]
        assert "left out: 1 that was retried before" in ran.err
        again = command.ok("retry", "--engine", "echo", "--yes")
        assert (again.out, again.err.splitlines()[-1]) == ("", "no jobs fit")

    def test_remove_means_all_of_them(self, command, broker):
        failed(broker)
        broker.submit("echo")
        broker.report(reported())
        assert command.ok("remove", "--origin", "desk", "--yes").out == "3 removed\n"
        assert broker.jobs() == []

    @pytest.mark.parametrize(
        "words",
        [
            ["--node", "nas"],
            ["--state", "running"],
            ["--origin", "desk", "--node", "nas", "--state", "running", "--engine", "echo"],
        ],
    )
    def test_takes_the_options_of_the_list(self, command, broker, words):
        held(broker, broker.submit("echo").key, "nas")
        broker.submit("echo", origin="nas")
        broker.submit("other")
        [listed] = command.ok("jobs", *words, "-o", "json").json
        [outcome] = command.ok("cancel", *words, "--yes", "-o", "json").json
        assert outcome["key"] == listed["key"]

    @pytest.mark.parametrize("verb", ["cancel", "retry", "remove"])
    def test_none_is_none(self, command, verb):
        ran = command.ok(verb, "--state", "failed")
        assert (ran.out, ran.err) == ("", "no jobs fit\n")
        assert command.ok(verb, "--state", "failed", "-o", "json").json == []

    @pytest.mark.parametrize("verb", ["cancel", "retry", "remove"])
    @pytest.mark.parametrize("words", [[], ["7", "--state", "failed"], ["--state", "done"]])
    def test_usage(self, command, verb, words):
        assert command(verb, *words).code == 2


class TestAsking:
    def test_without_a_terminal_the_count_is_all_that_is_told(self, command, broker):
        broker.submit_many("echo", range(3))
        held(broker, broker.submit("echo").key)
        for format in ("table", "json", "jsonl"):
            ran = command("cancel", "--engine", "echo", "-o", format)
            assert (ran.code, ran.out) == (2, "")
            assert ran.err == "broker: 4 jobs fit (3 queued, 1 running); to cancel them add --yes\n"
        assert states(broker) == ["queued"] * 3 + ["running"]

    @pytest.mark.parametrize(
        "answer,code", [(b"y\n", 0), (b"yes\n", 0), (b"n\n", 1), (b"\n", 1), (b"\x04", 1)]
    )
    def test_on_a_terminal_it_shows_some_and_asks(self, command, broker, answer, code):
        broker.submit_many("echo", range(7))
        seen, ended = talk(command, ["cancel", "--engine", "echo"], answer)
        assert ended == code
        assert "cancel 7 jobs: 7 queued" in seen
        assert seen.count("queued     desk/echo//") == 5
        assert "and 2 more" in seen
        assert ("7 cancelled" in seen) == (code == 0)
        assert ("nothing was done" in seen) == (code == 1)
        assert states(broker) == ["queued" if code else "cancelled"] * 7

    def test_ctrl_c_at_the_question_does_nothing(self, command, broker):
        broker.submit("echo")
        _, ended = talk(command, ["cancel", "--engine", "echo"], b"\x03")
        assert ended == 130
        assert states(broker) == ["queued"]


def talk(command, words, answer):
    """What the terminal showed, the question answered so, and the exit code."""
    master, slave = pty.openpty()
    env = {"TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"}
    terminal = {"stdin": slave, "stdout": slave, "stderr": slave, "env": env}

    def claim():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # Tests that run in the background are deaf to ^C, and so would be all that they start.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # A session of its own, whose terminal this is: so that ^C means what it means.
    with command.start(*words, **terminal, start_new_session=True, preexec_fn=claim) as process:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(master, 65536):
                seen += data
                if answer is not None and b"[y/N]" in seen:
                    os.write(master, answer)
                    answer = None
        code = process.wait(60)
    os.close(master)
    return seen.decode().replace("\r\n", "\n"), code


class TestTelling:
    def test_each_job_has_its_outcome_as_json(self, command, broker):
        keys = [str(job.key) for job in broker.submit_many("echo", range(3))]
        told = command.ok("cancel", "--engine", "echo", "--yes", "-o", "json").json
        assert [outcome["key"] for outcome in told] == sorted(keys)
        assert {outcome["rule"] for outcome in told} == {"desired"}
        assert len(command.ok("remove", "--engine", "echo", "--yes", "-o", "jsonl").lines) == 3

    def test_refusals_are_counted_by_their_rule(self, command, broker):
        keys = failed(broker, 3)
        broker.store.client.delete(broker.store.keys.of_job(broker.find(keys[0])).spec)
        for id in ("7", "8"):
            broker.report(reported(id, "failed"))
        ran = command("retry", "--state", "failed", "--yes")
        assert ran.code == 4
        assert len(ran.out.splitlines()) == 2
        assert all(broker.get(key).retry_of in keys[1:] for key in ran.out.splitlines())
        assert ran.err == (
            "2 handed in again\n"
            "broker: 3 of 5 jobs were refused: 2 it is reported: only its origin can do that (not_ours); "
            "1 its payload is gone (expired)\n"
        )

    def test_what_changed_since_it_was_shown_is_answered_by_its_rule(
        self, command, broker, monkeypatch
    ):
        """Between the question and the act one ends, one is removed, one starts."""
        ended, removed, started, still = (job.key for job in broker.submit_many("echo", range(4)))
        say = Broker.cancel_many

        def later(here, keys, **options):
            held(broker, ended).finish("completed")
            broker.remove(removed)
            held(broker, started)
            return say(here, keys, **options)

        monkeypatch.setattr(Broker, "cancel_many", later)
        ran = command("cancel", "--engine", "echo", "--yes", "-o", "jsonl")
        assert ran.code == 4
        rules = {line["key"]: line["rule"] for line in ran.lines}
        assert rules == {
            str(ended): "too_late",
            str(removed): "tombstoned",
            str(started): "desired",
            str(still): "desired",
        }
        assert "2 of 4 jobs were refused" in ran.err


class TestAnEndHalfway:
    @pytest.fixture
    def many(self, broker):
        broker.submit_many("echo", range(350))

    @pytest.mark.parametrize("order", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_it_after_the_batch_in_hand_and_tells_how_far_it_came(
        self, command, broker, many, monkeypatch, order
    ):
        say, take = Broker.cancel_many, Stop._take
        calls, stops = [], []

        def seen(stop):
            stops.append(stop)
            take(stop)

        monkeypatch.setattr(Stop, "_take", seen)

        def stopped(here, keys, **options):
            calls.append(len(keys))
            if len(calls) == 2:
                os.kill(os.getpid(), order)
                until(lambda: stops and stops[-1].event.is_set())  # it takes orders on a thread
            return say(here, keys, **options)

        monkeypatch.setattr(Broker, "cancel_many", stopped)
        ran = command("cancel", "--engine", "echo", "--yes")
        assert ran.code == 130
        assert ran.err == "broker: stopped after 200 of 350 jobs (200 cancelled)\n"
        assert states(broker).count("cancelled") == 200

    def test_what_was_done_is_still_json(self, command, broker, many, monkeypatch):
        self.lose(monkeypatch, 3)
        ran = command("cancel", "--engine", "echo", "--yes", "-o", "json")
        assert (ran.code, len(ran.json)) == (6, 200)

    def test_a_redis_that_is_lost_is_told_with_how_far_it_came(
        self, command, broker, many, monkeypatch
    ):
        self.lose(monkeypatch, 3)
        ran = command("cancel", "--engine", "echo", "--yes")
        assert ran.code == 6
        assert (
            "gone; stopped after 200 of 350 jobs (200 cancelled); of the next 100 it is not known\n"
            in ran.err
        )
        monkeypatch.undo()

    @staticmethod
    def lose(monkeypatch, call):
        say = Broker.cancel_many
        calls = []

        def lost(here, keys, **options):
            calls.append(keys)
            if len(calls) == call:
                raise Unavailable("gone")
            return say(here, keys, **options)

        monkeypatch.setattr(Broker, "cancel_many", lost)

    def test_a_pipe_that_is_closed_ends_it(self, command, broker, many):
        broker.submit_many("echo", range(2_000))
        with command.start("cancel", "--engine", "echo", "--yes", "-o", "jsonl") as process:
            process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read().decode()
            assert process.wait(60) == 1
        assert "nobody reads the outcomes: stopped after" in err
        assert 0 < states(broker).count("queued") < 2_350


def test_progress_is_shown_beside_the_summary(command, broker):
    broker.submit_many("echo", range(1_000))
    seen, code = talk(command, ["cancel", "--engine", "echo", "--yes"], None)
    assert code == 0
    assert " of 1,000 jobs" in seen
    assert "1,000 cancelled" in seen
