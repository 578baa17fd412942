"""The fleet as every face shows it: a node's slots, load and workers, derived from their beats."""

from __future__ import annotations

from typing import Any

from broker.rules.liveness import Budgets
from broker.store.nodes import NodeSeen, WorkerSeen
from broker.store.standing import has_left


def node_json(node: NodeSeen, budgets: Budgets) -> dict[str, Any]:
    """A node's JSON. A worker that was silent for longer than `suspect_ms` offers no slot.

    `suspect` is its silence, `left` that its workers said farewell before.
    """
    suspect_ms = budgets.suspect_ms
    engines: dict[str, dict[str, int]] = {}
    for worker in node.workers:
        if worker.silent_ms > suspect_ms:
            continue
        engine = engines.setdefault(worker.engine, {"slots": 0, "running": 0})
        engine["slots"] += worker.slots
        engine["running"] += bool(worker.job)
    return {
        "node": node.name,
        "flag": node.flag or None,
        "suspect": node.silent_ms > suspect_ms,
        "left": has_left(node, budgets),
        "beaten_at": node.beaten_at or None,
        "silent_ms": node.silent_ms if node.beaten_at else None,
        "slots": sum(engine["slots"] for engine in engines.values()),
        "running": sum(engine["running"] for engine in engines.values()),
        "pressure": node.pressure,
        "models": sorted(node.models),
        "engines": dict(sorted(engines.items())),
        "workers": [_worker_json(worker, suspect_ms) for worker in node.workers],
    }


def _worker_json(worker: WorkerSeen, suspect_ms: int) -> dict[str, Any]:
    return {
        "name": worker.name,
        "engine": worker.engine,
        "pid": worker.pid,
        "started_at": worker.started_at or None,
        "beaten_at": worker.beaten_at,
        "suspect": worker.silent_ms > suspect_ms,
        "job": worker.job or None,
    }
