"""Which Redis a command talks to: the one it was told, else a running `broker up`, else the usual port."""

from __future__ import annotations

from broker.config import DEFAULT_URL, Settings, running_up
from broker.errors import Unavailable
from broker.store.connection import connect, redis_errors


def find_url(settings: Settings) -> str:
    """The url: `REDIS_URL`, else that of a running `up` that answers PING, else redis://127.0.0.1:6379."""
    if settings.redis_url:
        return settings.redis_url
    if (up := running_up()) and _answers(str(up["url"])):
        return str(up["url"])
    return DEFAULT_URL


def _answers(url: str) -> bool:
    client = connect(url)
    try:
        with redis_errors():
            return bool(client.ping())
    except Unavailable:
        return False
    finally:
        client.close()
