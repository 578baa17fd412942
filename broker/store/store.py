"""One handle on the store: the client, the key names, the scripts, the clock."""

from __future__ import annotations

from typing import Self

import redis

from broker.store.connection import Clock, connect
from broker.store.keys import Keys
from broker.store.scripts import Scripts


class Store:
    """What every module of this package works on. Build it of a url, or of a ready client (tests, fakeredis)."""

    def __init__(self, client: redis.Redis, namespace: str = "broker", url: str = "") -> None:
        self.client = client
        self.url = url
        self.keys = Keys(namespace)
        self.scripts = Scripts(client, self.keys)
        self.clock = Clock(client)

    @classmethod
    def from_url(cls, url: str, namespace: str = "broker") -> Self:
        """Connect lazily: the first call talks to Redis."""
        return cls(connect(url), namespace, url)

    def close(self) -> None:
        """Give back the connections."""
        self.client.close()
