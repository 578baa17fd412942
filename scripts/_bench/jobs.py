"""Jobs a second, end to end: submit, place, hand over, start, fork, finish; against bare RQ, which only forks.

One worker process each, both alive all the time; blocks of no-ops alternate. Bare RQ gets its whole block at once; ours
binds late, a job for each free slot, and writes four log entries for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bare_rq import Bare
from tools import Row, in_turns, ratios, timed

from broker import Broker, Misconfigured
from broker.store.leash import leashed

HERE = Path(__file__).resolve().parent
JOBS = 50  # of a block
NAMESPACE = "jobs"
START_SECONDS_MAX = 30.0


@contextmanager
def running(*commands: Sequence[str], environment: dict[str, str]) -> Iterator[None]:
    """These programs as children, ended one after the other, the last first."""
    children = []
    try:
        for words in commands:
            child = subprocess.Popen(
                leashed(words, signal.SIGKILL),
                cwd=HERE,
                env=environment,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us: we end them, in order
            )
            children.append(child)
        yield
    finally:
        for child in reversed(children):
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def rows(url: str, *, rounds: int) -> list[Row]:
    """The figures."""
    environment = os.environ | {"REDIS_URL": url, "BROKER_NAMESPACE": NAMESPACE}
    # Of warnings there is one, which is known: that this Redis forgets.
    environment |= {"BROKER_NODE": "bench", "BROKER_LOG_LEVEL": "error", "BROKER_LISTEN": "off"}
    broker = [sys.executable, "-P", "-m", "broker.cli"]
    with (
        running(
            [*broker, "serve", "--allow-volatile"],
            [*broker, "worker", "--engine", "noop", "--slots", "1", "--import", "bench_engines"],
            [sys.executable, "bare_rq.py", url],
            environment=environment,
        ),
        Broker.from_url(url, namespace=NAMESPACE, node="bench") as ours,
    ):
        _await_worker(ours)
        bare = Bare(url)
        slices = {
            "ours": lambda _: JOBS / timed(lambda: _block(ours)),
            "bare": lambda _: JOBS / timed(lambda: bare.run(JOBS)),
        }
        found = in_turns(slices, rounds)
        latencies = [_latency_ms(ours) for _ in range(5 * rounds)]
    return [
        Row("jobs_to_rq", ratios(found["ours"], found["bare"]), "x", "no-ops to bare RQ, one worker each", ">= 0.9"),
        Row("jobs_rate", found["ours"], "jobs/s", "no-ops end to end, one worker"),
        Row("rq_rate", found["bare"], "jobs/s", "no-ops through bare RQ, one worker"),
        Row("start_latency_ms", latencies, "ms", "from submit to start, idle fleet"),
    ]  # fmt: skip


def _block(ours: Broker) -> None:
    """One slot runs them in the order of their submission: the last one ends last."""
    jobs = ours.submit_many("noop", range(JOBS), origin="bench")
    jobs[-1].wait(120)


def _latency_ms(ours: Broker) -> float:
    job = ours.submit("noop", origin="bench")
    record = job.wait(30)
    assert record
    return record.started_at - record.created_at


def _await_worker(ours: Broker) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not ours.workers():
        if time.monotonic() > deadline:
            raise Misconfigured("no worker appeared")
        time.sleep(0.05)
