"""Which Redis a command talks to: the one it was told, else a running `broker up`, else the usual port."""

from __future__ import annotations

from broker.config import DEFAULT_URL, Settings, running_up
from broker.errors import BrokerError, Unanswered
from broker.store.connection import connect, redis_errors


def find_url(settings: Settings) -> str:
    """The url: `REDIS_URL`, else that of a running `up` that answers PING, else redis://127.0.0.1:6379."""
    if settings.redis_url:
        return settings.redis_url
    if (up := running_up()) and _answers(str(up["url"])):
        return str(up["url"])
    return DEFAULT_URL


def _answers(url: str) -> bool:
    """Also by a refusal: one that loads, or whose disk is full, answers so to PING, and is the one that is meant."""
    client = connect(url)
    try:
        with redis_errors():
            client.ping()
    except Unanswered:
        return False
    except BrokerError:
        pass
    finally:
        client.close()
    return True
