"""The asyncio readers: they list, follow, iterate and end in an event loop, and lose nothing when cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, closing, suppress

import pytest

from broker import AsyncBroker, AsyncReaders, Broker, Damaged, Filter, Resync, Unavailable
from broker import settings as settings_of
from broker.readers.readers import Readers
from broker.rules.ring import SIZE
from broker.store import follow
from broker.store.store import Store
from tests.store.readers import ORIGIN, SECONDS_MAX, Desk, key, kill, logged


@pytest.fixture
def desk(store):
    """Its origin is known, so that nobody needs to find it first."""
    desk = Desk(store)
    desk.report("known")
    desk.remove("known")
    return desk


@pytest.fixture
def following(redis_url, namespace):
    """Makes a client whose connections are not those of the writer; for `async with`."""

    @asynccontextmanager
    async def made():
        store = Store.from_url(redis_url, namespace)
        client = Broker(store, settings_of(namespace=namespace, node="desk"))
        async with AsyncBroker(client) as twin:
            yield twin

    return made


class Held:
    """What somebody holds who does as a reader is told."""

    def __init__(self, reader):
        self.reader = reader
        self.records = {}
        self.told = []

    async def lists(self):
        self.records = dict((await self.reader.snapshot()).records)
        return self

    def take(self, change):
        self.told.append(change)
        self.records.pop(change.key, None)
        if change.record is not None:
            self.records[change.key] = change.record

    async def iterates(self):
        while not self.reader.closed:
            try:
                async for change in self.reader:
                    self.take(change)
            except Resync:
                await self.lists()


async def until(condition):
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - threads, too, bring it about
            await asyncio.sleep(0.002)


async def told(reader, count):
    """So many changes."""
    taken = []
    async with asyncio.timeout(SECONDS_MAX):
        while len(taken) < count:
            taken += await reader.changes(500)
    return taken


def states(changes):
    return [(change.key.id, change.record and change.record.state) for change in changes]


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 300))


class TestFollowing:
    def test_it_lists_and_then_follows(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                desk.report_many("ab")
                async with readers.open("mine") as reader:
                    assert reader.name == "mine"
                    await until(lambda: logged(readers.records) == logged(desk.records()))
                    snapshot = await reader.snapshot()
                    assert logged(snapshot.records) == logged(desk.records())
                    assert snapshot.cursor == reader.cursor
                    desk.report("a", "completed")
                    desk.remove("b")
                    assert states(await told(reader, 2)) == [("a", "completed"), ("b", None)]
                    assert await reader.changes(0) == []
                    assert reader.position == readers.position

        run(main())

    def test_the_watcher_is_a_reader_of_its_own(self, desk, following):
        async def main():
            shelf = Desk(desk.store, "shelf")
            shelf.report("b")
            async with following() as client, client.watch(["shelf"]) as watcher:
                assert set((await watcher.snapshot()).records) == {key("b", "shelf")}
                desk.report("c")
                shelf.report("d")
                assert states(await told(watcher, 1)) == [("d", "running")]

        run(main())

    def test_whoever_took_no_snapshot_is_told_to_take_one(self, desk, following):
        async def main():
            async with following() as client:
                watcher = client.watch()
                with pytest.raises(Resync, match="snapshot"):
                    await watcher.changes(0)
                with pytest.raises(Resync, match="snapshot"):
                    await anext(watcher)
                await watcher.snapshot()
                assert await watcher.changes(0) == []

        run(main())

    def test_one_that_asks_for_some_jobs_is_told_of_those_that_leave_them(self, desk, following):
        async def main():
            desk.report_many("abc")
            desk.report("d", "queued")
            async with following() as client, client.readers() as readers:
                reader = readers.open(wanted=Filter(states={"running"}))
                assert set((await reader.snapshot()).records) == {key(id) for id in "abc"}
                desk.report("a", "completed")
                desk.remove("b")
                desk.report("e", "failed")
                desk.remove("e")
                desk.report("d")
                found = states(await told(reader, 3))
                assert found == [("a", "completed"), ("b", None), ("d", "running")]

        run(main())

    def test_one_comes_back_where_it_stood(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                desk.report_many("ab")
                first = readers.open()
                await first.snapshot()
                await until(lambda: len(readers.records) == 2)
                position = readers.position
                first.close()
                desk.report("a", "completed")
                desk.remove("b")
                await until(lambda: len(readers.records) == 1)
                again = readers.open(after=position)
                assert states(await again.changes(0)) == [("a", "completed"), ("b", None)]
                with pytest.raises(Resync):
                    readers.open(after="0123456789abcdef.1")

        run(main())

    def test_one_that_fell_behind_is_told_once(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                slow, quick = await Held(readers.open()).lists(), Held(readers.open())
                iterating = asyncio.create_task(quick.iterates())
                for at in range(0, SIZE + 100, 100):
                    await asyncio.to_thread(desk.report_many, range(at, at + 100))
                await until(lambda: len(readers.records) >= SIZE + 100)
                with pytest.raises(Resync):
                    await slow.reader.changes(0)
                await slow.lists()
                assert await slow.reader.changes(0) == []
                assert logged(slow.records) == logged(desk.records())
                await until(lambda: len(quick.records) == len(slow.records))
                readers.close()
                await iterating

        run(main())

    def test_many_follow_beside_each_other_and_end_with_the_list(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                held = [Held(readers.open()) for _ in range(50)]
                tasks = [asyncio.create_task(one.iterates()) for one in held]
                for turn in range(30):
                    await asyncio.to_thread(desk.report_many, range(turn, turn + 20), seq=turn + 1)
                    await asyncio.to_thread(desk.remove, turn)
                truth = logged(desk.records())
                for one in held:
                    await until(lambda one=one: logged(one.records) == truth)
                pool = client.broker.store.client.connection_pool
                assert len(pool._available_connections) + len(pool._in_use_connections) <= 2
                readers.close()
                await asyncio.gather(*tasks)

        run(main())


class TestIterating:
    def test_what_a_broken_off_iteration_was_not_given_comes_later(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                reader = await Held(readers.open()).lists()
                before = reader.reader.position, reader.reader.cursor
                desk.report_many(range(10))
                await until(lambda: len(readers.records) == 10)
                async for change in reader.reader:
                    reader.take(change)
                    if change.key.id == "3":
                        break
                assert (reader.reader.position, reader.reader.cursor) == before
                async for change in reader.reader:
                    reader.take(change)
                    if change.key.id == "5":
                        break
                for change in await reader.reader.changes(0):
                    reader.take(change)
                assert states(reader.told) == [(str(number), "running") for number in range(10)]
                assert reader.reader.position == readers.position
                assert logged(reader.records) == logged(desk.records())

        run(main())

    def test_a_new_snapshot_forgets_what_an_iteration_was_not_given(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                reader = await Held(readers.open()).lists()
                desk.report_many(range(10))
                await until(lambda: len(readers.records) == 10)
                await anext(reader.reader)
                await reader.lists()
                assert len(reader.records) == 10
                assert await reader.reader.changes(0) == []

        run(main())


class TestClosing:
    @pytest.mark.parametrize("what", ["the reader", "its readers", "the client"])
    def test_in_mid_burst_it_ends_once_and_without_an_error(self, desk, following, what):
        async def main():
            async with following() as client:
                readers = client.readers()
                held = await Held(readers.open()).lists()
                done = asyncio.Event()

                async def burst():
                    number = 0
                    while not done.is_set():
                        number += 10
                        ids = range(number, number + 10)
                        await asyncio.to_thread(desk.report_many, ids)

                async def follow():
                    async for change in held.reader:
                        held.take(change)
                        if len(held.told) == 500:
                            begun.set()

                begun = asyncio.Event()
                tasks = [asyncio.create_task(each()) for each in (burst, follow)]
                await begun.wait()
                if what == "the reader":
                    held.reader.close()
                elif what == "its readers":
                    readers.close()
                else:
                    await client.close()
                # The burst goes on until this has ended: who does not end by being closed never does.
                await asyncio.wait_for(tasks[1], 30)
                count = len(held.told)
                assert held.reader.closed
                assert [change async for change in held.reader] == []
                assert await held.reader.changes(60_000) == []
                assert len(held.told) == count
                assert all(change.key and change.record for change in held.told)
                done.set()
                await tasks[0]

        run(main())

    def test_an_idle_one_ends_at_once(self, desk, following):
        async def main():
            async with following() as client, client.watch() as watcher:
                await watcher.snapshot()
                waiting = asyncio.create_task(watcher.changes(60_000))
                other = client.watch()
                await other.snapshot()
                iterating = asyncio.create_task(anext(other, "the end"))
                await asyncio.sleep(0.1)
                watcher.close()
                other.close()
                async with asyncio.timeout(20):  # else they wait for a minute
                    assert await waiting == []
                    assert await iterating == "the end"

        run(main())

    def test_a_client_that_is_closed_opens_none(self, following):
        async def main():
            async with following() as client:
                pass
            for opens in (client.watch, client.readers):
                with pytest.raises(Unavailable, match="closed"):
                    opens()

        run(main())

    def test_one_whose_loop_is_gone_harms_no_other(self, desk, redis_url, namespace, caplog):
        with closing(Store.from_url(redis_url, namespace)) as store, Readers(store) as readers:

            async def forgets():
                await AsyncReaders(readers).open().snapshot()

            asyncio.run(forgets())
            other = readers.open()
            other.snapshot()
            desk.report("a")
            assert states(other.changes(30_000)) == [("a", "running")]
            assert not caplog.records


class TestCancelling:
    def test_a_cancelled_call_loses_nothing(self, desk, following):
        async def main():
            async with following() as client, client.readers() as readers:
                held = await Held(readers.open()).lists()

                async def take():
                    for change in await held.reader.changes(1_000):
                        held.take(change)

                for number in range(60):
                    task = asyncio.create_task(take())
                    await asyncio.sleep(0.001 * (number % 5))
                    await asyncio.to_thread(desk.report, number)
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await until(lambda: len(readers.records) == 60)
                await take()
                assert logged(held.records) == logged(desk.records())

        run(main())

    def test_a_cancelled_snapshot_leaves_a_reader_that_must_list(self, desk, following):
        """Else changes would follow upon a list that nobody was given."""

        async def main():
            async with following() as client, client.readers() as readers:
                reader = readers.open()
                await reader.snapshot()
                for turn in range(20):
                    task = asyncio.create_task(reader.snapshot())
                    for _ in range(turn % 4):
                        await asyncio.sleep(0)
                    task.cancel()
                    [result] = await asyncio.gather(task, return_exceptions=True)
                    if isinstance(result, asyncio.CancelledError) and turn % 4:
                        with pytest.raises(Resync):
                            await reader.changes(0)
                    await reader.snapshot()
                    assert await reader.changes(0) == []

        run(main())

    def test_a_snapshot_that_waits_for_the_first_list_takes_no_thread(
        self, desk, following, monkeypatch
    ):
        listing = threading.Event()

        def scan(store, origin, scan=follow.scan):
            listing.wait(SECONDS_MAX)
            yield from scan(store, origin)

        monkeypatch.setattr(follow, "scan", scan)

        async def main():
            desk.report("a")
            async with following() as client, client.readers() as readers:
                lists = [asyncio.create_task(readers.open().snapshot()) for _ in range(100)]
                await asyncio.sleep(0.1)
                # The list is not made before: did they hold the threads, this one would wait for it.
                assert await asyncio.wait_for(asyncio.to_thread(int, "1"), 30) == 1
                lists[0].cancel()
                listing.set()
                found = await asyncio.gather(*lists, return_exceptions=True)
                assert isinstance(found[0], asyncio.CancelledError)
                assert all(set(one.records) == {key("a")} for one in found[1:])

        run(main())


class TestTrouble:
    def test_redis_away_from_the_start_is_said(self, server):
        async def main():
            url = f"redis://127.0.0.1:{server.port}"
            Desk(Store.from_url(url)).report("a")
            client = await AsyncBroker.from_url(url, namespace="broker", node="desk")
            kill(server)
            async with client, client.watch() as watcher:
                with pytest.raises(Unavailable):
                    await watcher.snapshot()
                server.start()
                while True:
                    with suppress(Unavailable):
                        snapshot = await watcher.snapshot()
                        break
                assert set(snapshot.records) == {key("a")}
                iterating = asyncio.create_task(anext(watcher))
                kill(server)
                await until(lambda: watcher.trouble)
                with pytest.raises(Unavailable):
                    await asyncio.wait_for(client.watch().snapshot(), 30)
                assert not iterating.done()  # it rides that out
                server.start()
                Desk(Store.from_url(url)).report("b")
                assert (await iterating).key == key("b")
                kill(server)
                await until(lambda: watcher.trouble)
                at = time.monotonic()
                with pytest.raises(Unavailable):
                    await watcher.changes(300)
                assert 0.29 < time.monotonic() - at < 30  # one turn of an iteration is a minute

        run(main())

    def test_a_damaged_log_is_said_and_then_over(self, desk, store, following):
        async def main():
            async with following() as client, client.watch() as watcher:
                await watcher.snapshot()
                store.client.delete(desk.keys.log)
                store.client.set(desk.keys.log, "text")
                await until(lambda: isinstance(watcher.trouble, Damaged))
                with pytest.raises(Damaged):
                    await watcher.changes(0)
                store.client.delete(desk.keys.log)
                desk.report("a")
                async with asyncio.timeout(SECONDS_MAX):
                    async for change in watcher:
                        if change.key == key("a", ORIGIN):
                            break
                await until(lambda: watcher.trouble is None)

        run(main())
