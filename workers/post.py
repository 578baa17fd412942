"""Post: where a worker stands: which Redis, namespace, node, engine and slot."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from broker import Broker, Misconfigured, queue_name, settings
from workers import registry
from workers.engine import EngineSpec

#: Modules of engines for `rq worker`, which has no option for them; separated by commas.
IMPORTS_VARIABLE = "BROKER_IMPORT"
CONNECT_SECONDS_MAX = 2.0
#: The name goes into every record that the worker runs: at most 64 bytes there.
_NODE_CHARS, _ENGINE_CHARS = 24, 20


@dataclass(frozen=True, slots=True)
class Post:
    """One slot of one engine on one node."""

    broker: Broker  #: for the worker's main thread, and for its horses
    node: str
    spec: EngineSpec
    slot: int = 0

    @classmethod
    def of_queue(cls, queue: str, connection: Any) -> Self:
        """What the name of a queue says, for `rq worker`. Raises Misconfigured, Unavailable.

        RQ's connection and ours must lead to the same Redis, or every start would be refused.
        """
        config = settings()
        imports = [name for name in os.environ.get(IMPORTS_VARIABLE, "").split(",") if name]
        specs = registry.load(imports)
        rest = queue.removeprefix(config.namespace + ":")
        node = rest.partition(":")[0]
        for spec in specs.values():
            if queue_name(config.namespace, node, spec.name) == queue:
                broker = Broker.from_url(node=node)
                _check_same(connection, connect(broker))
                return cls(broker, node, spec)
        known = ", ".join(sorted(specs)) or "none"
        raise Misconfigured(
            f"queue {queue!r} is not that of an engine known here: a queue is named "
            f"{config.namespace}:NODE:ENGINE (known engines: {known})"
        )

    @property
    def namespace(self) -> str:
        return self.broker.config.namespace

    @property
    def queue(self) -> str:
        """The RQ queue that it serves."""
        return queue_name(self.namespace, self.node, self.spec.name)

    def worker_name(self) -> str:
        """A name that no other process ever had: RQ refuses the name of a killed worker for minutes."""
        engine = "".join(
            char if char.isascii() and char.isalnum() else "_" for char in self.spec.name
        )
        return (
            f"{self.node[:_NODE_CHARS]}-{engine[:_ENGINE_CHARS]}-{self.slot}-{secrets.token_hex(4)}"
        )

    def broker_of_beats(self) -> Broker:
        """Another client of the same Redis: the beats share no connection with the jobs."""
        return Broker.from_url(self.broker.store.url, namespace=self.namespace, node=self.node)


def connect(broker: Broker) -> redis.Redis:
    """A connection for RQ alone, which changes the timeouts of whatever it is given."""
    return redis.Redis.from_url(
        broker.store.url, socket_connect_timeout=CONNECT_SECONDS_MAX, retry=Retry(NoBackoff(), 1)
    )


def _check_same(given: Any, ours: Any) -> None:
    places = [
        tuple(
            made.connection_pool.connection_kwargs.get(name)
            for name in ("host", "port", "path", "db")
        )
        for made in (given, ours)
    ]
    if places[0] != places[1]:
        raise Misconfigured(
            "`rq worker` and REDIS_URL lead to different Redis servers: give both the same url"
        )
