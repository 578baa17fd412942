"""What a dispatcher knows when it says that it knows all."""

from __future__ import annotations

from contextlib import closing

import pytest
import redis

from broker.errors import Unavailable
from broker.roles.office import Office
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.system.sources import Moments

ORIGINS = [f"node-{number}" for number in range(6)]


@pytest.fixture
def office(redis_url, namespace):
    with closing(Store.from_url(redis_url, namespace)) as store, closing(Office(store)) as office:
        yield office


def cut_off():
    raise redis.ConnectionError("cut off")


def test_no_part_of_the_list_is_taken_for_the_whole(fleet, redis_url, namespace, monkeypatch):
    """It is cut off at each call in turn, and told some origins only: then it asks on."""
    for origin in ORIGINS:
        fleet.submit("a", origin=origin)
    asked = []

    def ask(watcher, wait_ms, changes=Watcher.changes):
        asked.append(watcher)
        return changes(watcher, wait_ms)

    monkeypatch.setattr(Watcher, "changes", ask)
    for number in range(100):
        with closing(Store.from_url(redis_url, namespace)) as store:
            moments = Moments(store, monkeypatch)
            with closing(Office(store)) as office:
                moments.before(number, cut_off)
                try:
                    assert office.follow(0)
                except Unavailable:
                    continue
                assert len(office.load) == len(ORIGINS)
                if moments._acts:
                    break  # it was not cut off any more
    assert sum(asked.count(watcher) > 1 for watcher in set(asked)) > len(ORIGINS)


def test_what_the_bell_brought_needs_no_second_look(fleet, office, monkeypatch):
    fleet.submit("a", origin=ORIGINS[0])
    assert office.follow(0)
    key = fleet.submit("b", origin=ORIGINS[0])
    assert office.wait(60)
    monkeypatch.setattr(office._watcher, "changes", lambda wait_ms: pytest.fail("it looked"))
    assert office.follow(0)
    assert office.load.get(key)
