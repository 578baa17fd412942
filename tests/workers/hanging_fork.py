"""Makes a worker whose horses hang before our code runs in them."""

import time

from tests.workers import engines  # noqa: F401 - its engines are ours
from workers.worker import Worker


def hang(self, job, queue):
    time.sleep(600)


Worker.main_work_horse = hang
