"""The asyncio client: it says the same as the other one, and its event loop waits for Redis never."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import warnings
from contextlib import contextmanager

import pytest

from broker import (
    AsyncBroker,
    AsyncJob,
    AsyncJobEvents,
    Broker,
    Invalid,
    JobFailed,
    Key,
    NotFound,
    Refused,
    TimedOut,
    Unavailable,
)
from broker import settings as settings_of
from broker.aio.calls import THREADS
from broker.store.store import Store
from broker.waiting import waits as waits_module
from tests.store.readers import until
from tests.system.command import held, reported
from tests.system.looping import SECONDS_MAX, Pulse

MANY = 1_000
#: An event loop that waits for something misses a beat each 10 ms: half a second, on a machine that runs.
MISSED_MAX = 50


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 300))


async def condition(holds):
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():  # noqa: ASYNC110 - threads, too, bring it about
            await asyncio.sleep(0.005)


@pytest.fixture
def client(redis_url, namespace):
    """Made inside of the event loop, with connections of its own; for `async with`."""
    return lambda: AsyncBroker(
        Broker(Store.from_url(redis_url, namespace), settings_of(namespace=namespace, node="desk"))
    )


@pytest.fixture
def seldom(monkeypatch):
    """A look an hour, and not one a second: who is told soon was told by a ring, or by its own deadline."""
    monkeypatch.setattr(waits_module, "LOOK_MS", 3_600_000)


class TestCalls:
    def test_a_job_is_handed_in_followed_and_ended(self, broker, client):
        async def main():
            async with client() as here:
                job = await here.submit("echo", {"n": 1}, priority=5)
                assert isinstance(job, AsyncJob)
                assert (await job.record()).priority == 5
                assert job.id == job.key.id
                holder = held(broker, job.key)
                holder.write("chunk")
                assert [chunk.text for chunk in await job.output()] == ["chunk"]
                ending = asyncio.create_task(job.result(30))
                holder.finish("completed", result={"width": 120})
                assert await ending == {"width": 120}
                assert (await here.why(job.key)).listed.record.state == "completed"
                with pytest.raises(Refused, match="has not ended"):
                    await here.retry((await here.submit("echo")).key)
                again = await here.retry(job.key)
                assert (await again.cancel()).rule == "desired"
                with pytest.raises(JobFailed, match="cancelled"):
                    await again.result()
                gone = await here.submit("echo")
                ending = asyncio.create_task(gone.result())
                await condition(lambda: looked(here))
                await here.remove(gone.key)
                with pytest.raises(JobFailed, match="removed"):
                    await ending

        run(main())

    def test_errors_are_those_of_the_other_client(self, client):
        async def main():
            async with client() as here:
                await here.submit("echo", 1, id="7")
                with pytest.raises(Refused, match="conflict"):
                    await here.submit("echo", 2, id="7")
                with pytest.raises(NotFound):
                    await here.get("nobody")
                with pytest.raises(Invalid):
                    await here.submit("echo", priority=1_000)
                with pytest.raises(NotFound):
                    await here.wait("nobody")
                with pytest.raises(TypeError, match="nonsense"):
                    await here.submit("echo", nonsense=1)

        run(main())

    def test_what_is_many_comes_one_by_one(self, client):
        async def main():
            async with client() as here:
                jobs = await here.submit_many("echo", range(250))
                found = {key: record async for key, record in here.select(origin="desk")}
                assert set(found) == {job.key for job in jobs}
                entries = [entry async for entry in here.log("desk").entries()]
                assert len(entries) == 250
                assert (await here.log("desk").position()).rev == entries[-1].rev
                assert set(await here.replay("desk")) == set(found)
                async for _ in here.select():
                    break  # an iteration that is left behind harms nobody
                [first, *_] = await here.jobs(state="queued")
                assert first.key in found

        run(main())

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_reports_are_answered_in_order(self, client, asynchronous):
        events = [reported(id=str(n), state="running", seq=1) for n in range(1_200)]

        async def later():
            for event in events:
                yield event

        async def main():
            async with client() as here:
                given = later() if asynchronous else iter(events)
                outcomes = [outcome async for outcome in here.report_many(given)]
                assert [Key.parse(one.key).id for one in outcomes] == [one["id"] for one in events]
                assert {one.rule for one in outcomes} == {"first_sighting"}
                reporter = here.reporter()
                reporter.add(events[0])
                assert [one.outcome for one in await reporter.flush()] == ["duplicate"]

        run(main())

    def test_a_producer_tells_by_it_natively(self, client):
        async def main():
            async with client() as here, AsyncJobEvents(here, "ollama") as events:
                job = await events.create(model="llama")
                await events.start(job, "n1")
                await events.finish(job)
                assert (await here.get(job.key)).state == "completed"

        run(main())

    def test_groups_and_nodes_are_there_as_well(self, broker, client):
        async def main():
            async with client() as here:
                told = []

                async def handler(delivery):
                    told.append(delivery.key)
                    if len(told) == 1:
                        raise ValueError

                subscription = here.subscribe("sink", handler, tries=1)
                job = await here.submit("echo")
                await condition(lambda: told)
                await condition(lambda: broker.parked("sink"))
                [parked] = await here.parked("sink")
                assert parked.entry.key("desk") == job.key
                await here.replay_parked("sink")
                await condition(lambda: len(told) == 2)
                assert [group.group for group in await here.groups()] == ["sink"]
                await here.flag_node("n1", "drained")
                assert [(node.name, node.flag) for node in await here.nodes()] == [
                    ("n1", "drained")
                ]
                assert not subscription.ended
            assert subscription.ended

        run(main())

    def test_a_handler_may_close_the_client_that_it_belongs_to(self, client):
        async def main():
            closed = asyncio.Event()

            async def handler(delivery):
                with pytest.raises(RuntimeError, match="its own subscription"):
                    await subscription.join()
                await here.close()
                closed.set()

            async with client() as here:
                subscription = here.subscribe("sink", handler)
                await here.submit("echo")
                await asyncio.wait_for(closed.wait(), SECONDS_MAX)
                assert await subscription.join(SECONDS_MAX)

        run(main())


class TestWaiting:
    def test_a_thousand_waits_take_no_thread_of_the_pool_and_two_connections(
        self, broker, client, store
    ):
        async def main():
            before = len(store.client.client_list())
            threads = threading.active_count()
            async with client() as here:
                jobs = await here.submit_many("echo", range(MANY))
                waits = [asyncio.create_task(job.wait(600)) for job in jobs]
                await condition(lambda: looked(here) == MANY)
                await asyncio.sleep(1.5)  # and they look again
                assert threading.active_count() - threads <= THREADS + 2
                # Did the waits hold the pool, this call would wait for their ten minutes.
                found = await asyncio.wait_for(here.get(jobs[0].key), SECONDS_MAX)
                assert found.state == "queued"
                assert len(store.client.client_list()) - before <= 4
                begun = time.monotonic()  # before the first count, and ended after the second
                calls = commands(store)
                await asyncio.sleep(2)
                calls = commands(store) - calls
                seconds = time.monotonic() - begun
                assert calls < (seconds + 2) * MANY  # a look a second, not one at each turn
                await asyncio.to_thread(broker.cancel_many, [job.key for job in jobs[:500]])
                await asyncio.to_thread(broker.remove_many, [job.key for job in jobs[500:]])
                told = await asyncio.wait_for(asyncio.gather(*waits), SECONDS_MAX)
                assert {record.state for record in told[:500]} == {"cancelled"}
                assert set(told[500:]) == {None}
                assert len(here._waits) == 0

        run(main())

    def test_an_end_is_told_when_the_log_rings_and_not_at_the_next_look(
        self, broker, client, seldom
    ):
        async def main():
            async with client() as here:
                for number in range(15):
                    job = await here.submit("echo", origin=f"o{number % 3}")
                    waiting = asyncio.create_task(job.wait(60))
                    await asyncio.sleep(0.05 + 0.02 * (number % 5))
                    await asyncio.to_thread(broker.cancel, job.key)
                    assert (await asyncio.wait_for(waiting, SECONDS_MAX)).state == "cancelled"

        run(main())

    def test_one_that_ended_already_is_told_at_once(self, broker, client, seldom):
        async def main():
            async with client() as here:
                job = await here.submit("echo")
                await job.cancel()
                assert (await asyncio.wait_for(job.wait(), SECONDS_MAX)).state == "cancelled"
                assert (await here.wait(job.id)).state == "cancelled"

        run(main())

    def test_each_has_a_deadline_of_its_own(self, client, seldom):
        async def main():
            async with client() as here:
                job = await here.submit("echo")
                long = asyncio.create_task(job.wait(600))
                begun = time.monotonic()
                tasks = [asyncio.create_task(job.wait(0.1 * n)) for n in range(8)]
                late = []
                for number, task in enumerate(tasks):
                    with pytest.raises(TimedOut, match="still queued"):
                        await task
                    late.append(time.monotonic() - begun - 0.1 * number)
                assert min(late) >= -0.01
                assert max(late) < SECONDS_MAX  # and not with the longest of them, nor at a look
                assert not long.done()
                await job.cancel()
                assert (await long).state == "cancelled"

        run(main())

    def test_a_cancelled_wait_ends_at_once_and_leaves_nothing(self, broker, client, seldom):
        async def main():
            async with client() as here:
                jobs = await here.submit_many("echo", range(100))
                waits = [asyncio.create_task(job.wait()) for job in jobs for _ in range(2)]
                await condition(lambda: len(here._waits) == 200)
                for wait in waits[::2]:
                    wait.cancel()
                async with asyncio.timeout(SECONDS_MAX):  # the jobs do not end, nor is there a look
                    await asyncio.gather(*waits[::2], return_exceptions=True)
                assert len(here._waits) == 100
                await asyncio.to_thread(broker.cancel_many, [job.key for job in jobs])
                async with asyncio.timeout(SECONDS_MAX):
                    told = await asyncio.gather(*waits[1::2])
                assert {record.state for record in told} == {"cancelled"}
                assert len(here._waits) == 0
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await (await here.submit("echo")).wait()
                assert len(here._waits) == 0

        run(main())

    def test_one_record_that_cannot_be_read_fails_its_own_wait_alone(self, broker, client):
        async def main():
            async with client() as here:
                good, bad = await here.submit_many("echo", range(2))
                waits = [asyncio.create_task(job.wait(60)) for job in (good, bad)]
                await asyncio.sleep(0.2)
                broker.store.client.set(broker.store.keys.of_job(bad.key).job, "none")
                [told] = await asyncio.gather(waits[1], return_exceptions=True)
                assert "wrong type" in str(told)
                await good.cancel()
                assert (await waits[0]).state == "cancelled"

        run(main())

    def test_closing_ends_every_wait(self, client):
        async def main():
            here = client()
            jobs = await here.submit_many("echo", range(20))
            waits = [asyncio.create_task(job.wait()) for job in jobs]
            await asyncio.sleep(0.2)
            await here.close()
            async with asyncio.timeout(SECONDS_MAX):
                told = await asyncio.gather(*waits, return_exceptions=True)
            assert {type(one) for one in told} == {Unavailable}
            with pytest.raises(Unavailable, match="closed"):
                await jobs[0].wait()
            with pytest.raises(Unavailable, match="closed"):
                await here.get(jobs[0].key)
            await here.close()

        run(main())


def looked(client):
    """How many waits have seen their job."""
    return sum(wait.record is not None for wait in client._waits._tells)


def commands(store):
    return store.client.info("stats")["total_commands_processed"]


class TestCancelling:
    def test_a_cancelled_call_ends_in_its_thread_and_leaks_nothing(self, client, store, caplog):
        async def main():
            async with client() as here:
                pool = here.broker.store.client.connection_pool
                for number in range(200):
                    task = asyncio.create_task(here.submit("echo", id=str(number)))
                    if number % 3:
                        await asyncio.sleep(0.0005 * (number % 7))
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await condition(lambda: not pool._in_use_connections)
                assert len(pool._available_connections) <= THREADS
                for listed in await here.jobs():  # each is whole, or was never begun
                    assert listed.record.state == "queued"

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run(main())
            gc.collect()
        assert not caplog.records

    def test_a_client_that_was_cancelled_while_it_connected_leaves_no_connection(
        self, redis_url, store
    ):
        async def main():
            for number in range(10):
                task = asyncio.create_task(AsyncBroker.from_url(redis_url))
                await asyncio.sleep(0.001 * number)
                task.cancel()
                [told] = await asyncio.gather(task, return_exceptions=True)
                if isinstance(told, AsyncBroker):
                    await told.close()

        before = len(store.client.client_list())
        run(main())
        until(lambda: len(store.client.client_list()) <= before)


class TestTheLoop:
    @contextmanager
    def frozen(self, server):
        os.kill(server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server.pid, signal.SIGCONT)

    def test_it_ticks_while_redis_is_frozen(self, server):
        """Under calls, waits, readers and a subscription, and while all of that is closed."""

        async def main():
            url = f"redis://127.0.0.1:{server.port}"
            here = await AsyncBroker.from_url(url, namespace="frozen", node="desk")

            async def handler(delivery):
                """It is enough that there is one."""

            subscription = here.subscribe("sink", handler)
            watcher = here.watch()
            await watcher.snapshot()
            jobs = await here.submit_many("echo", range(50))
            waits = [asyncio.create_task(job.wait(600)) for job in jobs]
            short = [asyncio.create_task(job.wait(0.5)) for job in jobs]
            await asyncio.sleep(0.1)
            async with Pulse() as pulse:
                with self.frozen(server):
                    calls = [asyncio.create_task(here.get(job.key)) for job in jobs]
                    calls += [asyncio.create_task(here.submit("echo")) for _ in jobs]
                    others = [
                        asyncio.create_task(watcher.changes(2_000)),
                        asyncio.create_task(here.readers().open().snapshot()),
                        asyncio.create_task(AsyncBroker.from_url(url)),
                        asyncio.create_task(subscription.join(1)),
                    ]
                    await pulse.beaten(300)
                    for task in (*calls, *waits[:25]):
                        task.cancel()
                    closing = asyncio.create_task(here.close())
                    await pulse.beaten(100)
            await closing
            await asyncio.gather(*calls, *waits, *short, *others, return_exceptions=True)
            if others[2].exception() is None:
                await others[2].result().close()
            print(f"Redis frozen: the loop missed {pulse.missed_max} beats at once")
            assert pulse.missed_max < MISSED_MAX
            assert all(isinstance(task.exception(), Unavailable) for task in waits[25:])
            assert all(isinstance(task.exception(), TimedOut | Unavailable) for task in short)

        run(main())

    def test_it_ticks_while_a_long_list_is_handed_over(self, client, broker):
        broker.submit_many("echo", range(20_000))

        async def main():
            async with client() as here, here.readers() as readers:
                await readers.open().snapshot()
                async with Pulse() as pulse:
                    found = await asyncio.gather(*(readers.open().snapshot() for _ in range(20)))
                assert {len(one.records) for one in found} == {20_000}
                print(f"20 lists of 20,000: the loop missed {pulse.missed_max} beats at once")
                assert pulse.missed_max < MISSED_MAX

        run(main())
