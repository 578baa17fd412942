"""What the store's tests stand on beside the server: a job's story, told to each twin in turn."""

from __future__ import annotations

import fakeredis
import pytest

from broker.store.store import Store
from tests.store.story import Story
from tests.store.twins import LedgerTwin, RedisTwin


@pytest.fixture(params=["ledger", "redis", "fakeredis"])
def story(request: pytest.FixtureRequest) -> Story:
    """The same test for the model, the script on a real server, and the script on fakeredis."""
    if request.param == "ledger":
        return Story(LedgerTwin())
    if request.param == "fakeredis":
        return Story(RedisTwin(Store(fakeredis.FakeRedis())))
    return Story(RedisTwin(request.getfixturevalue("store")))
