"""The checkup: what is wrong, or soon will be, with Redis and the fleet, as findings.

It reads and judges; it mends nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from broker.errors import Damaged, Misconfigured
from broker.rules.state import QUEUED
from broker.store.groups import GroupSeen
from broker.store.health import Health, read
from broker.store.standing import has_left

if TYPE_CHECKING:
    from broker.jobs.catalog import Catalog

__all__ = [
    "Finding",
    "Health",
    "check_start",
    "examine",
    "judge_groups",
    "judge_server",
    "look",
    "worst_first",
]

OK, WARNING, ERROR = "ok", "warning", "error"
_ORDER = {ERROR: 0, WARNING: 1, OK: 2}

#: What of the server is a setting, and looked at before anything starts on it.
SETTINGS = frozenset({"policy", "aof", "access", "role"})
#: Of maxmemory: above, writes will soon be refused.
FULL = 0.9
#: Redis's clock may differ so much from ours, in milliseconds, before people misread times.
CLOCK_MS_MAX = 2_000
#: Of a lease: an entry that waits longer than a takeover takes is read by nobody.
TAKEOVERS = 2
#: Origins that one finding names.
NAMED_MAX = 5
#: A single answer that takes longer, in milliseconds, makes beats late.
ANSWER_MS_MAX = 250


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `level` is ok, warning or error."""

    level: str
    topic: str
    text: str
    key: str = ""  #: of the job, or of Redis, that it is about

    def to_json(self) -> dict[str, Any]:
        """As every face shows it."""
        return asdict(self)


def examine(catalog: Catalog) -> list[Finding]:
    """Look at the server, the nodes, the jobs that wait and the groups; raises Unavailable where no Redis answers."""
    found = list(judge_server(read(catalog.store)))
    for part in (_nodes, _waiting, _groups):
        try:
            found += part(catalog)
        except Damaged as error:
            found.append(Finding(ERROR, part.__name__.strip("_"), f"cannot be read: {error}"))
    return found


def look(catalog: Catalog) -> Health:
    """The server as it describes itself, asked now; raises Unavailable."""
    return read(catalog.store)


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings, then what is fine."""
    return sorted(found, key=lambda finding: _ORDER[finding.level])


def judge_server(health: Health) -> Iterator[Finding]:
    """What the server's own words mean for us."""
    yield Finding(
        OK, "redis", f"{health.name} {health.version} answers in {health.answer_ms:.1f} ms"
    )
    if health.answer_ms > ANSWER_MS_MAX:
        yield Finding(WARNING, "redis", "it answers slowly: beats may come late")
    if health.role != "master":
        yield Finding(ERROR, "role", f"this server is a {health.role}: it takes no writes")
    if health.denied:
        yield Finding(
            WARNING,  # whoever only looks may be meant to
            "permission",
            f"Redis lets our user not write ({health.denied}): name one in REDIS_URL that may (ACL: ~* &* +@all)",
        )
    if health.policy == "noeviction":
        yield Finding(OK, "policy", "maxmemory-policy is noeviction")
    else:
        level = ERROR if health.used_max or not health.policy.startswith("volatile") else WARNING
        yield Finding(
            level,
            "policy",
            f"maxmemory-policy is {health.policy}: Redis may drop jobs; set noeviction",
        )
    if not health.aof:
        yield Finding(
            WARNING, "aof", "appendonly is no: a crash of Redis loses what was accepted; set yes"
        )
    elif not health.aof_ok:
        yield Finding(
            ERROR, "aof", "the last write to the append-only file failed: is the disk full?"
        )
    else:
        yield Finding(OK, "aof", "appendonly is yes")
    if health.host and not health.login:
        yield Finding(
            WARNING,
            "access",
            f"Redis at {health.host} is unprotected: whoever reaches it can change every job; set requirepass there, "
            "and the password in REDIS_URL",
        )
    if health.used_max and health.used > FULL * health.used_max:
        share = 100 * health.used // health.used_max
        yield Finding(ERROR, "memory", f"{share} % of maxmemory is used: writes will be refused")
    if abs(health.clock_ahead_ms) > CLOCK_MS_MAX:
        seconds = health.clock_ahead_ms / 1000
        yield Finding(
            WARNING, "clock", f"the clock of Redis is {seconds:+.1f} s beside this host's"
        )


def check_start(health: Health, *, allow_volatile: bool) -> list[str]:
    """What must be told of the server's settings before the roles start on it.

    Raises Misconfigured where our user may not write; also, unless `allow_volatile`, naming each setting that may
    lose jobs.
    """
    found = list(judge_server(health))
    if denied := next((one.text for one in found if one.topic == "permission"), ""):
        raise Misconfigured(denied)
    wrong = [one for one in found if one.topic in SETTINGS and one.level != OK]
    lossy = [] if health.policy == "noeviction" else ["policy"]
    lossy += [] if health.aof else ["aof"]
    if lossy and not allow_volatile:
        told = ". ".join(finding.text for finding in wrong if finding.topic in lossy)
        raise Misconfigured(f"{told} (or start with --allow-volatile)")
    return [finding.text for finding in wrong]


def _nodes(catalog: Catalog) -> Iterator[Finding]:
    nodes = catalog.nodes()
    budget = catalog.config.budgets.suspect_ms
    for node in nodes:
        if node.flag:
            yield Finding(OK, "node", f"{node.name} is {node.flag}")
        elif has_left(node, catalog.config.budgets):
            yield Finding(OK, "node", f"{node.name} has left: its workers ended in good order")
        elif node.silent_ms > budget:
            yield Finding(
                WARNING, "node", f"{node.name} has been silent for {node.silent_ms / 1000:.0f} s"
            )
        else:
            alive = sum(worker.silent_ms <= budget for worker in node.workers)
            yield Finding(OK, "node", f"{node.name} is up, {alive} workers")
    if not nodes:
        yield Finding(WARNING, "node", "no node has been heard of: no submitted job will run")


def _waiting(catalog: Catalog) -> Iterator[Finding]:
    budget = catalog.config.budgets.suspect_ms
    offered = {seen.engine for seen in catalog.workers() if seen.silent_ms <= budget}
    waiting = Counter(
        job.key.engine
        for job in catalog.jobs(state=QUEUED)
        if job.record.ready and job.key.engine not in offered
    )
    for engine, count in sorted(waiting.items()):
        yield Finding(
            WARNING, "engine", f"{count} jobs wait for engine {engine}, which no node offers"
        )


def _groups(catalog: Catalog) -> Iterator[Finding]:
    return judge_groups(catalog.groups(), catalog.config.budgets.guess_ms)


def judge_groups(groups: Iterable[GroupSeen], lease_ms: int) -> Iterator[Finding]:
    """What the groups' places mean; they come by name."""
    for name, at_origins in groupby(groups, key=lambda seen: seen.group):
        found = list(_judge_group(name, list(at_origins), lease_ms))
        yield from found or [Finding(OK, "group", f"{name} keeps up")]


def _judge_group(name: str, at: list[GroupSeen], lease_ms: int) -> Iterator[Finding]:
    unread = [seen for seen in at if not seen.live and (seen.lag.ms or 0) > TAKEOVERS * lease_ms]
    if unread:
        oldest_ms = max(seen.lag.ms or 0 for seen in unread)
        yield Finding(
            WARNING,
            "group",
            f"nobody reads {_origins(unread)} for {name}: entries wait, the oldest for {oldest_ms / 1000:.0f} s",
        )
    if parked := sum(seen.parked for seen in at):
        yield Finding(
            WARNING, "group", f"{name} has parked {parked} entries: broker groups parked {name}"
        )
    if evicted := sum(seen.evicted for seen in at):
        yield Finding(
            WARNING,
            "group",
            f"{name} lost {evicted} parked entries to newer ones: they were never handled",
        )
    if unknown := [seen for seen in at if seen.origin and seen.lag.entries is None]:
        why = next((f" ({seen.lag.gone})" for seen in unknown if seen.lag.gone), "")
        yield Finding(
            WARNING, "group", f"how far {name} is behind at {_origins(unknown)} is unknown{why}"
        )
    if gapped := [seen for seen in at if seen.gaps]:
        gaps = sum(seen.gaps for seen in gapped)
        yield Finding(
            WARNING, "group", f"{name} lost entries of {_origins(gapped)} unread (gaps: {gaps})"
        )


def _origins(at: list[GroupSeen]) -> str:
    more = ", ..." if len(at) > NAMED_MAX else ""
    return ", ".join(seen.origin for seen in at[:NAMED_MAX]) + more
