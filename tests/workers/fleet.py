"""Real workers in processes of their own, and the dispatcher's part done by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import redis
from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.serializers import JSONSerializer

from broker import FUNCTION, Broker, queue_name, rq_job_id
from broker.rules.event import Place
from workers.worker import SECOND_SIGNAL_SECONDS

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "workers" / "__main__.py"
RQ = [sys.executable, "-m", "rq.cli"]
NODE = "n1"
#: Beats, graces and deadlines of the tests, in milliseconds.
BUDGETS = {"BEAT_MS": "100", "STOP_MS": "400", "START_MS": "30000"}
#: For jobs that end when they are asked to: a grace that no slow machine uses up.
PATIENT = {"BROKER_BUDGETS__STOP_MS": "60000"}


def until(condition, seconds=180.0, every=0.02):
    """Wait for a condition; give what it gave. The deadline catches a hang, and no slow machine."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not so within {seconds} s: {condition}"
        time.sleep(every)


def alive(pid):
    """Whether the process runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def ask_twice(process, heard):
    """Order it to end, and again when its worker (of `telling_stop`) has heard the first."""
    process.send_signal(signal.SIGTERM)
    until(heard.exists)
    time.sleep(
        SECOND_SIGNAL_SECONDS + 0.2
    )  # what comes sooner is taken for the same signal, sent twice
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)


def parent(pid):
    """The parent of a process; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


class Fleet:
    def __init__(self, url, namespace, folder):
        self.url, self.namespace, self.folder = url, namespace, folder
        self.broker = Broker.from_url(url, namespace=namespace, node="home")
        self.rq = redis.Redis.from_url(url)
        self.processes = []
        self.ids = set()  # of the RQ jobs

    def environment(self, **more):
        budgets = {f"BROKER_BUDGETS__{name}": value for name, value in BUDGETS.items()}
        mine = {name: value for name, value in os.environ.items() if not name.startswith("BROKER_")}
        return mine | budgets | {"REDIS_URL": self.url, "BROKER_NAMESPACE": self.namespace} | more

    def spawn(self, command, **more):
        log = (self.folder / f"log-{len(self.processes)}").open("w")
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.environment(**more), stdout=log, stderr=log, process_group=0
        )
        log.close()
        process.log = Path(log.name)
        self.processes.append(process)
        return process

    def worker(self, engine, *options, node=NODE, imports="tests.workers.engines", **more):
        """One slot; returns when it is ready: it beats before, and a Redis that goes away then ends it."""
        named = ["--namespace", self.namespace, "--node", node, "--engine", engine]
        command = [sys.executable, "-P", str(ENTRY), *named, "--import", imports, *options]
        process = self.spawn(command, **more)
        until(lambda: "ready for" in process.log.read_text() or process.poll() is not None)
        assert process.poll() is None, process.log.read_text()
        return process

    def rq_worker(self, queue, *options, imports="tests.workers.engines", **more):
        """Our worker class under RQ's own command line."""
        own = ["-w", "workers.Worker", "--url", self.url, "-P", str(ROOT)]
        return self.spawn(
            [*RQ, "worker", *own, *options, queue],
            PYTHONPATH=str(ROOT),
            BROKER_IMPORT=imports,
            **more,
        )

    def supervise(
        self,
        *specs,
        node=NODE,
        slots=None,
        inline=False,
        imports="tests.workers.engines",
        **more,
    ):
        """`broker worker` without the command line: `specs` are pairs of engine and slots."""
        code = (
            "import sys; from broker import set_up_logs; from workers import EngineSpec; "
            "from workers.supervisor import Supervisor; set_up_logs('info', 'text'); "
            f"specs = [EngineSpec(name, None, slots) for name, slots in {list(specs)!r}]; "
            f"sys.exit(Supervisor({node!r}, specs, slots={slots!r}, inline={inline!r}, "
            f"imports=[{imports!r}], url={self.url!r}, namespace={self.namespace!r}).run())"
        )
        return self.spawn([sys.executable, "-c", code], PYTHONPATH=str(ROOT), **more)

    def supervisor(self, *specs, slots=None, **options):
        """The same; returns when every slot beats."""
        process = self.supervise(*specs, slots=slots, **options)
        wanted = sum(slots or of_engine for _, of_engine in specs)
        until(lambda: len(self.slots(process)) == wanted or process.poll() is not None)
        assert process.poll() is None, process.log.read_text()
        return process

    def slots(self, supervisor):
        """The workers that beat and are children of this supervisor."""
        return [seen for seen in self.broker.workers() if parent(seen.pid) == supervisor.pid]

    def beats(self, pid):
        return [seen for seen in self.broker.workers() if seen.pid == pid]

    def close(self):
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.broker.close()
        self.rq.close()

    # --- jobs

    def submit(self, engine, payload=None, **options):
        return self.broker.submit(engine, payload, **options)

    def queue(self, engine, node=NODE):
        name = queue_name(self.namespace, node, engine)
        return Queue(name, connection=self.rq, serializer=JSONSerializer)

    def place(self, job, node=NODE):
        """The dispatcher's word, said until the job is due."""

        def placed():
            record = job.record()
            if record.node == node:
                return True
            place = Place(key=job.key, node=node, rev=record.rev, term=1)
            return self.broker.view.apply([place])[0].rule == "placed"

        until(placed)
        return job.record()

    def enqueue(self, key, created_at, attempt, node=NODE, function=FUNCTION, **options):
        id = rq_job_id(self.namespace, key, created_at, attempt)
        self.ids.add(id)
        with suppress(DuplicateJobError):
            return self.queue(key.engine, node).enqueue(
                function,
                args=(str(key), created_at, attempt),
                job_id=id,
                unique=True,
                job_timeout=-1,
                result_ttl=0,
                failure_ttl=0,
                description=str(key),
                **options,
            )

    def hand(self, job, node=NODE):
        """Place a job and hand it over."""
        record = self.place(job, node)
        self.enqueue(job.key, record.created_at, record.attempt, node)
        return job

    def run(self, engine, payload=None, **options):
        """Submit, and hand over whenever it waits, until it ended."""
        return self.finish(self.submit(engine, payload, **options))

    def finish(self, job):
        def ended():
            record = job.record()
            if record.ready:
                self.hand(job)
            return record.ended and record

        return until(ended)

    def started(self, job):
        """Wait until it was started; a short one may have ended since."""
        return until(lambda: (record := job.record()).tries and record)

    def ended(self, job):
        return until(lambda: (record := job.record()).ended and record)

    def rules(self, job):
        """The rules of the job's log entries, in order."""
        entries = self.broker.log(job.key.origin).read("0-0", 1_000)
        return [entry.rule for entry in entries if entry.job == job.key.job]

    def leftovers(self):
        """What RQ still keeps of the attempts handed over."""
        found = set()
        for id in self.ids:
            for kind in ("job", "executions", "results"):
                found |= {name for name in (f"rq:{kind}:{id}",) if self.rq.exists(name)}
            found |= set(self.rq.scan_iter(f"rq:execution:{id}:*"))
        for kind in ("wip", "failed", "finished", "queue"):
            found |= set(self.rq.scan_iter(f"rq:{kind}:{self.namespace}:*"))
        return found
