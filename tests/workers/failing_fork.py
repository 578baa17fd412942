"""Makes a worker whose first fork fails, as where the system has no process left."""

import errno
import os

from tests.workers import engines  # noqa: F401 - its engines are ours
from workers import worker

_fork = worker.fork


def fail(watch, pulse, ride):
    worker.fork = _fork
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


worker.fork = fail
