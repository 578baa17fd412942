"""Workers in processes of their own, gone after each test."""

from __future__ import annotations

import pytest

from tests.workers.fleet import Fleet


@pytest.fixture
def fleet(redis_url, namespace, tmp_path):
    made = Fleet(redis_url, namespace, tmp_path)
    yield made
    made.close()
