"""What the server says of itself that matters to us (version, persistence, eviction, memory, clock), and our way to it.

It changes nothing. What of it is wrong is for `broker.fleet.checkup` to judge.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from ipaddress import ip_address

import redis
from redis.exceptions import NoPermissionError

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
    host: str = ""  #: as our url names it; empty for one that only this machine reaches
    login: bool = False  #: whether we prove who we are, by a password or a certificate
    fsync: str = (
        "unknown"  #: appendfsync: always, everysec or no; unknown where Redis does not tell us
    )
    denied: str = ""  #: what Redis says where our user has no permission to write


def read(store: Store) -> Health:
    """Ask the server; raises Unavailable."""
    with redis_errors():
        begun = time.perf_counter()
        wall = time.time() * 1000
        seconds, micros = store.client.time()
        took = (time.perf_counter() - begun) * 1000
        with store.client.pipeline(transaction=False) as pipe:
            pipe.info()
            pipe.config_get("appendfsync")  # many a hosted one does not let us look
            pipe.zadd(store.keys.nodes, {"": 0}, xx=True)  # no member is of that name
            pipe.eval("return 0", 0)
            info, settings, *writes = pipe.execute(raise_on_error=False)
        if isinstance(info, redis.RedisError):
            raise info
    host, login = way_to(store.client)
    valkey = info.get("valkey_version")
    return Health(
        version=str(valkey or info.get("redis_version", "")),
        name="valkey" if valkey else "redis",
        role=str(info.get("role", "")),
        policy=str(info.get("maxmemory_policy", "unknown")),
        aof=bool(info.get("aof_enabled", 0)),
        aof_ok=info.get("aof_last_write_status", "ok") == "ok",
        used=int(info.get("used_memory", 0)),
        used_max=int(info.get("maxmemory", 0)),
        answer_ms=took,
        clock_ahead_ms=round(seconds * 1000 + micros / 1000 - wall - took / 2),
        host=host,
        login=login,
        fsync=_fsync(settings),
        denied=next((str(said) for said in writes if isinstance(said, NoPermissionError)), ""),
    )


def _fsync(settings: object) -> str:
    found = settings.get("appendfsync") if isinstance(settings, dict) else None
    return str(found) if found else "unknown"


def way_to(client: redis.Redis) -> tuple[str, bool]:
    """The host (empty where only this machine reaches it: a unix socket, a loopback address), and whether we log in."""
    way = client.connection_pool.connection_kwargs
    host = str(way.get("host", ""))
    return "" if _is_local(host) else host, bool(way.get("password") or way.get("ssl_certfile"))


def _is_local(host: str) -> bool:
    if not host:
        return True
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    addresses = {str(address[0]).partition("%")[0] for *_, address in found}
    return all(ip_address(address).is_loopback for address in addresses)
