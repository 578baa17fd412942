"""JobEvents on the ledger: order under the job's lock, one terminal, and what happens while Redis is away."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from itertools import count

import pytest

from broker.errors import Invalid, Unavailable
from broker.jobs import reported
from broker.jobs.outcome import Outcome
from broker.producer import AsyncJobEvents, JobEvents
from broker.rules.event import Remove
from broker.rules.ledger import Ledger

engines = (f"engine-{n}" for n in count())


class Books:
    """A broker on the ledger. It can be away, or take an event and lose the reply."""

    def __init__(self):
        self.ledger = Ledger()
        self.calls = 0
        self.heard = []
        self.away = False
        self.lose_replies = 0
        self.broken = None
        self.gate = threading.Event()
        self.gate.set()
        self._lock = threading.Lock()

    def report(self, event):
        self.calls += 1
        return self._take(event)

    def _take(self, event):
        assert self.gate.wait(60)
        with self._lock:
            if self.broken:
                raise self.broken
            if self.away:
                raise Unavailable("away")
            self.heard.append(event)
            answer = self.ledger.apply(event, int(time.time() * 1000))
            if self.lose_replies:
                self.lose_replies -= 1
                raise Unavailable("the reply was lost")
            return Outcome.of(event.key, answer)

    def record(self, job):
        return self.ledger.records.get(job.key)

    def log(self, job):
        return [
            (entry.record.seq, entry.record.state, entry.record.node)
            for entry in self.ledger.log
            if entry.job == job.key.job and entry.record
        ]


class AsyncBooks(Books):
    async def report(self, event):
        self.calls += 1
        while not self.gate.is_set():  # noqa: ASYNC110 - the gate is a thread's
            await asyncio.sleep(0.001)
        return self._take(event)


@pytest.fixture
def books():
    return Books()


@pytest.fixture
def make(books):
    """JobEvents whose keeper does not interfere, unless a test asks for one."""
    made = []

    def make(**options):
        defaults = {"origin": "desk", "retry_seconds": 600.0}
        made.append(JobEvents(books, next(engines), **(defaults | options)))
        return made[-1]

    yield make
    books.away = False
    books.broken = None
    for events in made:
        events.close(timeout=5)


@pytest.fixture
def events(make):
    return make()


def eventually(holds, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.002)


class TestIdentity:
    def test_ids_count_from_1_within_one_run(self, events):
        first, second = events.create(), events.create()
        assert [first.key.id, second.key.id] == ["1", "2"]
        assert first.key.run == second.key.run != ""
        assert first.key.origin == "desk"

    def test_two_job_events_of_one_engine_never_share_an_id(self, books, events):
        again = JobEvents(books, events.engine, origin="desk", retry_seconds=600.0)
        ids = {events.create().key, again.create().key, events.create().key}
        assert len(ids) == 3
        again.close()

    def test_a_new_incarnation_counts_from_1_under_a_new_run(self, events):
        before = events.create()
        reported._process.renew()  # what a fork does in the child
        after = events.create()
        assert after.key.id == before.key.id == "1"
        assert after.key.run != before.key.run
        assert events.live == [after]

    def test_a_forked_child_is_another_incarnation(self):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, reported._process.run.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 99).decode() != reported._process.run
        os.close(read)
        os.close(write)

    def test_the_origin_is_the_brokers_own_node_unless_told(self, books):
        books.config = type("Config", (), {"node": "my-node"})
        events = JobEvents(books, "e")
        assert events.origin == "my-node"

    @pytest.mark.parametrize("engine, origin", [("", "desk"), ("e", "Not A Name")])
    def test_names_out_of_bounds_are_refused_at_once(self, books, engine, origin):
        with pytest.raises(Invalid):
            JobEvents(books, engine, origin=origin)


class TestOrder:
    def test_each_event_is_written_as_it_happens(self, books, events):
        job = events.create(model="m", requester="me")
        assert events.dispatch(job, "a") == 1
        assert events.start(job, "a", attempt=1)
        assert events.finish(job, "completed")
        assert books.log(job) == [
            (1, "queued", ""), (2, "queued", "a"), (3, "running", "a"), (4, "completed", "a")
        ]  # fmt: skip
        assert (books.record(job).model, books.record(job).requester) == ("m", "me")
        assert events.live == []

    def test_what_is_no_news_is_neither_numbered_nor_written(self, books, events):
        job = events.create()
        assert events.dispatch(job, "a") == 1
        assert not events.repoint(job, "a")
        assert events.dispatch(job, "a") == 2
        assert not events.start(job, attempt=1)
        assert [event.seq for event in books.heard] == [1, 2]

    def test_numbering_and_writing_are_one_step_so_no_other_thread_comes_between(
        self, books, events
    ):
        job = events.create()
        books.gate.clear()
        threads = [
            threading.Thread(target=call)
            for call in (
                lambda: events.dispatch(job, "a"),
                lambda: events.finish(job, "cancelled", "the client went away"),
                lambda: events.repoint(job, "b"),
            )
        ]
        for thread in threads:
            thread.start()
        assert len(books.heard) == 1
        books.gate.set()
        for thread in threads:
            thread.join(60)
        assert [event.seq for event in books.heard] == list(range(1, len(books.heard) + 1))
        assert books.heard[-1].state == "cancelled"
        assert books.record(job).state == "cancelled"

    def test_however_often_and_from_wherever_it_is_finished_one_terminal_is_written(
        self, books, events
    ):
        job = events.create()
        states = ["completed", "failed", "cancelled"] * 6
        told = []
        threads = [
            threading.Thread(target=lambda state=state: told.append(events.finish(job, state)))
            for state in states
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(told) == [False] * 17 + [True]
        assert len(books.log(job)) == 2

    def test_for_no_job_nothing_is_done(self, books, events):
        assert events.dispatch(None, "a") == 0
        assert not events.repoint(None, "b")
        assert not events.start(None)
        assert not events.finish(None, "failed")
        assert books.heard == []

    def test_a_refused_event_is_handled_and_a_removed_job_no_longer_looked_after(
        self, books, events, caplog
    ):
        job = events.create()
        books.ledger.apply(Remove(key=job.key), int(time.time() * 1000))
        events.dispatch(job, "a")
        assert "tombstoned" in caplog.text
        assert events.live == []
        assert books.record(job) is None


class TestResync:
    def test_live_jobs_are_reasserted_with_their_last_word_and_its_number(self, books, make):
        events = make(resync_seconds=0.0)
        job, ended = events.create(), events.create()
        events.dispatch(job, "a")
        events.finish(ended)
        del books.heard[:]
        assert events.step() == 1
        [again] = books.heard
        assert (again.resync, again.seq, again.state, again.node) == (True, 2, "queued", "a")
        assert (books.record(job).seq, books.record(job).sightings) == (2, 1)

    def test_not_before_their_time(self, books, events):
        events.create()
        assert events.step() == 0

    def test_the_keeper_does_it_by_itself_until_it_is_closed(self, books, make):
        events = make(resync_seconds=0.0, retry_seconds=0.005)
        events.create()
        eventually(lambda: len(books.heard) > 3)
        assert events.close() == 0
        heard = len(books.heard)
        assert events.step() == 0
        assert (len(books.heard), events._keeper.is_alive()) == (heard, False)

    def test_the_keeper_survives_what_it_did_not_expect(self, books, make, caplog):
        events = make(resync_seconds=0.0, retry_seconds=0.005)
        books.broken = None
        events.create()
        books.broken = RuntimeError("a bug")
        eventually(lambda: "a bug" in caplog.text)
        books.broken = None
        heard = len(books.heard)
        eventually(lambda: len(books.heard) > heard)


class TestAway:
    def test_events_wait_with_their_numbers_and_are_written_in_order_once_redis_is_back(
        self, books, events
    ):
        job = events.create()
        books.away = True
        assert events.dispatch(job, "a") == 1
        assert events.start(job)
        assert events.finish(job, "completed")
        assert [event.seq for event in books.heard] == [1]
        assert events.step() == 0
        books.away = False
        assert events.step() == 3
        assert [seq for seq, *_ in books.log(job)] == [1, 2, 3, 4]
        assert events.live == []

    def test_even_the_first_word_may_wait(self, books, events):
        books.away = True
        job = events.create()
        assert events.live == [job]
        books.away = False
        assert events.step() == 1
        assert books.record(job).state == "queued"

    def test_an_event_whose_reply_was_lost_is_applied_once(self, books, events):
        job = events.create()
        books.lose_replies = 1
        events.dispatch(job, "a")
        events.start(job)
        assert events.step() == 2
        assert [seq for seq, *_ in books.log(job)] == [1, 2, 3]
        assert books.record(job).state == "running"

    def test_only_the_call_that_meets_the_failure_pays_for_it(self, books, events):
        first, second = events.create(), events.create()
        books.away = True
        events.dispatch(first, "a")
        books.gate.clear()  # from here on, whoever calls the broker would hang
        events.start(first)
        events.dispatch(second, "b")
        books.gate.set()
        books.away = False
        assert events.step() == 3

    def test_the_keeper_asks_once_for_all_jobs_whether_redis_is_back(self, books, events):
        books.away = True
        for _ in range(3):
            events.create()
        before = books.calls
        assert events.step() == 0
        assert books.calls == before + 1

    def test_after_the_keeper_got_through_events_are_written_at_once_again(self, books, make):
        events = make(retry_seconds=0.005)
        job = events.create()
        books.away = True
        events.dispatch(job, "a")
        books.away = False
        eventually(lambda: not job.waiting)
        events.start(job)
        assert books.record(job).state == "running"

    def test_too_many_events_of_a_job_cost_the_oldest_never_the_last_word(self, books, events):
        job = events.create()
        books.away = True
        for n in range(reported.EVENTS_WAITING_MAX + 20):
            events.dispatch(job, f"n{n}")
        events.finish(job, "completed")
        assert len(job.waiting) == reported.EVENTS_WAITING_MAX
        books.away = False
        events.step()
        seqs = [seq for seq, *_ in books.log(job)]
        assert seqs == sorted(seqs)
        assert books.record(job).state == "completed"

    def test_too_many_waiting_jobs_are_said_to_the_caller(self, books, events, monkeypatch):
        monkeypatch.setattr(reported, "JOBS_WAITING_MAX", 2)
        books.away = True
        events.create()
        events.create()
        with pytest.raises(Unavailable, match="2 jobs wait"):
            events.create()

    def test_a_failure_that_no_retry_mends_is_said_to_the_caller_and_blocks_nothing(
        self, books, events
    ):
        job = events.create()
        books.broken = Invalid("a value is out of its bounds")
        with pytest.raises(Invalid):
            events.dispatch(job, "a")
        books.broken = None
        assert events.start(job)
        assert [event.seq for event in books.heard] == [1, 3]

    def test_close_writes_what_waits(self, books, events):
        job = events.create()
        books.away = True
        events.finish(job, "failed", "boom")
        books.away = False
        assert events.close() == 0
        assert (books.record(job).state, books.record(job).error) == ("failed", "boom")

    def test_close_gives_up_in_time_and_says_what_is_left(self, books, events):
        job = events.create()
        books.away = True
        events.dispatch(job, "a")
        events.finish(job)
        assert events.close(timeout=0.05) == 2
        books.away = False
        assert events.close() == 0

    def test_after_close_an_event_is_still_written(self, books, events):
        job = events.create()
        books.away = True
        events.dispatch(job, "a")
        events.close(timeout=0.0)
        books.away = False
        events.finish(job, "cancelled")
        assert [seq for seq, *_ in books.log(job)] == [1, 2, 3]


class TestAsyncio:
    @pytest.fixture(params=[Books, AsyncBooks])
    def books(self, request):
        """AsyncJobEvents take either form of a broker."""
        return request.param()

    @staticmethod
    def run(story):
        asyncio.run(asyncio.wait_for(story, 100))

    def test_it_tells_the_same_story(self, books):
        async def story():
            async with AsyncJobEvents(books, next(engines), origin="desk") as events:
                job = await events.create(model="m")
                assert await events.dispatch(job, "a") == 1
                assert not await events.repoint(job, "a")
                assert await events.start(job, "a", attempt=1)
                assert not await events.start(job)
                assert await events.finish(job, "failed", "boom")
                assert not await events.finish(job)
                assert [seq for seq, *_ in books.log(job)] == [1, 2, 3, 4]
                assert (await events.dispatch(None, "a"), await events.finish(None)) == (0, False)
                assert await events.dispatch(job, "b") == 0
                assert events.live == []

        self.run(story())

    def test_concurrent_calls_are_written_in_the_order_of_their_numbers(self, books):
        async def story():
            async with AsyncJobEvents(books, next(engines), origin="desk") as events:
                job = await events.create()
                await asyncio.gather(
                    *(events.dispatch(job, f"n{n}") for n in range(8)),
                    *(events.finish(job, state) for state in ("cancelled", "failed")),
                )
                assert [event.seq for event in books.heard] == list(range(1, 11))
                assert books.record(job).state == "cancelled"

        self.run(story())

    def test_events_wait_while_redis_is_away(self, books):
        async def story():
            async with AsyncJobEvents(books, next(engines), retry_seconds=600.0, origin="desk") as events:  # fmt: skip
                books.away = True
                job = await events.create()
                await events.dispatch(job, "a")
                await events.finish(job)
                assert (books.heard, await events.step()) == ([], 0)
                books.away = False
                assert await events.step() == 3
                assert [seq for seq, *_ in books.log(job)] == [1, 2, 3]

        self.run(story())

    def test_cancelling_the_caller_neither_loses_nor_repeats_its_event(self, books):
        async def story():
            async with AsyncJobEvents(books, next(engines), origin="desk") as events:
                job = await events.create()
                books.gate.clear()
                caller = asyncio.create_task(events.finish(job, "cancelled"))
                await asyncio.to_thread(eventually, lambda: books.calls == 2)
                caller.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await caller
                books.gate.set()
            assert [(event.seq, event.state) for event in books.heard][1:] == [(2, "cancelled")]

        self.run(story())

    def test_the_keeper_reasserts_until_it_is_closed(self, books):
        async def story():
            events = AsyncJobEvents(
                books, next(engines), origin="desk", resync_seconds=0.0, retry_seconds=0.005
            )
            await events.create()
            await asyncio.to_thread(eventually, lambda: len(books.heard) > 3)
            assert books.heard[-1].resync
            assert await events.close() == 0
            assert events._keeper.done()

        self.run(story())

    def test_a_word_dropped_while_it_is_being_written_takes_no_other_with_it(
        self, books, monkeypatch
    ):
        monkeypatch.setattr(reported, "EVENTS_WAITING_MAX", 1)

        async def story():
            async with AsyncJobEvents(books, next(engines), origin="desk") as events:
                job = await events.create()
                books.gate.clear()
                first = asyncio.create_task(events.dispatch(job, "a"))
                await asyncio.to_thread(eventually, lambda: books.calls == 2)
                last = asyncio.create_task(events.finish(job))
                await asyncio.sleep(0)
                books.gate.set()
                await asyncio.gather(first, last)
                assert [event.seq for event in books.heard] == [1, 2, 3]

        self.run(story())
