"""However many write meanwhile, an audit of healthy books finds nothing."""

from __future__ import annotations

import random
import time
from contextlib import suppress

import pytest

from broker.errors import Unavailable
from broker.rules.event import Report
from broker.store import audit as audits
from broker.store.audit import Audit
from broker.store.log import Log
from broker.store.view import View
from tests.store.churn import Churn, jobs
from tests.store.readers import ORIGIN

#: Every kind of applied event that must have been among those of a run.
RULES = (
    "submitted", "placed", "started", "finished", "requeued", "unplaced", "guess_applied", "guess_cleared", "lost",
    "desired", "pruned", "removed", "remove_requested", "first_sighting", "newer_generation", "higher_seq",
    "higher_rank", "repoint",
)  # fmt: skip

#: It takes a few on a free machine: this catches a hang, and no slow one.
SECONDS_MAX = 480


def unheard(churn):
    return [rule for rule in RULES if f"applied {rule}" not in churn.told]


@pytest.mark.parametrize("hot, resting, page", [(60, 0, 7), (400, 2_000, 100)])
def test_an_audit_under_churn_finds_nothing(
    redis_url, store, namespace, monkeypatch, hot, resting, page
):
    """Small pages, so that much happens between the looks; a short log, so that it is cut under them."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    monkeypatch.setattr(audits, "PAGE", page)
    at_rest = [
        Report(key=key._replace(id=f"r{key.id}"), created_at=1_000, state="running")
        for key in jobs(resting)
    ]
    View(store).apply(at_rest)
    looked = []

    def look():
        audit = Audit(store, ORIGIN, also=[key.job for key in jobs(hot)])
        while not audit.step():
            pass
        assert audit.findings == [], seed
        return audit.looked

    with Churn(redis_url, namespace, seed, jobs(hot)) as churn:
        until = time.monotonic() + SECONDS_MAX
        while churn.applied < 4_000 or len(looked) < 3 or unheard(churn):
            assert time.monotonic() < until, (seed, churn.told, looked)
            with suppress(
                Unavailable
            ):  # the log was cut faster than it could read: it says so, and guesses at nothing
                looked.append(look())
    assert look() >= resting
    assert Log(store, ORIGIN).position().floor != "0-0"
