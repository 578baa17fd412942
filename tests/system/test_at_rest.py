"""Thousands of jobs come and go, round after round: at rest, what lies in Redis is no more than the round before."""

from __future__ import annotations

import random

import pytest

from broker.rules.event import (
    Finish,
    Guess,
    Intent,
    Place,
    Remove,
    RemovePair,
    Report,
    Start,
    Submit,
)
from broker.rules.key import Key
from broker.store.output import write
from tests.roles.fleet import Fleet, settle
from tests.store.members import Owner
from tests.store.readers import ORIGIN

DAY_MS = 86_400_000
ROUNDS = 8
#: From which round on things of earlier ones are a week old: a round is three days.
SETTLED = 3
#: Jobs of each kind in a round.
JOBS = 300
#: How the members of a key are counted.
SIZE = {"hash": "HLEN", "zset": "ZCARD", "stream": "XLEN", "list": "LLEN"}
#: Above that of any real leader.
TERM = 10**14
LOW = {
    "log_max": 500,
    "log_hard_max": 2_000,
    "done_max": 100,
    "tombstones_max": 400,
    "answers_max": 200,
    "answers_ms_min": 1,
}


@pytest.fixture
def fleet(store):
    made = Fleet(store)
    yield made
    made.close()


class Churn:
    """What a busy origin sees in a round: jobs of its own and reported ones, in every way that they can go."""

    def __init__(self, fleet, turn):
        self.fleet = fleet
        self.turn = turn
        self.chance = random.Random(7)  # each round is like the others
        self.now = fleet.clock.now()
        self.view = fleet.janitors[0]._view  # under the low bounds

    def key(self, engine, n):
        return Key(ORIGIN, engine, f"run{self.turn}", f"{n}")

    def tell(self, events):
        return self.view.apply(events)

    def submitted(self):
        keys = [self.key("echo", n) for n in range(JOBS)]
        created = [self.now + n for n in range(JOBS)]
        self.tell(
            [
                Submit(key=key, created_at=at, digest="d", spec='{"payload":1}', event_id="s")
                for key, at in zip(keys, created, strict=True)
            ]
        )
        self.tell([Intent(key=key, event_id="i") for key in keys[: JOBS // 10]])
        ours = list(zip(keys, created, strict=True))[JOBS // 10 :]
        revs = [record.rev for record in self.view.get_many([key for key, _ in ours])]
        placed = zip(ours, revs, strict=True)
        places = [Place(key=key, node="n", rev=rev, term=TERM) for (key, _), rev in placed]
        assert {answer.rule for answer in self.tell(places)} == {"placed"}
        said = [{"key": key, "created_at": at, "attempt": 1, "holder": "h"} for key, at in ours]
        self.tell([Start(**told, node="n", worker="w", event_id="b") for told in said])
        for key, _ in ours[:20]:
            write(self.fleet.store, key, 1, "chunk", "x" * 100, DAY_MS)
        states = ("completed", "failed", "cancelled")
        self.tell([Finish(**told, state=self.chance.choice(states), result="1") for told in said])
        self.tell([Remove(key=key, event_id="r") for key in keys[::7]])

    def reported(self):
        keys = [self.key("ollama", n) for n in range(JOBS)]
        for seq, state in enumerate(("queued", "running", "completed"), 1):
            some = [key for key in keys if seq < 3 or self.chance.random() < 0.8]
            self.tell(
                [
                    Report(
                        key=key,
                        created_at=self.now,
                        state=state,
                        node=f"n{n % 3}",
                        seq=seq * (n % 2),
                        extras='{"x":1}',
                    )
                    for n, key in enumerate(some)
                ]
            )
        late = [Report(key=key, created_at=self.now, state="queued", seq=1) for key in keys]
        self.tell(self.chance.sample(late, 100))
        for n in range(20):
            self.tell([RemovePair(origin=ORIGIN, id=f"{n * 3}")])
        left = zip(keys, self.view.get_many(keys), strict=True)
        live = [(key, record) for key, record in left if record and not record.ended][:20]
        self.tell(
            [
                Guess(key=key, rev=record.rev, last_seen=record.last_seen, term=TERM)
                for key, record in live
            ]
        )

    def read(self):
        """One group lives; another one of each round is never seen again."""
        for name in ("lasting", f"passing{self.turn}"):
            owner = Owner(self.fleet.store, f"{name}{self.turn}", name=name, parked_max=20)
            owner.group.look([ORIGIN])
            while revs := owner.fetch():
                owner.park(revs[0])
                owner.ack(revs[-1])
            owner.release()

    def beat(self):
        self.fleet.workers.clear()
        self.fleet.workers_of(f"node{self.turn}", engine=f"engine{self.turn}", count=5)


def at_rest(fleet, namespace):
    """What no time will take away: how many keys, how many members they have, and their bytes."""
    client = fleet.store.client
    names = sorted(client.scan_iter(f"{namespace}:*", count=1_000))
    kinds = [client.type(name).decode() for name in names]
    with client.pipeline(transaction=False) as pipe:
        for name, kind in zip(names, kinds, strict=True):
            pipe.pttl(name)
            pipe.memory_usage(name, samples=0)
            pipe.execute_command(SIZE.get(kind, "STRLEN"), name)
        told = pipe.execute()
    found = list(zip(kinds, told[::3], told[1::3], told[2::3], strict=True))
    assert all(ms <= DAY_MS for _, ms, _, _ in found)
    lasting = [(size, count, kind) for kind, ms, size, count in found if ms == -1]
    members = sum(count for _, count, kind in lasting if kind in SIZE)
    return len(lasting), members, sum(size for size, _, _ in lasting)


def test_at_rest_nothing_grows_from_round_to_round(fleet, namespace):
    janitor = fleet.janitor(**LOW)
    seen = []
    for turn in range(ROUNDS):
        churn = Churn(fleet, turn)
        churn.beat()
        churn.submitted()
        churn.reported()
        churn.read()
        settle(janitor, 500)
        fleet.clock.ahead_ms += 3 * DAY_MS
        fleet.dispatcher().step()  # forgets nodes
        fleet.dispatchers.pop().close()
        settle(janitor, 500)
        seen.append(at_rest(fleet, namespace))
    keys, members, sizes = zip(*seen[SETTLED:], strict=True)
    assert max(keys) == keys[0], seen
    assert max(members) == members[0], seen
    assert max(sizes) <= sizes[0] * 1.05, seen
