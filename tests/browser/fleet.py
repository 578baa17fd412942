"""A fleet as people have it, with every kind of job that a page must show; all of it real, written by the client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from broker import Broker, Key, WorkerInfo
from broker.jobs.holder import Holder
from broker.roles.auditor import Auditor
from broker.rules.event import Place
from broker.store.group import Group
from tests.system.command import guessed, held, placed

HOSTILE_ID = '<img src=x onerror="alert(1)">'
HOSTILE_ERROR = "<script>alert(1)</script> \u202egnp.exe\u202c <b>bold</b> &amp; \x1b[31mred"
HOUR_MS = 3_600_000

#: Node -> engine -> slots.
SLOTS = {
    "atlas": {"ollama": 4, "thumbnail": 2},
    "nas": {"checksum": 2, "thumbnail": 1},
    "studio": {"ollama": 2},
    "attic": {"ollama": 2},
}
SILENT = "attic"
_MODELS = ("llama3.1:8b", "qwen3:14b", "gemma3:4b")
_ERRORS = (
    "connection to 10.0.4.17:11434 refused",
    "connection to 10.0.4.18:11434 refused",
    "CUDA out of memory: tried to allocate 2048 MiB (GPU 0)",
    "CUDA out of memory: tried to allocate 512 MiB (GPU 1)",
    "no such file: /mnt/photos/2026/11/IMG_4711.jpg",
    "no such file: /mnt/photos/2026/10/IMG_0815.jpg",
    "exit code 3",
)


@contextmanager
def beating(broker: Broker, jobs: dict[str, str] | None = None) -> Iterator[None]:
    """The workers of SLOTS beat while the context lasts, but for those of SILENT. `jobs`: worker -> its job."""
    stop = threading.Event()
    workers = [worker for node in SLOTS if node != SILENT for worker in workers_of(node)]

    def beat() -> None:
        while not stop.is_set():
            for name, node, engine in workers:
                broker.beat(_info(name, node, engine, (jobs or {}).get(name, "")))
            stop.wait(0.5)

    thread = threading.Thread(target=beat, name="beats")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def workers_of(node: str) -> list[tuple[str, str, str]]:
    """Name, node and engine of each worker."""
    slots = SLOTS[node].items()
    return [(f"{node}-{engine}-{n}", node, engine) for engine, many in slots for n in range(many)]


def fall_silent(broker: Broker, node: str = SILENT, ms: int = 95_000) -> None:
    """The node's workers beat last so long ago."""
    at = broker.store.clock.now() - ms
    for worker in workers_of(node):
        broker.beat(_info(*worker, ""))
        broker.store.client.zadd(broker.store.keys.workers, {worker[0]: at})
    broker.store.client.zadd(broker.store.keys.nodes, {node: at})


def start(broker: Broker, key: Key, node: str, worker: str) -> Holder:
    """The job runs on that worker."""
    placed(broker, key, node)
    record = broker.get(key)
    holder = Holder(
        broker,
        key,
        created_at=record.created_at,
        attempt=record.attempt,
        node=node,
        worker=worker,
    )
    assert holder.start().applied
    return holder


def populate(broker: Broker) -> dict[str, str]:
    """Jobs of every kind. Gives which worker runs which job, for their beats."""
    running: dict[str, str] = {}
    for n, (name, node, engine) in enumerate(workers_of("atlas")[:4] + workers_of("nas")[:2]):
        key = _submit(broker, engine, n)
        holder = start(broker, key, node, name)
        holder.progress(0.25 * (n % 4))
        holder.write(f"chunk {n} of the answer\n")
        running[name] = str(key)
    _end_some(broker)
    for n in range(5):
        _submit(broker, "thumbnail", n, origin="lab", priority=n)
    _submit(broker, "whisper", 0, origin="lab")
    _submit(broker, "thumbnail", 1, origin="lab", delay=600)
    placed(broker, _submit(broker, "ollama", 3), "studio")
    doubtful = _submit(broker, "ollama", 4, origin="lab")
    start(broker, doubtful, SILENT, f"{SILENT}-ollama-0")
    judged = _submit(broker, "ollama", 5, origin="lab")
    start(broker, judged, SILENT, f"{SILENT}-ollama-1")
    guessed(broker, judged)
    _age(broker, doubtful)
    _report_some(broker)
    return running


def _submit(broker: Broker, engine: str, n: int, **options: object) -> Key:
    model = _MODELS[n % 3] if engine == "ollama" else ""
    return broker.submit(
        engine, {"n": n, "prompt": "Why is the sky blue?"}, model=model, **options
    ).key


def _end_some(broker: Broker) -> None:
    for n in range(12):
        key = _submit(broker, ("thumbnail", "checksum", "ollama")[n % 3], n)
        holder = held(broker, key, "nas")
        if n % 4 == 3:
            holder.finish("failed", error=_ERRORS[n % len(_ERRORS)])
        else:
            holder.finish("completed", result={"n": n})
    for n, error in enumerate((*_ERRORS, HOSTILE_ERROR)):
        held(broker, _submit(broker, "thumbnail", n), "nas").finish("failed", error=error)
    broker.cancel(_submit(broker, "checksum", 99, origin="lab"))


def _report_some(broker: Broker) -> None:
    now = broker.store.clock.now()
    for n in range(9):
        event = {
            "event": "report", "origin": "phone", "engine": ("ollama", "openai")[n % 2], "run": "a1f3", "id": str(n),
            "state": ("queued", "running", "completed")[n % 3], "node": "atlas", "seq": 3, "model": _MODELS[n % 3],
            "created_at": now - n * HOUR_MS, "started_at": now - n * HOUR_MS + 900,
        }  # fmt: skip
        if n % 3 == 2:
            event["completed_at"] = now - n * HOUR_MS + 61_000
        broker.report(event)
    # Two of the same number: another engine, another run.
    for engine, run in (("ollama", ""), ("openai", "b2")):
        broker.report(
            {"event": "report", "origin": "phone", "engine": engine, "run": run, "id": "7", "state": "running",
             "node": "studio", "seq": 2, "created_at": now - 1_000}
        )  # fmt: skip
    late = {
        "event": "report",
        "origin": "phone",
        "engine": "ollama",
        "run": "",
        "id": "7",
        "created_at": now - 1_000,
    }
    broker.report(late | {"state": "queued", "seq": 1})  # refused: older than what is known
    broker.report(
        {"event": "report", "origin": "phone", "engine": "ollama", "id": HOSTILE_ID, "state": "failed", "seq": 1,
         "created_at": now - 2_000, "error": HOSTILE_ERROR, "model": "<b>m</b>"}
    )  # fmt: skip


def subscribe(broker: Broker) -> None:
    """`mail` has read all, `webhooks` lags and has parked, `archive` fell silent a day ago."""
    member(broker, "mail", "lab", 1_000)
    member(
        broker, "webhooks", "lab", 3, park="HTTP 500 from https://hooks.example/jobs: <b>teapot</b>"
    )
    member(broker, "archive", "phone", 2)
    now = broker.store.clock.now()
    keys = broker.store.keys
    broker.store.client.hset(keys.groups, "archive", now - 24 * HOUR_MS)
    broker.store.client.hset(keys.of("phone").sub("archive"), "until", now - 1)


def member(broker: Broker, name: str, origin: str, count: int, park: str = "") -> None:
    """A member of the group handles, or parks, the first entries of an origin."""
    hands = Group(broker.store, name, f"{name}-1", lease_ms=60_000, parked_max=1_000)
    hands.look([origin])
    term = hands.claim(origin).term
    for rev, _ in hands.fetch(origin, term, count).entries:
        if park:
            hands.park(origin, term, rev.decode(), park)
        else:
            hands.ack(origin, term, rev.decode())


def audit(broker: Broker) -> None:
    """One whole round of a real auditor, which leads as long as the test lasts."""
    auditor = Auditor(broker.store, budgets=broker.config.budgets, round_seconds=0)
    for _ in range(10_000):
        auditor.step()
        # On a machine that stands still its lease may run out before: the next step takes it anew.
        if broker.audit().at and broker.store.client.persist(broker.store.keys.leader("auditor")):
            return
    raise AssertionError("the auditor never ended its round")


def place(broker: Broker, key: Key, node: str) -> None:
    """As a dispatcher places."""
    broker.view.apply([Place(key=key, node=node, rev=broker.get(key).rev, term=1)])


def _age(broker: Broker, key: Key) -> None:
    """Its holder was heard of a minute ago."""
    job = broker.store.keys.of_job(key).job
    broker.store.client.hset(job, "last_seen", broker.store.clock.now() - 60_000)


def _info(name: str, node: str, engine: str, job: str) -> WorkerInfo:
    return WorkerInfo(name, node, engine, pid=4711, started_at=1_790_000_000_000, job=job)
