"""Many readers under load: each sees the accepted order, and a slow one delays nobody."""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from broker import Gone
from tests.store.readers import ORIGIN, report
from tests.system.subscriber import Ledger, log_revs
from tests.workers.fleet import until

THREADS = 16
#: Events a call, so that threads interleave often.
BATCH = 5
#: How long a whole load may take: it catches a hang, and no slow machine.
SECONDS_MAX = 600


class WatchingReader:
    """A watcher in a thread; calls a function with each change."""

    def __init__(self, broker, told):
        self.watcher = broker.watch([ORIGIN])
        self.watcher.snapshot()
        self.told = told
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.watcher._is_closed:
            for change in self.watcher.changes(60_000):
                self.told(change)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.watcher.close()
        self.thread.join()


@pytest.mark.parametrize("count", [25, 10_000])
def test_sixteen_threads_of_one_origin_are_read_in_the_accepted_order(broker, count):
    def send(thread):
        mine = [f"{thread}-{number}" for number in range(thread, count, THREADS)]
        ready.wait()
        for at in range(0, len(mine), BATCH):
            broker.view.apply([report(id) for id in mine[at : at + BATCH]])

    ready = threading.Barrier(THREADS)
    ledgers, seen = [Ledger(), Ledger()], []
    broker.view.apply([report("before")])
    with (
        broker.subscribe("one", ledgers[0]),
        broker.subscribe("other", ledgers[1]),
        WatchingReader(broker, seen.append),
        ThreadPoolExecutor(THREADS) as pool,
    ):
        list(pool.map(send, range(THREADS)))
        until(lambda: len(seen) == count, SECONDS_MAX)
        for ledger in ledgers:
            until(lambda ledger=ledger: len(ledger.told) == count + 1, SECONDS_MAX)
    accepted = log_revs(broker)
    assert len(accepted) == count + 1
    for ledger in ledgers:
        assert ledger.revs() == accepted
    assert [change.record.rev for change in seen] == accepted[1:]
    for thread in range(THREADS):
        numbers = [int(id.partition("-")[2]) for id in ledger.ids if id.startswith(f"{thread}-")]
        assert numbers == sorted(numbers)


# --- eight readers and a slow one ----------------------------------------------------------------------------------

EVENTS, ROUNDS = 10_000, 20
GROUPS, WATCHERS = 3, 5
READERS = GROUPS + WATCHERS
#: How much longer the others' lag may be while the slow one reads.
RATIO_MAX = 2.0


class Lags:
    """How long after it was sent each event reached each reader, in one round."""

    def __init__(self):
        self.sent = {}
        self.told = []

    def seen(self, one):
        self.told.append(time.monotonic() - self.sent[one.key.id])

    @property
    def mean(self):
        return statistics.fmean(self.told)


def test_a_reader_of_two_seconds_an_event_delays_nobody_and_is_told_all(broker, record_property):
    rounds = {"undisturbed": [], "disturbed": []}
    lags, slow_told, gone = [Lags()], [], []
    others_done = threading.Event()

    def slow(delivery):
        slow_told.append(delivery.rev)
        others_done.wait(2)

    def seen(one):
        lags[-1].seen(one)

    broker.view.apply([report("before", "completed")])
    with ExitStack() as stack:
        lags[0].sent["before"] = time.monotonic()
        for number in range(GROUPS):
            stack.enter_context(broker.subscribe(f"g{number}", seen))
        until(lambda: len(lags[0].told) == GROUPS)
        for _ in range(WATCHERS):
            stack.enter_context(WatchingReader(broker, seen))
        for turn in range(ROUNDS):
            phase, now = ("undisturbed", "disturbed")[turn % 2], Lags()
            lags.append(now)
            with ExitStack() as slow_one:
                if phase == "disturbed":
                    others_done.clear()
                    before = len(slow_told)
                    subscription = broker.subscribe("slow", slow, on_gone=gone.append)
                    slow_one.enter_context(subscription)
                    slow_one.callback(others_done.set)  # but it begins no other event by then
                    slow_one.callback(subscription.close)
                    until(lambda before=before: len(slow_told) > before)  # it is in its two seconds
                for number in range(EVENTS // ROUNDS):  # one by one: the readers can keep up
                    now.sent[f"{turn}-{number}"] = time.monotonic()
                    broker.view.apply([report(f"{turn}-{number}")])
                until(lambda now=now: len(now.told) == READERS * EVENTS // ROUNDS, SECONDS_MAX)
            rounds[phase].append(now.mean)
    # Each beside its neighbour: whatever else this machine does meets both alike.
    ratios = [after / before for before, after in zip(*rounds.values(), strict=True)]
    figures = f"disturbed lag by undisturbed: {[round(one, 2) for one in ratios]}"
    record_property("lag", figures)
    print(figures)
    assert statistics.median(ratios) <= RATIO_MAX, figures

    behind = EVENTS + 1 - len(slow_told)
    assert behind > EVENTS / 2  # it was slow indeed
    with broker.subscribe("slow", slow, on_gone=gone.append):
        until(lambda: gone or len(slow_told) == EVENTS + 1, SECONDS_MAX)
    assert (slow_told == log_revs(broker)) or [type(one) for one in gone] == [Gone]
