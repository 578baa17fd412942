"""Makes a worker's pulse beat every half millisecond, log as often, and hold a lock that a horse needs as well."""

import logging
import threading

from workers import engine
from workers.pulse import Pulse

#: As some library may have one: it is not reset at a fork.
LOCK = threading.Lock()

make, beat = Pulse.__init__, Pulse._beat


def hurry(self, *arguments):
    make(self, *arguments)
    self._seconds = 0.0005


def beat_aloud(self):
    with LOCK:
        beat(self)
        logging.getLogger("workers").info("beat")


Pulse.__init__, Pulse._beat = hurry, beat_aloud


@engine("locked")
def locked(ctx, payload):
    with LOCK:
        return payload
