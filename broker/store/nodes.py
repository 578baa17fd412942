"""The fleet as it says of itself: beats of workers and nodes, and the operator's flags.

Beats are stamped with Redis's own time, so that a node's wrong clock never makes it look dead or alive. Nothing here
judges: who is silent for too long is for the readers to derive. It knows no jobs; who forgets a node tells it which
ones still have some.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

from broker.errors import Invalid
from broker.rules.key import ENGINE_BYTES_MAX, check_name, check_part
from broker.rules.record import TEXT_BYTES_MAX
from broker.rules.sweep import DEAD, DRAINED
from broker.store.connection import redis_errors
from broker.store.decode import read_number, read_text
from broker.store.store import Store

#: A worker or node without beats for so long is forgotten, in milliseconds (24 h).
SILENCE_MS_MAX = 86_400_000
#: A worker that its node beat on without for longer was killed, and replaced if at all, in milliseconds (10 min).
REPLACED_MS = 600_000
#: A job's record names its worker, in as many bytes; a longer name would never be found again.
WORKER_BYTES_MAX = TEXT_BYTES_MAX

FLAGS = (DRAINED, DEAD)

_WORKER_FIELDS = ("node", "engine", "pid", "started_at", "slots", "job")


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself with each beat. `started_at` is epoch milliseconds."""

    name: str
    node: str
    engine: str
    pid: int
    started_at: int
    slots: int = 1
    job: str = ""  #: the key of the job it runs, empty while it waits

    def __post_init__(self) -> None:
        check_part("worker", self.name, WORKER_BYTES_MAX)
        check_name("node", self.node)
        check_part("engine", self.engine, ENGINE_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker by its last beat."""

    name: str
    node: str
    engine: str
    beaten_at: int
    pid: int
    job: str
    slots: int = 1
    started_at: int = 0
    silent_ms: int = 0  #: since its last beat


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node by its last beat; `beaten_at` is 0 for one that is only known by its flag."""

    name: str
    beaten_at: int
    silent_ms: int
    flag: str = ""  #: `drained`, `dead` or empty
    pressure: int = 0
    models: frozenset[str] = frozenset()
    workers: tuple[WorkerSeen, ...] = ()


class Nodes:
    """`broker:nodes`, `broker:workers`, their hashes, and `broker:nodeflags`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = store.client
        self._keys = store.keys

    def beat(self, worker: WorkerInfo) -> None:
        """The worker lives, and so does its node: one round trip. Raises Unavailable."""
        now = self._store.clock.now()
        said: dict[Any, Any] = {name: str(getattr(worker, name)) for name in _WORKER_FIELDS}
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.zadd(self._keys.workers, {worker.name: now})
            pipe.zadd(self._keys.nodes, {worker.node: now})
            pipe.hset(self._keys.worker(worker.name), mapping=said)
            pipe.pexpire(self._keys.worker(worker.name), SILENCE_MS_MAX)
            # Names of workers are never used twice: those of the dead would pile up.
            pipe.zremrangebyscore(self._keys.workers, 0, now - SILENCE_MS_MAX)
            pipe.execute()

    def check_heard(self) -> None:
        """Raises Unavailable where Redis would take no beat: it is full, or its disk is. Changes nothing."""
        with redis_errors():
            self._client.zadd(self._keys.nodes, {"": 0}, xx=True)

    def leave(self, worker_name: str) -> None:
        """The worker ends in good order: it is forgotten at once."""
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._keys.workers, worker_name)
            pipe.delete(self._keys.worker(worker_name))
            pipe.execute()

    def tell(self, node: str, *, pressure: int = 0, models: Iterable[str] = ()) -> None:
        """What a node says of itself beside its beats: work that the broker does not know of, and its models."""
        key = self._keys.node(check_name("node", node))
        said: dict[Any, Any] = {
            "pressure": str(max(0, pressure)),
            "models": json.dumps(sorted(models)),
        }
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.hset(key, mapping=said)
            pipe.pexpire(key, SILENCE_MS_MAX)
            pipe.execute()

    def workers(self, now: int) -> list[WorkerSeen]:
        """Every worker not yet forgotten, by name; `now` is Redis's time, epoch milliseconds."""
        beats = self._beats(self._keys.workers)
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for name in beats:
                pipe.hmget(self._keys.worker(name), _WORKER_FIELDS)
            said = pipe.execute()
        return [
            _worker(name, beaten_at, now, values)
            for (name, beaten_at), values in zip(beats.items(), said, strict=True)
            if values[0] is not None  # it left between the two reads
        ]

    def nodes(self, now: int) -> list[NodeSeen]:
        """Every node that beat, has workers or a flag, by name, each with its workers."""
        workers, flags, beats = self.workers(now), self.flags(), self._beats(self._keys.nodes)
        of_node: dict[str, list[WorkerSeen]] = {name: [] for name in beats.keys() | flags.keys()}
        for worker in workers:
            of_node.setdefault(worker.node, []).append(worker)
        names = sorted(of_node)
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hmget(self._keys.node(name), "pressure", "models")
            said = pipe.execute()
        return [
            NodeSeen(
                name=name,
                beaten_at=beats.get(name, 0),
                silent_ms=max(0, now - beats.get(name, 0)),
                flag=flags.get(name, ""),
                pressure=read_number(pressure),
                models=_names(models),
                workers=tuple(of_node[name]),
            )
            for name, (pressure, models) in zip(names, said, strict=True)
        ]

    def _beats(self, key: str) -> dict[str, int]:
        """Who beat, by name, and when last."""
        with redis_errors():
            found = self._client.zrange(key, 0, -1, withscores=True)
        pairs = cast("list[tuple[bytes, float]]", found)
        return {
            read_text(name): int(beaten_at) if isfinite(beaten_at) else 0
            for name, beaten_at in sorted(pairs)
        }

    def flags(self) -> dict[str, str]:
        """The operator's word on nodes: `drained` or `dead`."""
        with redis_errors():
            found = self._client.hgetall(self._keys.nodeflags)
        flags = cast("dict[bytes, bytes]", found)
        return {read_text(name): read_text(flag) for name, flag in flags.items()}

    def set_flag(self, node: str, flag: str | None) -> None:
        """Say `drained` (nothing new), `dead` (gone for good), or None: like any other."""
        check_name("node", node)
        if flag not in (*FLAGS, None):
            raise Invalid(f"a node is {' or '.join(FLAGS)}, not {flag!r}")
        with redis_errors():
            if flag is None:
                self._client.hdel(self._keys.nodeflags, node)
            else:
                self._client.hset(self._keys.nodeflags, node, flag)

    def remove(self, node: str) -> bool:
        """Forget the node, its workers and its flag; whether it was known. One that still beats comes back."""
        is_known = self._drop(node)
        with redis_errors():
            was_flagged = bool(self._client.hdel(self._keys.nodeflags, node))
        return is_known or was_flagged

    def _drop(self, node: str) -> bool:
        gone = [worker.name for worker in self.workers(0) if worker.node == node]
        self._drop_workers(gone)
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._keys.nodes, node)
            pipe.delete(self._keys.node(node))
            known = pipe.execute()
        return any(known) or bool(gone)

    def _drop_workers(self, names: Collection[str]) -> None:
        if not names:
            return
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._keys.workers, *names)
            pipe.delete(*map(self._keys.worker, names))
            pipe.execute()

    def forget(self, now: int, busy: Collection[str]) -> list[str]:
        """Let go of the nodes silent for 24 h, but for the `busy` ones, which still have jobs; give their names.

        The operator's flag stays: a node that was drained for a repair comes back drained.
        """
        with redis_errors():
            found = self._client.zrangebyscore(self._keys.nodes, 0, now - SILENCE_MS_MAX)
        silent = map(read_text, cast("list[bytes]", found))
        return [name for name in silent if name not in busy and self._drop(name)]

    def forget_replaced(self, silent_ms: int) -> list[str]:
        """Let go of the workers that their nodes have beaten on without for longer; give their names.

        Whoever is killed never says farewell, and its place is taken under another name. One that was only frozen
        comes back with its next beat; the workers of a node that is silent itself stay, to tell what it had.
        """
        beats = self._beats(self._keys.nodes)
        gone = [
            worker.name
            for worker in self.workers(0)
            if beats.get(worker.node, 0) - worker.beaten_at > silent_ms
        ]
        self._drop_workers(gone)
        return gone


def _worker(name: str, beaten_at: int, now: int, values: list[Any]) -> WorkerSeen:
    node, engine, pid, started_at, slots, job = values
    return WorkerSeen(
        name=name,
        node=read_text(node),
        engine=read_text(engine),
        beaten_at=beaten_at,
        pid=read_number(pid),
        job=read_text(job),
        slots=read_number(slots) or 1,
        started_at=read_number(started_at),
        silent_ms=max(0, now - beaten_at),
    )


def _names(text: bytes | None) -> frozenset[str]:
    """The models that a node tells; what is no list of names counts as not said, as all nonsense of one node does."""
    try:
        found = json.loads(text or b"[]")
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()
