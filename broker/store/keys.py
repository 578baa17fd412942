"""Every Redis key of the broker, made here and nowhere else.

All keys of one origin share the hash tag `{origin}`, so that a script touches one slot and Redis Cluster shards by
origin. A comment gives type and bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from broker.errors import Invalid
from broker.rules.key import Key

#: What Redis calls the type behind each name: of the fleet, of an origin, and of those that a name follows.
FLEET_TYPES = {
    "origins": "hash", "nodeflags": "hash", "nodes": "zset", "workers": "zset", "groups": "hash",
    "audit": "hash", "repairs": "stream",
}  # fmt: skip
NAMED_FLEET_TYPES = {"node": "hash", "worker": "hash", "leader": "string", "term": "string"}
ORIGIN_TYPES = {
    "log": "stream", "meta": "hash", "live": "zset", "done": "zset", "ready": "zset", "delayed": "zset",
    "ids": "zset", "gone": "zset", "seen": "hash", "seen:old": "hash", "trust": "stream",
}  # fmt: skip
NAMED_ORIGIN_TYPES = {
    "sub": "hash", "parked": "stream",
    "job": "hash", "spec": "string", "result": "string", "out": "stream", "refused": "list",
}  # fmt: skip

_DAMAGED = ":damaged"


class Named(NamedTuple):
    """A key by its name: whose it is (empty: the fleet's), what it is, of whom or what, and its type."""

    origin: str
    what: str
    rest: str
    type: str


def aside(name: str) -> str:
    """Any type: what stood at a key of ours and was of another type; 24 h."""
    return name + _DAMAGED


@dataclass(frozen=True, slots=True)
class Keys:
    """The key names below one namespace."""

    namespace: str = "broker"

    def __post_init__(self) -> None:
        if not self.namespace or set(self.namespace) & set("{} \t\r\n"):
            raise Invalid(
                f"namespace {self.namespace!r} must not be empty or hold braces or white space"
            )

    def of(self, origin: str) -> OriginKeys:
        """The keys of one origin."""
        return OriginKeys(f"{self.namespace}:{{{origin}}}")

    def of_job(self, key: Key) -> JobKeys:
        """The keys of one job."""
        return self.of(key.origin).of_job(key.job)

    @property
    def origins(self) -> str:
        """Hash: origin -> ms of its first event."""
        return f"{self.namespace}:origins"

    @property
    def nodeflags(self) -> str:
        """Hash: node -> drained | dead; cleared by resume or remove."""
        return f"{self.namespace}:nodeflags"

    @property
    def nodes(self) -> str:
        """Zset: node by ms of its last beat; forgotten after 24 h without beats or jobs."""
        return f"{self.namespace}:nodes"

    @property
    def workers(self) -> str:
        """Zset: worker by ms of its last beat; forgotten after 24 h without one, or with its node."""
        return f"{self.namespace}:workers"

    @property
    def groups(self) -> str:
        """Hash: group -> ms when a member last looked; forgotten with the group, 7 days after."""
        return f"{self.namespace}:groups"

    @property
    def audit(self) -> str:
        """Hash: what the auditor's newest whole round found, and when."""
        return f"{self.namespace}:audit"

    @property
    def repairs(self) -> str:
        """Stream: what the auditor mended; 1,000."""
        return f"{self.namespace}:repairs"

    @property
    def fixed(self) -> list[str]:
        """The keys of the fleet that no name follows."""
        return [f"{self.namespace}:{what}" for what in FLEET_TYPES]

    def read(self, name: str) -> Named | None:
        """What a key is by its name; None where it is none of ours, or was set aside."""
        space = f"{self.namespace}:"
        tail = name.removeprefix(space)
        if tail == name or name.endswith(_DAMAGED):
            return None
        origin, fixed, named = "", FLEET_TYPES, NAMED_FLEET_TYPES
        if tail.startswith("{"):
            origin, _, tail = tail[1:].partition("}:")
            fixed, named = ORIGIN_TYPES, NAMED_ORIGIN_TYPES
        if tail in fixed:
            return Named(origin, tail, "", fixed[tail])
        what, _, rest = tail.partition(":")
        return Named(origin, what, rest, named[what]) if rest and what in named else None

    def trust(self, node: str) -> str:
        """Stream: announcements of that node's trust store; 10,000."""
        return f"{self.of(node).prefix}:trust"

    def node(self, node: str) -> str:
        """Hash with TTL: what a node says of itself."""
        return f"{self.namespace}:node:{node}"

    def worker(self, worker: str) -> str:
        """Hash with TTL: what a worker says of itself."""
        return f"{self.namespace}:worker:{worker}"

    def leader(self, role: str) -> str:
        """String with TTL: the lease's holder."""
        return f"{self.namespace}:leader:{role}"

    def term(self, role: str) -> str:
        """String, never expiring: the last term of the role."""
        return f"{self.namespace}:term:{role}"


@dataclass(frozen=True, slots=True)
class OriginKeys:
    """The keys of one origin: `broker:{origin}:...`."""

    prefix: str

    @property
    def log(self) -> str:
        """Stream: accepted events; 100,000 entries, 7 days."""
        return f"{self.prefix}:log"

    @property
    def meta(self) -> str:
        """Hash: epoch, floor, rev (the last), horizon, turned_at (of `seen`), stale_after, mending, term:<role>.

        And how many events were answered how: n:<outcome>:<rule>.
        """
        return f"{self.prefix}:meta"

    @property
    def live(self) -> str:
        """Zset: jobs that have not ended, by created ms."""
        return f"{self.prefix}:live"

    @property
    def done(self) -> str:
        """Zset: ended jobs by completed ms; newest 10,000, 7 days."""
        return f"{self.prefix}:done"

    @property
    def ready(self) -> str:
        """Zset: jobs that may be placed, by ms - priority * 2^42."""
        return f"{self.prefix}:ready"

    @property
    def delayed(self) -> str:
        """Zset: jobs that are not yet due, by due ms."""
        return f"{self.prefix}:delayed"

    @property
    def ids(self) -> str:
        """Zset, all scores 0: `id/engine/run` of every record."""
        return f"{self.prefix}:ids"

    @property
    def gone(self) -> str:
        """Zset: tombstones by generation; 100,000, none where the origin fell silent (rest.lua)."""
        return f"{self.prefix}:gone"

    @property
    def seen(self) -> str:
        """Hash: mark -> `rule rev`; 10,000, then it becomes `seen_old`; goes with `gone`."""
        return f"{self.prefix}:seen"

    @property
    def seen_old(self) -> str:
        """Hash: the answers before the last turn; goes with `gone`."""
        return f"{self.prefix}:seen:old"

    def sub(self, group: str) -> str:
        """Hash: a subscription: owner, term, until, acked, ...; with its group."""
        return f"{self.prefix}:sub:{group}"

    def parked(self, group: str) -> str:
        """Stream: entries whose handler failed for good, with the reason; 1,000, with the group."""
        return f"{self.prefix}:parked:{group}"

    @property
    def books(self) -> list[str]:
        """The fixed keys of `merge.lua`, in its order."""
        return [
            self.log, self.meta, self.live, self.done, self.ready,
            self.delayed, self.ids, self.gone, self.seen, self.seen_old,
        ]  # fmt: skip

    def fixed(self, groups: Iterable[str]) -> list[str]:
        """The keys of the origin that hold no single job: what all its jobs, and these groups, stand on."""
        own = [f"{self.prefix}:{what}" for what in ORIGIN_TYPES]
        return own + [key for group in groups for key in (self.sub(group), self.parked(group))]

    def of_job(self, job: str) -> JobKeys:
        """The keys of one job, by `engine/run/id`."""
        return JobKeys(self.prefix, job)


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The keys of one job: `broker:{origin}:<what>:<engine/run/id>`."""

    prefix: str
    job_text: str

    @property
    def job(self) -> str:
        """Hash: the record."""
        return f"{self.prefix}:job:{self.job_text}"

    @property
    def spec(self) -> str:
        """String: payload and extras, opaque JSON; 1 MiB."""
        return f"{self.prefix}:spec:{self.job_text}"

    @property
    def result(self) -> str:
        """String: result or full error, opaque JSON; 1 MiB, 24 h after the end."""
        return f"{self.prefix}:result:{self.job_text}"

    @property
    def out(self) -> str:
        """Stream: progress and output, a lossy lane; 1,000 entries, 24 h after the end."""
        return f"{self.prefix}:out:{self.job_text}"

    @property
    def refused(self) -> str:
        """List: the newest 8 refusals, newest first; with the record, else 1 h."""
        return f"{self.prefix}:refused:{self.job_text}"

    @property
    def all(self) -> list[str]:
        """All keys of the job, in the order in which `merge.lua` takes them."""
        return [self.job, self.refused, self.spec, self.result, self.out]
