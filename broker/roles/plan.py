"""Which waiting jobs go to which nodes now: a function of the load view and of the fleet as it was seen."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from broker.roles.load import Load
from broker.rules.event import Place
from broker.rules.placement import NodeLoad, choose
from broker.store.nodes import NodeSeen


def node_loads(load: Load, fleet: Iterable[NodeSeen], suspect_ms: int) -> dict[str, NodeLoad]:
    """The nodes by name, each with its slots (of workers with a fresh beat) and what it carries."""
    alive: set[str] = set()
    nodes = {}
    for seen in fleet:
        slots: Counter[str] = Counter()
        for worker in seen.workers:
            if worker.silent_ms <= suspect_ms:
                alive.add(worker.name)
                slots[worker.engine] += worker.slots
        nodes[seen.name] = NodeLoad(
            name=seen.name,
            slots=slots,
            jobs=load.carried(seen.name),
            pressure=seen.pressure,
            models=seen.models,
            open=not seen.flag and seen.silent_ms <= suspect_ms,
        )
    for (node, engine), count in load.taken(alive).items():
        if node in nodes:
            nodes[node].taken[engine] = count
    return nodes


def _with_job(node: NodeLoad, engine: str) -> NodeLoad:
    """The node as it is after one more job was placed on it."""
    taken = {**node.taken, engine: node.taken.get(engine, 0) + 1}
    return replace(node, taken=taken, jobs=node.jobs + 1)


def plan_places(load: Load, nodes: dict[str, NodeLoad], term: int, count: int) -> list[Place]:
    """At most `count` places, best job first; those jobs no longer wait. `nodes` carry them from now on."""
    heads = [(score, key, kind) for kind, (score, key) in load.heads().items()]
    heapq.heapify(heads)
    places: list[Place] = []
    while heads and len(places) < count:
        _, key, kind = heapq.heappop(heads)
        node = choose(nodes.values(), *kind)
        if not node:
            continue  # no slot for this one, so none for the others of its kind
        nodes[node] = _with_job(nodes[node], key.engine)
        rev = load.take(kind, key).rev
        # The same place said twice by one leader is one: a re-send finds its answer.
        places.append(Place(key=key, node=node, rev=rev, term=term, event_id=f"{rev}/{term}"))
        if head := load.head(kind):
            heapq.heappush(heads, (*head, kind))
    return places
