"""The threads of an asyncio client: who waits for one, for how long, and what is never made."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from contextlib import asynccontextmanager

import pytest

from broker.aio.calls import THREADS, Calls
from broker.errors import Busy


class Made:
    """What was called, and whether it is still kept by anybody."""

    def __init__(self):
        self.names = []

    def call(self, name):
        return lambda: self.names.append(name)


@pytest.fixture
def made():
    return Made()


@asynccontextmanager
async def held(calls):
    """All threads are taken by calls that nobody answers; gives what lets them go on."""
    answer, begun = threading.Event(), threading.Semaphore(0)

    def call():
        begun.release()
        answer.wait()

    tasks = [asyncio.create_task(calls.run(call)) for _ in range(THREADS)]
    for _ in tasks:
        await asyncio.to_thread(begun.acquire)
    try:
        yield answer
    finally:
        answer.set()
        await asyncio.gather(*tasks)
        await calls.close()


async def waiting(calls, *functions):
    """Tasks of these calls, each of them waiting for a thread."""
    tasks = [asyncio.create_task(calls.run(function)) for function in functions]
    await asyncio.sleep(0)
    return tasks


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_a_call_that_was_cancelled_before_its_turn_is_forgotten_at_once_and_never_made(made):
    async def main():
        calls = Calls()
        async with held(calls):
            functions = [made.call(number) for number in range(100)]
            kept = [weakref.ref(function) for function in functions]
            tasks = await waiting(calls, *functions)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del functions, task, tasks
            while any(one() for one in kept):
                await asyncio.sleep(0.01)  # the loop itself holds what it did last
                gc.collect()
        assert not made.names

    run(main())


def test_any_number_waits_for_as_long_as_it_takes(made):
    async def main():
        calls = Calls()
        async with held(calls) as answer:
            tasks = await waiting(calls, *(made.call(number) for number in range(1_000)))
            answer.set()
            await asyncio.gather(*tasks)
        assert sorted(made.names) == [*range(1_000)]

    run(main())


def test_one_too_many_is_told_so_at_once_and_never_made(made):
    async def main():
        calls = Calls(waiting_max=3)
        async with held(calls) as answer:
            tasks = await waiting(calls, *map(made.call, range(3)))
            with pytest.raises(Busy, match="3 calls wait already"):
                await calls.run(made.call("too many"))
            tasks.pop().cancel()
            await asyncio.sleep(0)
            tasks += await waiting(calls, made.call("in its place"))
            answer.set()
            await asyncio.gather(*tasks)
        assert set(made.names) == {0, 1, "in its place"}

    run(main())


def test_one_that_finds_no_thread_in_time_is_told_so_and_never_made(made):
    async def main():
        calls = Calls(wait_seconds_max=0.1)
        async with held(calls) as answer:
            begun = time.monotonic()
            [task] = await waiting(calls, made.call("late"))
            with pytest.raises(Busy, match=r"all threads for 0.1 s"):
                await task
            assert time.monotonic() - begun >= 0.1
            answer.set()
            while not made.names:  # a thread is free again
                await asyncio.gather(calls.run(made.call("next")), return_exceptions=True)
        assert made.names == ["next"]

    run(main())


@pytest.mark.parametrize("closers", [1, 2])
def test_who_waits_when_it_is_closed_comes_before_the_end(made, closers):
    async def main():
        calls = Calls()
        async with held(calls) as answer:
            tasks = await waiting(calls, *map(made.call, range(20)))
            closing = [asyncio.create_task(calls.close()) for _ in range(closers)]
            await asyncio.sleep(0)
            answer.set()
            await asyncio.gather(*closing)
            assert sorted(made.names) == [*range(20)]
            await asyncio.gather(*tasks)

    run(main())
