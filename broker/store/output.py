"""The output lane of a job: progress and chunks, stamped with their attempt. Lossy by design, never a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from broker.rules.key import Key
from broker.rules.record import clip
from broker.store.connection import redis_errors
from broker.store.store import Store

#: Entries kept for a job, and bytes of one chunk.
ENTRIES_MAX = 1_000
CHUNK_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """One entry of the lane: `what` is `progress` (a number from 0 to 1 as text) or `chunk`."""

    id: str
    attempt: int
    what: str
    text: str


def write(store: Store, key: Key, attempt: int, what: str, text: str, ttl_ms: int) -> None:
    """Append an entry; the lane lives for `ttl_ms` after the last one."""
    lane = store.keys.of_job(key).out
    fields = {"attempt": str(attempt), what: clip(text, CHUNK_BYTES_MAX)}
    with redis_errors(), store.client.pipeline(transaction=False) as pipe:
        pipe.xadd(lane, fields, maxlen=ENTRIES_MAX, approximate=True)  # type: ignore[arg-type]
        pipe.pexpire(lane, ttl_ms)
        pipe.execute()


def read(store: Store, key: Key, after: str = "0-0", count: int = ENTRIES_MAX) -> list[Chunk]:
    """The entries after an id, oldest first."""
    with redis_errors():
        found = store.client.xrange(store.keys.of_job(key).out, f"({after}", "+", count)
    return [
        _chunk(id, fields) for id, fields in cast("list[tuple[bytes, dict[bytes, bytes]]]", found)
    ]


def _chunk(id: bytes, fields: dict[bytes, bytes]) -> Chunk:
    text = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}
    attempt = int(text.pop("attempt", "0"))
    what, said = next(iter(text.items()), ("chunk", ""))
    return Chunk(id.decode(), attempt, what, said)
