"""Which node a ready job goes to: late binding, least loaded first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A node as the dispatcher sees it.

    `slots` counts its workers with a fresh beat for each engine, `taken` the placed and running jobs that hold them;
    `jobs` is all its load (of all engines, submitted and reported), `pressure` what the node reports beside.
    """

    name: str
    slots: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    pressure: int = 0
    models: frozenset[str] = frozenset()
    open: bool = True  #: neither drained nor suspect

    def free(self, engine: str) -> int:
        """Slots of the engine that nothing holds."""
        return self.slots.get(engine, 0) - self.taken.get(engine, 0)


def choose(nodes: Iterable[NodeLoad], engine: str, model: str = "") -> str:
    """The name of the node to place on, empty where none has a free slot: the job stays ready, cancel is free."""
    fitting = [
        node
        for node in nodes
        if node.open
        and node.free(engine) > 0
        and (not model or not node.models or model in node.models)
    ]
    best = min(
        fitting,
        key=lambda node: (node.jobs + node.pressure, node.pressure, node.name),
        default=None,
    )
    return best.name if best else ""
