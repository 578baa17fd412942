"""The command line on the test's own namespace, a job's story told to each twin, and a node's trust."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.readers.readers import Readers
from broker.rules.bounds import Bounds
from broker.store.store import Store
from broker.store.trust import TrustStore
from tests.store.readers import Desk
from tests.store.trusting import ANN, BOB, CLEO, Heard, opened
from tests.store.twins import LedgerTwin, RedisTwin
from tests.system.command import Command
from tests.system.sources import Source


@pytest.fixture
def command(
    redis_url: str,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    made = Command(redis_url, namespace, capsys)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    for name in ("BROKER_LOG_LEVEL", "BROKER_CONFIG", "REDIS_URL_FILE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture(params=["ledger", "redis"])
def twin(request: pytest.FixtureRequest) -> Callable[..., LedgerTwin | RedisTwin]:
    """Makes the model, or the script on a real server; with bounds where a test needs them."""

    def make(bounds: Bounds | None = None) -> LedgerTwin | RedisTwin:
        if request.param == "ledger":
            return LedgerTwin(bounds)
        return RedisTwin(request.getfixturevalue("store"), bounds)

    return make


@pytest.fixture
def source(twin: Callable[..., LedgerTwin | RedisTwin]) -> Source:
    return Source(twin())


@pytest.fixture
def trust_folder(tmp_path: Path) -> Path:
    return tmp_path / "trust"


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def trust(trust_folder: Path, heard: Heard) -> TrustStore:
    """A trust store that trusts nobody yet."""
    return opened(trust_folder, on_change=heard)


@pytest.fixture
def trusting(trust: TrustStore, heard: Heard) -> TrustStore:
    """Ann, Bob and Cleo are pinned, and nothing was heard yet."""
    for one in (ANN, BOB, CLEO):
        trust.pin(one.card())
    heard.clear()
    return trust


@pytest.fixture
def desk(store: Store) -> Desk:
    """Whoever writes what readers follow. Its origin is known, so that nobody needs to find it first."""
    desk = Desk(store)
    desk.report("known")
    desk.remove("known")
    return desk


@pytest.fixture
def reading(redis_url: str, namespace: str) -> Iterator[Store]:
    """The store of the readers: its connections are not those of the writer."""
    with closing(Store.from_url(redis_url, namespace)) as store:
        yield store


@pytest.fixture
def readers(reading: Store, desk: Desk) -> Iterator[Readers]:
    with Readers(reading) as readers:
        yield readers
