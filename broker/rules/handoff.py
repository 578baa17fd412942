"""The names under which a placed attempt is handed to RQ: both sides derive them, neither stores them."""

from __future__ import annotations

import hashlib

from broker.rules.key import Key, encode

#: The one function that RQ calls; our workers refuse every other.
FUNCTION = "workers.run.run"


def queue_name(namespace: str, node: str, engine: str) -> str:
    """The RQ queue of one engine on one node."""
    return f"{namespace}:{node}:{encode(engine)}"


def rq_job_id(namespace: str, key: Key, created_at: int, attempt: int) -> str:
    """The RQ job id of one attempt: safe characters for every key, and the same however often it is enqueued."""
    digest = hashlib.sha256(f"{namespace} {key} {created_at}".encode()).hexdigest()
    return f"b-{digest}-{attempt}"
