"""Makes a worker whose jobs are cancelled after their start, just before their horses are forked."""

import os

from broker.rules.event import Intent
from broker.store.view import View
from tests.workers import engines  # noqa: F401 - its engines are ours
from workers import worker

_fork = worker.fork


def cancel_and_fork(watch, pulse, ride):
    wish = Intent(key=watch.holder.key, force="CANCEL_FORCE" in os.environ)
    [answer] = View(watch.holder._store).apply([wish])
    assert answer.outcome == "applied", answer
    return _fork(watch, pulse, ride)


worker.fork = cancel_and_fork
