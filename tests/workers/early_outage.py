"""Makes a worker whose Redis goes away after its first beat: RQ cannot note its birth. The words are redis-py's."""

import redis
from rq.worker import BaseWorker

from tests.workers import engines  # noqa: F401 - its engines are ours


def fail(self):
    raise redis.ConnectionError("Error 111 connecting to h:6379. Connection refused.")


BaseWorker.register_birth = fail
