"""What the newest beats mean to a sweep: how each node stands, and whether anybody may be judged by them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.rules.liveness import Budgets
from broker.rules.sweep import DEAD, Standing, in_doubt
from broker.store.nodes import NodeSeen


def standings(nodes: Iterable[NodeSeen], budgets: Budgets) -> dict[str, Standing]:
    """How each node stands, by name."""
    return {
        node.name: Standing.of(
            node.beaten_at, node.silent_ms, _has_workers(node, budgets), node.flag, budgets
        )
        for node in nodes
    }


def has_left(node: NodeSeen, budgets: Budgets) -> bool:
    """Whether all its workers ended in good order: it is silent, and nobody is listed that fell silent with it."""
    is_silent = node.beaten_at > 0 and node.silent_ms > budgets.suspect_ms
    return is_silent and not _has_workers(node, budgets)


def _has_workers(node: NodeSeen, budgets: Budgets) -> bool:
    """Whether any fell silent with the node: one that was killed long before says nothing of its end."""
    since = node.silent_ms + budgets.guess_ms
    return any(worker.silent_ms < since for worker in node.workers)


def is_braked(nodes: Iterable[NodeSeen], budgets: Budgets) -> bool:
    """Whether most workers fell silent together, but for those of nodes that the operator calls dead."""
    counted = [worker for node in nodes if node.flag != DEAD for worker in node.workers]
    return in_doubt([worker.silent_ms for worker in counted], budgets)


def unheard(nodes: Iterable[NodeSeen], budgets: Budgets) -> set[str]:
    """The workers that are silent for so long that the brake counts them as silent."""
    workers = [worker for node in nodes for worker in node.workers]
    return {worker.name for worker in workers if worker.silent_ms > budgets.suspect_ms}
