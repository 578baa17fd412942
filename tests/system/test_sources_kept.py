"""What the source document on job identity says of a list that is kept: through a restart, and not for ever.

Not here, for they come with joining: a history that is sent to others (48 among peers). Not here at all: 37, 38, 41-43
and 45 (files of ended jobs, written now and then, with their backups: Redis keeps every record, and its own files).
"""

from __future__ import annotations

import os
import signal

import pytest

from broker.client import Broker
from broker.config import settings
from broker.roles.janitor import Janitor
from broker.rules.bounds import Bounds
from broker.rules.event import Guess
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.clock import StillClock
from tests.store.twins import key
from tests.system.sources import frame


@pytest.fixture
def born(tmp_path, namespace):
    """Gives a broker, and each time it is asked again one after Redis was killed and started anew."""
    made = []
    options = {"appendonly": "yes", "appendfsync": "always"}
    with PrivateRedis(tmp_path, options=options) as server:

        def bear():
            if made:
                os.kill(server.pid, signal.SIGKILL)
                server.stop()
                server.start()
            made.append(Broker(Store.from_url(server.url, namespace), settings(node="desk")))
            return made[-1]

        yield bear
        for one in made:
            one.close()


def test_27_numbers_survive_a_restart(born):
    assert born().report(frame("running", "a", 7)).rule == "first_sighting"
    later = born()
    assert later.report(frame("queued", "a", 6)).rule == "stale_seq"
    assert later.report(frame("completed", "a", 8)).rule == "higher_seq"


def test_44_a_guess_survives_as_a_guess_and_still_yields(born):
    broker = born()
    broker.report(frame("running", "a", 2))
    record = broker.get(key())
    guess = Guess(key=key(), rev=record.rev, last_seen=record.last_seen, term=1, error="silent")
    assert broker.view.apply([guess])[0].rule == "guess_applied"
    later = born()
    assert later.get(key()).inferred
    assert later.report(frame("running", "a", 2, resync=True)).rule == "guess_cleared"


def test_46_an_end_that_was_answered_just_before_redis_died_is_kept(born):
    broker = born()
    broker.report(frame("running", "a", 1))
    assert broker.report(frame("completed", "a", 2)).applied
    later = born()
    assert later.get(key()).state == "completed"
    assert later.report(frame("completed", "a", 2)).rule == "no_change"


def test_39_of_too_many_ended_jobs_the_oldest_goes_and_does_not_come_back(broker):
    now = broker.store.clock.now()
    for id, state in enumerate(("completed", "failed", "cancelled", "running")):
        broker.report(frame(state, "a", 1, id=str(id), completedAt=now - 100 + id))
    tidy(broker, done_max=2)
    assert [job.key.id for job in broker.jobs()] == ["1", "2", "3"]
    assert broker.report(frame("running", "a", 2, id="0")).rule == "tombstoned"


def test_40_what_ended_too_long_ago_goes_and_what_lives_stays(broker):
    clock = broker.store.clock = StillClock(broker.store.clock)
    broker.report(frame("completed", "a", 1, id="0"))
    broker.report(frame("running", "a", 1, id="2"))
    clock.ahead_ms += 9_000
    broker.report(frame("failed", "a", 1, id="1"))
    tidy(broker, done_ms_max=5_000)
    assert [job.key.id for job in broker.jobs()] == ["1", "2"]


def tidy(broker, **bounds):
    janitor = Janitor(broker.store, bounds=Bounds(**bounds))
    while janitor.step():
        pass
    janitor.close()
