from __future__ import annotations

import pytest

from tests.roles.fleet import Fleet


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.close()
