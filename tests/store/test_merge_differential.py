"""merge.lua against the ledger: the same events, batched and split at random, leave the same books.

Each event is made of what the ledger knows at that moment, mostly honestly (the attempt that runs, the rev that
stands) and sometimes not, so that the examples reach deep states and every refusal.
"""

from __future__ import annotations

import itertools
import os
from contextlib import closing

import fakeredis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.rules.bounds import Bounds
from broker.rules.event import (
    AHEAD_MS_MAX,
    NUMBER_MAX,
    Finish,
    Guess,
    Intent,
    Lost,
    Place,
    Prune,
    Reassert,
    Remove,
    Report,
    Requeue,
    Start,
    Submit,
    Unplace,
)
from broker.rules.record import Record
from broker.rules.state import STATES
from broker.store.store import Store
from tests.store.readers import patient
from tests.store.twins import NOW, LedgerTwin, RedisTwin, key, pair

#: Two pairs of which each is shared, and an id that a sloppy range would take for the first one's.
JOBS = (
    key("7"),
    key("7", run="r1"),
    key("7", engine="lmstudio"),
    key("a b/%", run="{x}"),
    key("a b/%"),
    key("70"),
)
NODES = ("", "node-a", "node-b")
NOBODY = Record(kind="", state="queued")

KINDS = ("report", "submit", "place", "start", "finish", "reassert", "unplace", "guess", "requeue", "lost",
         "intent", "prune", "remove", "pair", "again")  # fmt: skip

small = st.integers(0, 11)
step = st.tuples(
    st.sampled_from(["next"] * 30 + ["report"] * 3 + ["beat"] * 2 + [*KINDS]),
    st.sampled_from([0] * 10 + [1] * 5 + [2, 2, 3, 4, 5]),  # of JOBS
    small,
    small,
    small,
    st.sampled_from(
        [0, 0, 0, 1, 1, 40, 200, 8 * 86_400_000]
    ),  # ms until the next call; 0: same call
)


def next_kind(record, a, b):
    """What may well happen to a job that stands so."""
    if record is None:
        kinds = ("submit", "submit", "report")
    elif record.kind == "reported":
        kinds = ("report", "report", "report", "guess", "prune")
    elif record.inferred:
        kinds = ("requeue", "lost", "requeue", "reassert", "finish", "intent", "lost")
    elif record.state == "queued":
        kinds = ("start", "start", "start", "unplace", "intent") if record.node else ("place",)
    else:
        kinds = ("finish", "guess", "guess", "remove", "intent", "prune")
    return kinds[(a + b) % len(kinds)]


def make_event(step, record, now, sent):
    """One event of six small numbers; `a` below 10 is the honest form where there is one."""
    kind, job, a, b, c, _ = step
    if kind == "next":
        kind = next_kind(record, a, b)
    key = JOBS[job]
    known = record or NOBODY
    honest = a < 10
    rev = (known.rev if honest else "1-0") if sent else ""
    told = {"key": key, "event_id": f"e{b}" if b < 3 else "", "by": f"me {c}"}
    created_at = known.created_at if honest and record else NOW + b % 3
    attempt = known.attempt if honest else known.attempt + 1
    holder = known.holder if honest else "h9"
    term = 11 if honest else c
    seen_at = known.last_seen if honest else now
    if kind == "report":
        seqs = (0, 0, known.seq + 1, known.seq + 1, known.seq, 1, 2)
        seqs += (3, 4, NUMBER_MAX, -1, NUMBER_MAX + 1)
        times = (1000, 1000, 2000, *[known.created_at or 1000] * 6, known.created_at + 1, now, 3000)
        odd_times = (0, now + AHEAD_MS_MAX, now + AHEAD_MS_MAX + 1)
        return Report(
            **told,
            created_at=times[b] if honest else odd_times[c % 3],
            state=(*STATES, *STATES, "queued", "lost")[c],
            seq=seqs[(a + c) % 10 if honest else a],
            node=NODES[b % 3],
            started_at=c,
            completed_at=b * 1000,
            error=f"e{c}" if c == 4 else "",
            model="m" if c == 5 else "",
            resync=c == 7,
            stale_after=(NUMBER_MAX + 1 if b > 7 else b * 1000) if c == 6 else 0,
            extras="{}" if c == 8 else "",
            full='"all"' if c == 9 else "",
        )
    if kind == "submit":
        return Submit(
            **told,
            created_at=NOW + (a - 4) * 10,
            digest=f"d{a % 2}",
            attempts=1 + b % 3,
            priority=c * 20 - 100,
            at_most_once=b == 3,
            due=now + b * 30 if b > 6 else 0,
            spec='{"payload":1}',
        )
    if kind == "place":
        return Place(**told, node=NODES[1 + c % 2], rev=rev, term=term)
    if kind == "start":
        node = known.node if honest else "node-b"
        told |= {"node": node, "holder": f"h{c % 2}", "worker": "w"}
        return Start(**told, created_at=created_at, attempt=attempt)
    if kind == "finish":
        return Finish(
            **told,
            created_at=created_at,
            attempt=attempt,
            holder=holder,
            state=("failed", "completed", "failed", "cancelled")[b % 4],
            error="broke",
            reason="boom",
            result="1" if c % 2 else "",
            retryable=b % 3 == 0,
            died=c > 5,
            due=now + 50 if c % 3 else 0,
        )
    if kind == "reassert":
        return Reassert(**told, created_at=created_at, attempt=attempt, holder=holder)
    if kind == "guess":
        return Guess(**told, rev=rev, last_seen=seen_at, term=term, error="silent")
    if kind == "requeue":
        return Requeue(**told, rev=rev, term=term, due=now + 50 if c % 3 else 0)
    if kind in {"unplace", "lost"}:
        return {"unplace": Unplace, "lost": Lost}[kind](**told, rev=rev, term=term)
    if kind == "prune":
        return Prune(**told, rev=rev, last_seen=seen_at, term=term)
    if kind == "intent":
        return Intent(**told, desired=("cancel", "remove", "run")[c % 3], force=a == 0)
    removed_at = (0, 0, 0, 1000, 2000, known.created_at, known.created_at - 1, now)
    removed_at += (NOW, -1, now + AHEAD_MS_MAX + 1, NUMBER_MAX + 1)
    if kind == "remove":
        as_seen = rev if b % 3 == 0 else ""
        return Remove(**told, removed_at=removed_at[c], force=a == 0, rev=as_seen)
    if kind == "pair":
        del told["key"]
        return pair(key.id, **told, removed_at=removed_at[c], force=a == 0)
    return sent[(a * 12 + b) % len(sent)] if sent else Remove(key=key)


def beat(ledger, server, key, now):
    """A holder's beat moves last_seen outside the log, as `beat.lua` does."""
    record = ledger.record(key)
    if record and record.holder and record.believed == "running":
        for twin in (ledger, server):
            twin.overwrite(key, last_seen=now)


def run_both(steps, bounds, server):
    """Tell both twins the same; the ledger event by event, the server in calls split where a step says so."""
    ledger = LedgerTwin(bounds)
    sent, waiting, expected, answers = [], [], [], []

    def flush():
        if waiting:
            answers.extend(server.tell(waiting))
            waiting.clear()

    for step in steps:
        now = ledger.clock.now()
        if step[0] == "beat":
            flush()
            beat(ledger, server, JOBS[step[1]], now)
            continue
        event = make_event(step, ledger.record(JOBS[step[1]]), now, ledger.ledger.log and sent)
        if waiting and getattr(event, "rev", ""):
            flush()  # it names a rev, which the server has to have given before
        sent.append(event)
        waiting.append(event)
        expected += ledger.apply([event])
        if step[-1]:
            flush()
            ledger.clock.time = server.clock.time = now + step[-1]
    flush()
    assert server.in_ordinals(answers) == expected
    assert server.books() == ledger.books()


LOW = Bounds(tombstones_max=2, answers_max=3, answers_ms_min=60, silence_ms_max=50)
bounds = st.sampled_from([Bounds(), LOW])
namespaces = itertools.count(1)


@pytest.fixture(scope="module")
def client(redis_url):
    """One connection for all examples."""
    with closing(Store.from_url(patient(redis_url))) as store:
        yield store.client


@given(steps=st.lists(step, min_size=10, max_size=40), bounds=bounds)
def test_both_twins_leave_the_same_books(client, steps, bounds):
    store = Store(client, f"d{os.getpid()}-{next(namespaces)}")
    run_both(steps, bounds, RedisTwin(store, bounds))


@settings(max_examples=max(20, settings.default.max_examples // 20))
@given(steps=st.lists(step, min_size=10, max_size=40), bounds=bounds)
def test_the_same_script_runs_on_fakeredis(steps, bounds):
    run_both(steps, bounds, RedisTwin(Store(fakeredis.FakeRedis()), bounds))
