"""What the store's tests stand on beside the server: a job's story, told to each twin in turn; an origin's desk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fakeredis
import pytest

from broker.rules.bounds import Bounds
from broker.store.store import Store
from broker.store.watch import Watcher
from tests.store.readers import Desk, patient
from tests.store.shop import Shop
from tests.store.story import Story
from tests.store.twins import LedgerTwin, RedisTwin


@pytest.fixture(params=["ledger", "redis", "fakeredis"])
def story_with(request: pytest.FixtureRequest) -> Callable[[Bounds], Story]:
    """A story for a twin that remembers no more than it is told."""

    def make(bounds: Bounds) -> Story:
        if request.param == "ledger":
            return Story(LedgerTwin(bounds))
        if request.param == "fakeredis":
            return Story(RedisTwin(Store(fakeredis.FakeRedis()), bounds))
        return Story(RedisTwin(request.getfixturevalue("store"), bounds))

    return make


@pytest.fixture
def story(story_with: Callable[[Bounds], Story]) -> Story:
    """The same test for the model, the script on a real server, and the script on fakeredis."""
    return story_with(Bounds())


@pytest.fixture(params=["redis", "fakeredis"])
def script(request: pytest.FixtureRequest) -> RedisTwin:
    """The script alone, on a real server and on fakeredis."""
    if request.param == "fakeredis":
        return RedisTwin(Store(fakeredis.FakeRedis()))
    return RedisTwin(request.getfixturevalue("store"))


@pytest.fixture
def desk(store: Store) -> Desk:
    return Desk(store)


@pytest.fixture(params=["redis", "fakeredis"])
def desk_on_each(request: pytest.FixtureRequest, namespace: str) -> Iterator[Desk]:
    """The same on both: trimming and reading must work for users' tests too."""
    if request.param == "redis":
        store = Store.from_url(patient(request.getfixturevalue("redis_url")), namespace)
    else:
        store = Store(fakeredis.FakeRedis(version=(7, 0)), namespace)
    yield Desk(store)
    store.close()


@pytest.fixture
def shop(store: Store) -> Shop:
    return Shop(store).open()


@pytest.fixture
def watcher(store: Store) -> Iterator[Watcher]:
    with Watcher(store) as made:
        yield made
