"""Writers at their worst: threads that tell one origin all kinds of events at random, while its log is trimmed."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from broker.errors import Unavailable
from broker.rules.bounds import Bounds
from broker.rules.event import (
    Finish,
    Guess,
    Intent,
    Lost,
    Place,
    Prune,
    Reassert,
    Remove,
    RemovePair,
    Report,
    Requeue,
    Start,
    Submit,
    Unplace,
)
from broker.rules.key import Key
from broker.rules.record import SUBMITTED
from broker.store.beat import beat
from broker.store.log import Log
from broker.store.queue import move_due
from broker.store.store import Store
from broker.store.view import View
from tests.store.readers import ORIGIN, patient

TERM = 10**14
ENGINES = ("ollama", "a b/%")
STATES = ("queued", "running", "completed", "failed", "cancelled")
BOUNDS = Bounds(tombstones_max=2_000, answers_max=500, answers_ms_min=1)


def jobs(count):
    """So many identities; four share each (origin, id)."""
    return [Key(ORIGIN, ENGINES[n % 2], ("", "r1")[n // 2 % 2], f"{n // 4}") for n in range(count)]


def next_event(key, record, now, chance):
    """What may happen to a job that stands so: mostly what honest parties would say, some of it late or wrong."""
    told = {"key": key}
    created_at = now if record is None else record.created_at
    generation = chance.choice([created_at] * 8 + [created_at - 1, now])
    kinds = ["report"] * 3 + ["submit"]
    if record is not None and record.kind == SUBMITTED:
        if record.ended:
            kinds = ["prune", "remove", "finish"]
        elif record.inferred:
            kinds = ["requeue", "lost", "reassert", "finish", "start", "guess"]
        elif record.holder:
            kinds = ["finish"] * 4 + ["guess"] * 2 + ["beat", "cancel", "remove"]
        else:
            kinds = ["place", "start", "start", "unplace", "cancel"]
    elif record is not None:
        kinds = ["report"] * 8 + ["guess", "prune", "remove", "cancel"]
    swept = {"rev": record.rev if record else "1-0", "term": TERM} | told
    last_seen = record.last_seen if record else 0
    attempt = record.attempt if record else 1
    held = told | {"created_at": created_at, "attempt": attempt}
    match chance.choice(kinds):
        case "report":
            seq = chance.choice([0, (record.seq if record else 0) + 1, 1, 5])
            return Report(
                **told, created_at=generation, state=chance.choice(STATES), seq=seq,
                node=chance.choice(["", "n1", "n2"]), completed_at=chance.choice([0, now, 7_000]),
                error=chance.choice(["", "boom"]), resync=chance.random() < 0.1,
            )  # fmt: skip
        case "submit":
            due = now + chance.choice([-5, 0, 3, 30, 300])
            return Submit(
                **told, created_at=now, digest="d", attempts=chance.choice([1, 2]), due=max(0, due),
                priority=chance.randint(-100, 100), spec='{"payload":1}',
            )  # fmt: skip
        case "place":
            return Place(**swept, node="n1")
        case "start":
            return Start(**held, node="n1", holder=f"h{attempt}", worker="w1")
        case "beat":
            return "beat"
        case "reassert":
            return Reassert(**held, holder=f"h{attempt}")
        case "finish":
            return Finish(
                **held, holder=f"h{attempt}", state=chance.choice(STATES[2:]), result='"r"',
                retryable=chance.random() < 0.5, died=chance.random() < 0.2,
                due=now + chance.choice([0, 2, 20, 200]),
            )  # fmt: skip
        case "unplace":
            return Unplace(**swept)
        case "guess":
            return Guess(**swept, last_seen=last_seen, error="n1 went offline")
        case "requeue":
            return Requeue(**swept, due=now + chance.choice([0, 2, 20]))
        case "lost":
            return Lost(**swept)
        case "cancel":
            return Intent(
                **told, desired=chance.choice(["cancel", "remove"]), force=chance.random() < 0.3
            )
        case "prune":
            return Prune(**swept, last_seen=last_seen)
        case "remove":
            return Remove(
                **told,
                removed_at=chance.choice([0, created_at, created_at - 1]),
                force=chance.random() < 0.3,
            )
    raise AssertionError("a kind without an event")


@dataclass
class Churn:
    """`with Churn(...)`: the writers run until the block ends. `told` counts the events by their answer."""

    url: str
    namespace: str
    seed: int
    keys: list[Key]
    writers: int = 3
    log_max: int = 3_000
    told: dict[str, int] = field(default_factory=dict)

    def __enter__(self):
        self._lock = threading.Lock()  # `told` is written by each writer, and read meanwhile
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(n, self._write)) for n in range(self.writers)
        ]
        self._threads.append(threading.Thread(target=self._run, args=(-1, self._tend)))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self._over.set()
        for thread in self._threads:
            thread.join()
        assert not self._errors, self._errors

    @property
    def applied(self):
        with self._lock:
            return sum(count for answer, count in self.told.items() if answer.startswith("applied"))

    def _run(self, n, turn):
        store = Store.from_url(patient(self.url), self.namespace)
        try:
            chance = random.Random(f"{self.seed} {n}")
            while not self._over.is_set():
                turn(store, chance)
        except Exception as error:  # noqa: BLE001 - told when the block ends
            self._errors.append(error)
        finally:
            store.close()

    def _write(self, store, chance):
        view, now = View(store, BOUNDS), store.clock.now()
        if chance.random() < 0.2:
            id = chance.choice(self.keys).id
            removed_at = chance.choice([0, now, now - 20, now - 2_000])
            with suppress(Unavailable):  # its jobs changed too often meanwhile
                self._count(
                    view.apply(
                        [
                            RemovePair(
                                origin=ORIGIN, id=id, removed_at=removed_at, force=now % 4 == 0
                            )
                        ]
                    )
                )
            return
        keys = [chance.choice(self.keys) for _ in range(chance.choice([1, 5, 25]))]
        events = []
        for key, record in zip(keys, view.get_many(keys), strict=True):
            event = next_event(key, record, now, chance)
            if event == "beat":
                beat(store, key, record.attempt, record.holder)
            else:
                events.append(event)
        self._count(view.apply(events))

    def _tend(self, store, chance):
        """What janitor and dispatcher do beside: entries go and the floor moves, what is due becomes ready."""
        Log(store, ORIGIN).trim(self.log_max, 10**9, term=TERM)
        move_due(store, ORIGIN, store.clock.now())
        self._over.wait(chance.random() * 0.002)

    def _count(self, answers):
        for answer in answers:
            assert answer.outcome != "error", answer
            name = f"{answer.outcome} {answer.rule}"
            with self._lock:
                self.told[name] = self.told.get(name, 0) + 1
