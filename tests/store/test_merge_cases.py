"""Histories with the answers that an independent reading of the table gives, for both twins.

The file is not ours: FLEET_BROKER_CASES names it (JSON lines: events, answers, records); without it nothing is
collected here.
"""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path

from broker.rules.event import Guess, Remove, RemovePair, Report
from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.store import Store
from tests.store.readers import patient
from tests.store.twins import LedgerTwin, RedisTwin

FILE = os.environ.get("FLEET_BROKER_CASES", "")
START = 1_000_000


def event_of(told, twin):
    if told["event"] == "guess":
        record = twin.record(Key(*told["key"])) or Record(kind="", state="")
        return Guess(key=Key(*told["key"]), rev=record.rev, last_seen=record.last_seen, term=1)
    if told["event"] == "report":
        fields = ("created_at", "state", "node", "seq", "resync")
        return Report(key=key_of(told), **{name: told[name] for name in fields})
    removed_at = told["removed_at"] or 0
    if "engine" in told:
        return Remove(key=key_of(told), removed_at=removed_at)
    return RemovePair(origin=told["origin"], id=told["id"], removed_at=removed_at)


def key_of(told):
    return Key(told["origin"], told["engine"], told["run"], told["id"])


def check(case, twin):
    for now, told, answer in zip(count(START + 1), case["events"], case["answers"], strict=False):
        twin.clock.time = now
        [found] = twin.apply([event_of(told, twin)])
        assert answer is None or [found.outcome, found.rule] == answer, told
    records = [
        [*key, record.state, record.node, record.seq, record.inferred]
        for key, record in twin.books().records.items()
    ]
    assert sorted(records) == sorted(case["records"])


if FILE:
    CASES = [json.loads(line) for line in Path(FILE).read_text().splitlines()]

    def test_the_ledger_answers_every_case():
        for case in CASES:
            check(case, LedgerTwin())

    def test_the_script_answers_every_case(redis_url, namespace):
        for number, case in enumerate(CASES):
            store = Store.from_url(patient(redis_url), f"{namespace}-{number}")
            check(case, RedisTwin(store))
            store.close()
