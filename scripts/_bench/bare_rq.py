"""Bare RQ, for comparison: its own worker, as it comes; and the queue it works on.

Run as a program, it is that worker: `bare_rq.py URL`.
"""

from __future__ import annotations

import sys

import bench_engines  # noqa: F401 - before the fork, as our worker imports its engines before the fork
from redis import Redis
from rq import Queue, Worker
from rq.serializers import JSONSerializer

QUEUE = "bench-bare"
DONE = "bench-bare-done"


def signal_done(url: str) -> None:
    """The last job of a block: says that the block is over."""
    with Redis.from_url(url) as client:
        client.rpush(DONE, "1")


class Bare:
    """Blocks of no-ops through bare RQ."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = Redis.from_url(url, socket_timeout=None)  # a block may take long
        self._queue = Queue(QUEUE, connection=Redis.from_url(url), serializer=JSONSerializer)

    def run(self, jobs: int) -> None:
        """Enqueue so many in one call, and wait until the last has run."""
        call = Queue.prepare_data
        block = [
            call("bench_engines.bare_noop", (number,), result_ttl=0, timeout=-1)
            for number in range(jobs - 1)
        ]
        self._queue.enqueue_many([*block, call("bare_rq.signal_done", (self._url,), result_ttl=0)])
        if self._client.blpop([DONE], timeout=120) is None:
            raise TimeoutError("the bare worker does not work")


if __name__ == "__main__":
    connection = Redis.from_url(sys.argv[1])
    queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
    Worker([queue], connection=connection, serializer=JSONSerializer).work(logging_level="WARNING")
