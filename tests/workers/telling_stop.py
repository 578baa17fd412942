"""Makes a worker that tells when it has heard an order to end: the file that STOP_HEARD names."""

import os
from pathlib import Path

from tests.workers import engines  # noqa: F401 - its engines are ours
from workers.worker import Worker

_request_stop = Worker.request_stop


def tell(self, signum, frame):
    _request_stop(self, signum, frame)
    Path(os.environ["STOP_HEARD"]).touch()


Worker.request_stop = tell
