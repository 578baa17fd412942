"""What a watcher is told when Redis itself is killed and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from broker.errors import Unavailable
from broker.rules.replay import fold
from broker.store.log import Log
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import (
    ORIGIN,
    Desk,
    blocked,
    changes_until,
    kill,
    logged,
    patient,
    until,
)


def test_redis_killed_and_restarted_with_its_log_goes_on_where_it_was(server):
    store = Store.from_url(patient(f"redis://127.0.0.1:{server.port}"))
    desk = Desk(store)
    desk.report("a")
    with Watcher(store) as watcher, ThreadPoolExecutor() as pool:
        watcher.snapshot()
        waiting = pool.submit(watcher.changes, 60_000)
        until(lambda: blocked(store))
        kill(server)
        with pytest.raises(Unavailable):
            waiting.result()
        with pytest.raises(Unavailable):
            watcher.changes(60_000)
        server.start()
        desk.report("b")
        told = watcher.changes(60_000)
        assert [(change.key.id, change.synthesized) for change in told] == [("b", False)]
        records = watcher.records
        assert logged(records) == logged(fold(ORIGIN, Log(store, ORIGIN).entries()))
        assert logged(records) == logged(desk.records())
    store.close()


def test_redis_restarted_without_its_data_is_listed_anew(server):
    store = Store.from_url(patient(f"redis://127.0.0.1:{server.port}"))
    desk = Desk(store)
    desk.report_many("ab")
    with Watcher(store) as watcher:
        watcher.snapshot()
        kill(server)
        for path in (server.data_dir / "appendonlydir").iterdir():
            path.unlink()
        server.start()
        desk.view._known.clear()
        desk.report("b")
        told = changes_until(watcher, lambda told: len(told) == 2)
        assert all(change.synthesized for change in told)
        assert [(change.key.id, change.record is None) for change in told] == [
            ("b", False),
            ("a", True),
        ]
        assert logged(watcher.records) == logged(desk.records())
    store.close()
