"""fleet-broker: a job broker for a fleet of machines, whose job list is true.

The public API. Names are imported when they are first used, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.aio.client import AsyncBroker, AsyncJob
    from broker.aio.readers import AsyncReader, AsyncReaders
    from broker.client import Broker, Job
    from broker.config import Engine, Settings, config_path, engines, settings
    from broker.errors import (
        BrokerError,
        Damaged,
        Gone,
        Invalid,
        JobFailed,
        Malformed,
        Misconfigured,
        NotFound,
        Refused,
        Resync,
        TimedOut,
        Unavailable,
        Untrusted,
        Unwritable,
    )
    from broker.jobs.explain import Why
    from broker.jobs.holder import Holder
    from broker.jobs.outcome import Listed, Outcome, Retried
    from broker.jobs.submission import JobOptions
    from broker.logs import set_up_logs
    from broker.producer import AsyncJobEvents, JobEvents
    from broker.readers.readers import Reader, Readers
    from broker.rules.event import Remove, RemovePair, Report
    from broker.rules.filter import Filter
    from broker.rules.handoff import FUNCTION, queue_name, rq_job_id
    from broker.rules.key import Key
    from broker.rules.record import Record
    from broker.rules.trust import Card, read_cards
    from broker.rules.word import Removal
    from broker.store.beat import Beat
    from broker.store.nodes import WorkerInfo
    from broker.store.output import Chunk
    from broker.store.watch import Change, Snapshot, Watcher
    from broker.subscriptions.delivery import Delivery
    from broker.subscriptions.subscription import AsyncSubscription, Subscription
    from broker.trust import Trust
    from broker.waiting.patience import patiently

__all__ = [  # noqa: RUF022 - grouped: it reads as a table of contents
    # Client
    "AsyncBroker",
    "AsyncJob",
    "Broker",
    "Job",
    "JobOptions",
    # Values
    "Chunk",
    "Key",
    "Listed",
    "Outcome",
    "Record",
    "Retried",
    "Why",
    # Reports: programs that run jobs themselves
    "AsyncJobEvents",
    "JobEvents",
    "Remove",
    "RemovePair",
    "Report",
    # Readers
    "AsyncReader",
    "AsyncReaders",
    "AsyncSubscription",
    "Change",
    "Delivery",
    "Filter",
    "Reader",
    "Readers",
    "Snapshot",
    "Subscription",
    "Watcher",
    # Workers
    "FUNCTION",
    "Beat",
    "Holder",
    "WorkerInfo",
    "patiently",
    "queue_name",
    "rq_job_id",
    # Whom this node trusts
    "Card",
    "Removal",
    "Trust",
    "read_cards",
    # Settings, and what every process of ours sets up
    "Engine",
    "Settings",
    "config_path",
    "engines",
    "set_up_logs",
    "settings",
    # Errors, by who must act
    "BrokerError",
    "Damaged",
    "Gone",
    "Invalid",
    "JobFailed",
    "Malformed",
    "Misconfigured",
    "NotFound",
    "Refused",
    "Resync",
    "TimedOut",
    "Unavailable",
    "Untrusted",
    "Unwritable",
]

_HOMES = {
    "broker.aio.client": ("AsyncBroker", "AsyncJob"),
    "broker.aio.readers": ("AsyncReader", "AsyncReaders"),
    "broker.client": ("Broker", "Job"),
    "broker.config": ("Engine", "Settings", "config_path", "engines", "settings"),
    "broker.subscriptions.delivery": ("Delivery",),
    "broker.jobs.explain": ("Why",),
    "broker.jobs.holder": ("Holder",),
    "broker.logs": ("set_up_logs",),
    "broker.jobs.outcome": ("Listed", "Outcome", "Retried"),
    "broker.waiting.patience": ("patiently",),
    "broker.producer": ("AsyncJobEvents", "JobEvents"),
    "broker.readers.readers": ("Reader", "Readers"),
    "broker.rules.event": ("Remove", "RemovePair", "Report"),
    "broker.rules.filter": ("Filter",),
    "broker.rules.handoff": ("FUNCTION", "queue_name", "rq_job_id"),
    "broker.rules.key": ("Key",),
    "broker.rules.record": ("Record",),
    "broker.rules.trust": ("Card", "read_cards"),
    "broker.rules.word": ("Removal",),
    "broker.store.beat": ("Beat",),
    "broker.store.nodes": ("WorkerInfo",),
    "broker.store.output": ("Chunk",),
    "broker.store.watch": ("Change", "Snapshot", "Watcher"),
    "broker.jobs.submission": ("JobOptions",),
    "broker.subscriptions.subscription": ("AsyncSubscription", "Subscription"),
    "broker.trust": ("Trust",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'broker' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF.get(name, "broker.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
