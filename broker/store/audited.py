"""What the auditor tells of its work: the gauges of its newest whole round, and what it mended.

Whoever shows them reads here. A value that a foreign hand wrote counts as not told.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, cast

import redis

from broker.rules.audit import Finding
from broker.store.connection import redis_errors
from broker.store.decode import read_number, read_text
from broker.store.store import Store

#: How many repairs are kept.
REPAIRS_MAX = 1_000
#: The gauges of what a round found, by kind.
FOUND = ("ghosts", "missing", "stuck", "drift")
_TOTAL = "_total"
#: Redis's words on a field that cannot be counted up.
_NO_COUNT = re.compile("not an integer|overflow")


@dataclass(frozen=True, slots=True)
class AuditSeen:
    """The newest whole round over all origins. Of what is wrong it counts what it found: 0 in a healthy fleet.

    The totals are for alerts: gauges are 0 again with the next round.
    """

    at: int = 0  #: when it ended, epoch ms; 0 where there was none yet
    took_ms: int = 0
    origins: int = 0  #: how many it looked through
    unread: int = 0  #: how many it could not look through
    ghosts: int = 0
    missing: int = 0
    stuck: int = 0
    drift: int = 0
    repaired: int = 0  #: of these
    term: int = 0  #: the auditor's
    # Of all rounds of all auditors together: what is found again in the next round counts again. They only grow.
    found_total: int = 0
    ghosts_total: int = 0
    missing_total: int = 0
    stuck_total: int = 0
    drift_total: int = 0
    repaired_total: int = 0

    def to_json(self) -> dict[str, int]:
        """As every face shows it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was mended. `at` is epoch ms; the others are the finding's own words."""

    at: int
    kind: str
    origin: str
    job: str
    what: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        return asdict(self)

    @classmethod
    def of(cls, finding: Finding, at: int) -> Self:
        """What is told of a finding that was mended."""
        return cls(at, finding.kind, finding.origin, finding.job, finding.what, finding.text)


class Audited:
    """`broker:audit` and `broker:repairs`. Every method raises Unavailable, Damaged."""

    def __init__(self, store: Store) -> None:
        self._client = store.client
        self._audit, self._repairs = store.keys.audit, store.keys.repairs

    def tell(self, seen: AuditSeen) -> None:
        """A round ended: its gauges replace the last ones, and add to the totals. Totals in `seen` are passed over."""
        gauges = {name: count for name, count in asdict(seen).items() if not name.endswith(_TOTAL)}
        counts = {name + _TOTAL: gauges[name] for name in (*FOUND, "repaired")}
        counts["found" + _TOTAL] = sum(gauges[name] for name in FOUND)
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.hset(self._audit, mapping=cast("dict[Any, Any]", gauges))
            for name, count in counts.items():
                pipe.hincrby(self._audit, name, count)
            first, *replies = pipe.execute(raise_on_error=False)
            if isinstance(first, redis.RedisError):
                raise first
            for (name, count), reply in zip(counts.items(), replies, strict=True):
                # What a foreign hand wrote there is no count: it begins anew.
                if isinstance(reply, redis.ResponseError) and _NO_COUNT.search(str(reply)):
                    self._client.hset(self._audit, name, str(count))
                elif isinstance(reply, redis.RedisError):
                    raise reply

    def note(self, repairs: Sequence[Repair]) -> None:
        """These were mended. The oldest beyond the bound go."""
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for repair in repairs:
                said = cast("dict[Any, Any]", asdict(repair))
                pipe.xadd(self._repairs, said, maxlen=REPAIRS_MAX, approximate=False)
            pipe.execute()

    def seen(self) -> AuditSeen:
        """The newest whole round."""
        names = [field.name for field in fields(AuditSeen)]
        with redis_errors():
            found = cast("list[bytes | None]", self._client.hmget(self._audit, names))
        return AuditSeen(*map(read_number, found))

    def repairs(self, count: int) -> list[Repair]:
        """The newest, newest first, at most `count`."""
        with redis_errors():
            found = self._client.xrevrange(self._repairs, count=count)
        return [_repair(said) for _, said in cast("list[tuple[bytes, dict[bytes, bytes]]]", found)]


def _repair(said: dict[bytes, bytes]) -> Repair:
    texts = (read_text(said.get(name)) for name in (b"kind", b"origin", b"job", b"what", b"text"))
    return Repair(read_number(said.get(b"at")), *texts)
