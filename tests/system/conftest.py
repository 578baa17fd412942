"""The command line, on the test's own namespace."""

from __future__ import annotations

import pytest

from tests.system.command import Command


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
