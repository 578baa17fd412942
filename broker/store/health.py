"""What the server says of itself that matters to us: version, persistence, eviction, memory, clock.

It only reads. What of it is wrong is for `broker.checkup` to judge.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from broker.store.connection import redis_errors
from broker.store.store import Store


@dataclass(frozen=True, slots=True)
class Health:
    """The server as it describes itself; sizes in bytes, times in milliseconds."""

    version: str
    name: str  #: redis or valkey
    role: str  #: master or slave
    policy: str  #: maxmemory-policy
    aof: bool
    aof_ok: bool
    used: int
    used_max: int  #: maxmemory, 0 = no limit
    answer_ms: float
    clock_ahead_ms: int  #: of Redis's clock before ours


def read(store: Store) -> Health:
    """Ask the server; raises Unavailable."""
    with redis_errors():
        begun = time.perf_counter()
        wall = time.time() * 1000
        seconds, micros = store.client.time()
        took = (time.perf_counter() - begun) * 1000
        info = store.client.info()
    valkey = info.get("valkey_version")
    return Health(
        version=str(valkey or info.get("redis_version", "")),
        name="valkey" if valkey else "redis",
        role=str(info.get("role", "")),
        policy=str(info.get("maxmemory_policy", "")),
        aof=bool(info.get("aof_enabled", 0)),
        aof_ok=info.get("aof_last_write_status", "ok") == "ok",
        used=int(info.get("used_memory", 0)),
        used_max=int(info.get("maxmemory", 0)),
        answer_ms=took,
        clock_ahead_ms=round(seconds * 1000 + micros / 1000 - wall - took / 2),
    )
