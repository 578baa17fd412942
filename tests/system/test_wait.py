"""`wait` ends with the job, its removal or its loss, and hangs on nothing that happens to Redis meanwhile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker import AsyncBroker, Broker, Job, NotFound, Record, TimedOut, Unavailable
from broker.rules.event import Prune, Remove
from broker.store.server import PrivateRedis
from broker.waiting import wait
from broker.waiting import waits as waits_module
from tests.ports import free_port
from tests.store.readers import patient
from tests.system.command import guessed, held, reported, until, waits
from tests.system.looping import Loop

#: Longer than any of this takes: who needs it hangs.
LONG = 100.0
#: What takes a look, which is a second at most, is over by then, on whatever machine.
SOON = 50.0
#: The deadline of who waits for a Redis that is killed meanwhile, which takes less on whatever machine.
AWAY = 10.0
#: Redis is asked once or twice by each look, and hundreds of times a second by who asks in a loop.
CALLS_A_SECOND_MAX = 12


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateRedis]:
    """A server of our own, on a port, which stays the same when it is started again."""
    port = free_port()
    with PrivateRedis(tmp_path / "redis", port, {"appendfsync": "always"}) as made:
        yield made


@pytest.fixture
def here(server: PrivateRedis) -> Iterator[Broker]:
    url = patient(f"redis://127.0.0.1:{server.port}")
    with Broker.from_url(url, namespace="waiting", node="desk") as made:
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as made:
        yield made


@pytest.fixture(params=["blocks", "is awaited"])
def waits_for(
    request: pytest.FixtureRequest, pool: ThreadPoolExecutor, loop: Loop
) -> Callable[..., Future[Record | None]]:
    """Begins to wait, on a thread or in an event loop; returns when the waiter has seen the job, and sleeps."""

    def begin(broker: Broker, job: Job, timeout: float | None = LONG) -> Future[Record | None]:
        until(lambda: not waits(broker))  # nobody whom another test left there
        if request.param == "blocks":  # it looks before it sleeps
            sleeper = pool.submit(job.wait, timeout)
            until(lambda: waits(broker) or sleeper.done())
            return sleeper
        twin = loop.twin(broker)
        sleeper = loop.begin(twin.wait(job.key, timeout))
        # One thread sleeps, and another one looks: that may come later.
        until(lambda: (waits(broker) and has_seen(twin)) or sleeper.done())
        return sleeper

    return begin


def has_seen(twin: AsyncBroker) -> bool:
    """Whether what is awaited there was looked at."""
    begun = list(twin._waits._tells)
    return bool(begun) and all(wait.record for wait in begun)


def kill(server: PrivateRedis) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.stop()


def log_of(broker: Broker) -> str:
    return broker.store.keys.of("desk").log


def calls(broker: Broker) -> int:
    return int(broker.store.client.info("stats")["total_commands_processed"])


@contextmanager
def asks_without_haste(broker: Broker) -> Iterator[None]:
    """However long it takes."""
    before, begun = calls(broker), time.monotonic()
    yield
    asked = calls(broker) - before
    assert asked < CALLS_A_SECOND_MAX * (1 + time.monotonic() - begun)


class TestTheLog:
    @pytest.mark.parametrize("how", ["trimmed to nothing", "trimmed to the newest", "deleted"])
    def test_may_be_cut_or_lost(self, here, waits_for, how):
        job = here.submit("echo")
        here.submit("echo")
        sleeper = waits_for(here, job)
        client = here.store.client
        if how == "deleted":
            client.delete(log_of(here))
        else:
            client.xtrim(log_of(here), maxlen=int("newest" in how), approximate=False)
        held(here, job.key).finish("completed")
        assert sleeper.result(SOON).state == "completed"

    def test_may_be_of_a_wrong_type_for_a_while_and_is_not_asked_in_a_loop(self, here, waits_for):
        job = here.submit("echo")
        client = here.store.client
        entries = client.dump(log_of(here))
        sleeper = waits_for(here, job)
        client.set(log_of(here), "none")
        with asks_without_haste(here), pytest.raises(TimeoutError):
            sleeper.result(2.5)
        client.restore(log_of(here), 0, entries, replace=True)
        held(here, job.key).finish("completed")
        assert sleeper.result(SOON).state == "completed"

    def test_may_be_of_a_wrong_type_from_the_beginning(self, here):
        job = here.submit("echo")
        here.store.client.set(log_of(here), "none")
        begun = time.monotonic()
        with pytest.raises(TimedOut):
            job.wait(1.2)
        assert time.monotonic() - begun < SOON
        here.store.client.delete(log_of(here))
        held(here, job.key).finish("completed")
        here.store.client.set(log_of(here), "none")
        assert job.wait(LONG).state == "completed"


class TestTheConnection:
    def test_may_be_cut_while_it_sleeps(self, here, waits_for):
        job = here.submit("echo")
        sleeper = waits_for(here, job)
        for _ in range(3):
            until(lambda: waits(here))
            for client in here.store.client.client_list():
                if client["flags"] == "b":
                    here.store.client.client_kill_filter(_id=client["id"])
        held(here, job.key).finish("completed")
        assert sleeper.result(SOON).state == "completed"

    def test_may_refuse_to_sleep_and_is_not_asked_in_a_loop(self, here, pool):
        """As a user whose rights lack XREAD."""
        job = here.submit("echo")
        here.store.client.execute_command("ACL", "SETUSER", "default", "-xread")
        sleeper = pool.submit(job.wait, LONG)
        with asks_without_haste(here), pytest.raises(TimeoutError):
            sleeper.result(2.5)
        held(here, job.key).finish("completed")
        assert sleeper.result(SOON).state == "completed"


class TestRedis:
    @pytest.mark.parametrize("timeout", [None, LONG])
    def test_may_be_killed_and_come_back(self, server, here, waits_for, timeout):
        job = here.submit("echo")
        sleeper = waits_for(here, job, timeout)
        for away in (2.5, 0.1):  # longer, and shorter, than redis-py tries on its own
            kill(server)
            with pytest.raises(TimeoutError):
                sleeper.result(away)
            server.start()
        held(here, job.key).finish("completed")
        assert sleeper.result(SOON).state == "completed"

    def test_that_stays_away_until_the_deadline_is_unavailable(self, server, here, waits_for):
        job = here.submit("echo")
        sleeper = waits_for(here, job, AWAY)
        kill(server)
        with pytest.raises(Unavailable):
            sleeper.result(
                SOON
            )  # and not when it was patient for the minute that it is without one

    def test_that_stays_away_is_not_waited_for_for_ever(self, server, here, waits_for, monkeypatch):
        monkeypatch.setattr(wait, "AWAY_SECONDS_MAX", 1.0)
        monkeypatch.setattr(waits_module, "AWAY_SECONDS_MAX", 1.0)
        sleeper = waits_for(here, here.submit("echo"), None)
        kill(server)
        with pytest.raises(Unavailable):
            sleeper.result(SOON)

    def test_flushed_is_told_as_a_loss(self, here, waits_for):
        sleeper = waits_for(here, here.submit("echo"))
        here.store.client.flushall()
        with pytest.raises(NotFound, match="was not removed: Redis lost it"):
            sleeper.result(SOON)

    def test_flushed_and_told_of_anew_is_a_loss_too(self, server, here, waits_for):
        sleeper = waits_for(here, here.submit("echo", id="7"))
        client = here.store.client
        with Broker.from_url(server.url, namespace="anew", node="desk") as anew:
            anew.submit("echo", id="7")
        told = {name: client.dump(name) for name in client.keys("anew:*")}
        with client.pipeline() as at_once:  # who looks in between is told of the flush
            at_once.flushall()
            for name, value in told.items():
                at_once.restore(name.replace(b"anew", b"waiting", 1), 0, value)
            at_once.execute()
        with pytest.raises(NotFound, match="replaced by another job of its name"):
            sleeper.result(SOON)


class TestTheJob:
    def test_removed_before_its_end_is_none(self, broker, waits_for):
        job = broker.submit("echo")
        sleeper = waits_for(broker, job)
        broker.remove(job.key)
        assert sleeper.result(SOON) is None

    def test_removed_while_it_ran_is_none_when_its_holder_ends_it(self, broker, waits_for):
        job = broker.submit("echo")
        holder = held(broker, job.key)
        sleeper = waits_for(broker, job)
        assert broker.remove(job.key).rule == "remove_requested"
        holder.finish("cancelled")
        assert sleeper.result(SOON) is None

    def test_removed_and_submitted_anew_is_none(self, broker, waits_for):
        job = broker.submit("echo", id="7")
        sleeper = waits_for(broker, job)
        now = broker.store.clock.now()
        until(lambda: broker.store.clock.now() > now)
        broker.remove(job.key)
        broker.submit("echo", id="7")
        assert sleeper.result(SOON) is None

    @pytest.mark.parametrize("how", ["removed", "pruned"])
    def test_that_ended_and_was_let_go_of_before_anybody_looked_has_ended(
        self, broker, monkeypatch, how
    ):
        job = broker.submit("echo")

        def sleep(*_: object) -> None:
            held(broker, job.key).finish("completed")
            record = job.record()
            seen = {"rev": record.rev, "last_seen": record.last_seen, "term": 1}
            event = Prune(key=job.key, **seen) if how == "pruned" else Remove(key=job.key)
            assert broker.view.apply([event])[0].rule == how

        monkeypatch.setattr(wait, "_sleep", sleep)
        assert job.wait(LONG).state == "completed"

    def test_whose_record_alone_is_lost_is_told_as_a_loss(self, broker, waits_for):
        job = broker.submit("echo")
        sleeper = waits_for(broker, job)
        broker.store.client.delete(broker.store.keys.of_job(job.key).job)
        with pytest.raises(NotFound, match="Redis lost it"):
            sleeper.result(SOON)

    def test_replaced_by_a_newer_one_is_not_waited_for(self, broker, waits_for):
        broker.report(reported(state="running"))
        sleeper = waits_for(broker, Job(broker, broker.find("7")))
        broker.report(reported(state="running", created_at=1_700_000_000_001))
        with pytest.raises(NotFound, match="replaced by another job of its name"):
            sleeper.result(SOON)

    def test_that_is_only_guessed_to_have_failed_has_not_ended(self, broker, waits_for):
        job = broker.submit("echo")
        holder = held(broker, job.key)
        sleeper = waits_for(broker, job)
        guessed(broker, job.key)
        with pytest.raises(TimeoutError):
            sleeper.result(1.5)
        assert holder.finish("completed").rule == "finished"
        assert sleeper.result(SOON).state == "completed"


class TestTheCommand:
    """The same, as exit codes."""

    @pytest.fixture
    def begun(self, command, here, server):
        """`broker wait` on a queued job, asleep."""
        job = here.submit("echo")
        env = {"REDIS_URL": f"redis://127.0.0.1:{server.port}", "BROKER_NAMESPACE": "waiting"}

        def begin(*words):
            process = command.start("wait", job.key, *words, env=env)
            until(lambda: waits(here))
            return process, job

        return begin

    def test_a_restart_is_ridden_out(self, server, here, begun):
        process, job = begun()
        with process:
            kill(server)
            server.start()
            held(here, job.key).finish("completed")
            assert process.communicate(timeout=SOON) == (b"completed\n", b"")
        assert process.returncode == 0

    def test_a_redis_that_stays_away_is_6(self, server, begun):
        process, _ = begun("--timeout", AWAY)
        with process:
            kill(server)
            out, err = process.communicate(timeout=SOON)
        assert (process.returncode, out, err.count(b"\n")) == (6, b"", 1)

    def test_a_loss_is_3(self, here, begun):
        process, job = begun()
        with process:
            here.store.client.flushall()
            out, err = process.communicate(timeout=SOON)
        assert (process.returncode, out) == (3, b"")
        assert f"{job.key} is not there any more".encode() in err

    def test_a_lost_job_among_many_is_one_that_did_not_complete(self, here, server, command):
        env = {"REDIS_URL": f"redis://127.0.0.1:{server.port}", "BROKER_NAMESPACE": "waiting"}
        words = ("submit", "echo", "--jsonl", "-", "--wait")
        with command.start(*words, env=env) as process:
            process.stdin.write(b"1\n2\n")
            process.stdin.close()
            until(lambda: waits(here))
            lost, kept = (listed.key for listed in here.jobs())
            here.store.client.delete(here.store.keys.of_job(lost).job)
            held(here, kept).finish("completed")
            assert process.wait(SOON) == 7
            assert b"1 of 2 jobs did not complete" in process.stderr.read()
