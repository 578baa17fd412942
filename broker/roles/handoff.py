"""Hands a placed attempt to the workers of its node. The only module of the broker that knows RQ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, cast

from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.executions import Execution, ExecutionRegistry
from rq.job import Job
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.worker_registration import clean_worker_registry, get_keys

from broker.rules.handoff import FUNCTION, queue_name, rq_job_id
from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.connection import connect, redis_errors
from broker.store.decode import read_text

#: How many attempts of one queue are looked at.
NOTED_MAX = 1_000


class Noted(NamedTuple):
    """An attempt as RQ knows it: its queue's name, its id, and its job's key as text, empty where RQ lost that."""

    queue: str
    id: str
    key: str


class Misfit(NamedTuple):
    """A key of one of our queues that RQ cannot read: its name, its type, the right type."""

    name: str
    found: str
    right: str


class Handoff:
    """RQ as a transport: one queue for each engine on each node, on a connection of its own.

    RQ changes the timeouts of the connection pool that it is given, so nobody else may use it.
    """

    def __init__(self, namespace: str, url: str) -> None:
        self._namespace = namespace
        self._client = connect(url)
        self._queues: dict[tuple[str, str], Queue] = {}

    def enqueue(self, key: Key, record: Record) -> bool:
        """Hand over a placed attempt; whether it was not there yet. However often it is called, it waits once."""
        queue = self._queue(record.node, key.engine)
        id = rq_job_id(self._namespace, key, record.created_at, record.attempt)
        try:
            with redis_errors():
                queue.enqueue_call(
                    FUNCTION,
                    args=(str(key), record.created_at, record.attempt),
                    job_id=id,
                    unique=True,
                    timeout=-1,  # our workers keep the job's own timeout
                    result_ttl=0,
                    failure_ttl=0,
                    description=str(key),
                )
        except DuplicateJobError:
            return self._push_again(queue, id)
        return True

    def _push_again(self, queue: Queue, id: str) -> bool:
        """RQ may know an attempt that stands in no queue: whoever took it died before it said start.

        Where it is about to start all the same, the second who takes it is refused.
        """
        with redis_errors():
            if self._client.lpos(queue.key, id) is not None:
                return False
            queue.push_job_id(id)
        return True

    def discard(self, key: Key, record: Record) -> bool:
        """Delete all that RQ keeps of an attempt that was given up; whether there was anything.

        Whoever has it in hand all the same is fenced by its number, and throws its own notes away at its end.
        """
        id = rq_job_id(self._namespace, key, record.created_at, record.attempt)
        return self._discard(self._queue(record.node, key.engine), id)

    def _discard(self, queue: Queue, id: str) -> bool:
        job = Job(id, connection=self._client, serializer=JSONSerializer)
        with redis_errors():
            executions = self._executions(id)
            hands = self._hands(queue)
            begun = self._client.zrange(queue.started_job_registry.key, 0, NOTED_MAX - 1)
            with self._client.pipeline(transaction=False) as pipe:
                pipe.lrem(queue.key, 0, id)
                pipe.lrem(queue.intermediate_queue_key, 0, id)
                pipe.delete(
                    job.key,
                    job.dependents_key,
                    job.dependencies_key,
                    Result.get_key(id),  # type: ignore[no-untyped-call]
                    ExecutionRegistry(id, self._client).key,
                    queue.intermediate_queue.get_first_seen_key(id),
                )
                for execution in executions:
                    pipe.delete(execution.key)
                    pipe.zrem(queue.started_job_registry.key, execution.composite_key)
                    pipe.srem(execution.worker_executions_key, execution.composite_key)
                # RQ forgets its executions after a while, and not where else it noted them.
                for name in cast("list[bytes]", begun):
                    if _attempt_of(name) == id:
                        pipe.zrem(queue.started_job_registry.key, name)
                for held, names in hands.items():
                    for name in names:
                        if _attempt_of(name) == id:
                            pipe.srem(held, name)
                return any(pipe.execute())

    def _executions(self, id: str) -> list[Execution]:
        """Who took the attempt in hand, as RQ noted it."""
        listed = self._client.zrange(ExecutionRegistry(id, self._client).key, 0, -1)
        found = [
            Execution(noted.decode(), id, self._client) for noted in cast("list[bytes]", listed)
        ]
        with self._client.pipeline(transaction=False) as pipe:
            for execution in found:
                pipe.hget(execution.key, "worker_name")
            for execution, name in zip(found, pipe.execute(), strict=True):
                execution.worker_name = (name or b"").decode()
        return found

    def forget_dead_workers(self) -> None:
        """RQ lists a worker that was killed until somebody looks: drop those of which it knows nothing more."""
        with redis_errors():
            for queue in self._our_queues():
                clean_worker_registry(queue)

    def noted(self) -> Iterator[list[Noted] | list[Misfit]]:
        """Every attempt of ours that RQ keeps in a queue, or as taken from it: queue by queue, 1,000 of each.

        Of a queue with keys that RQ cannot read, these keys.
        """
        for queue in self._our_queues():
            yield self._misfits(queue) or self._noted(queue)

    def _misfits(self, queue: Queue) -> list[Misfit]:
        """Those of the queue's keys that are of another type than RQ expects."""
        types = {
            queue.key: "list",
            queue.intermediate_queue_key: "list",
            queue.started_job_registry.key: "zset",
        }
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for name in types:
                pipe.type(name)
            found = map(read_text, pipe.execute())
        return [
            Misfit(name, found_type, right)
            for (name, right), found_type in zip(types.items(), found, strict=True)
            if found_type not in ("none", right)
        ]

    def noted_by(self, worker: str, node: str, engine: str) -> list[Noted]:
        """The attempts that this worker has in hand, as RQ noted it; it forgets that two minutes after the worker."""
        queue = self._queue(node, engine)
        hands = Execution("", "", self._client)
        hands.worker_name = worker
        with redis_errors():
            listed = self._client.smembers(hands.worker_executions_key)
        return self._described(queue, cast("set[bytes]", listed))

    def _our_queues(self) -> list[Queue]:
        with redis_errors():
            known = Queue.all(self._client, serializer=JSONSerializer)
        return [queue for queue in known if queue.name.startswith(f"{self._namespace}:")]

    def _noted(self, queue: Queue) -> list[Noted]:
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            pipe.lrange(queue.key, 0, NOTED_MAX - 1)
            pipe.lrange(queue.intermediate_queue_key, 0, NOTED_MAX - 1)
            pipe.zrange(queue.started_job_registry.key, 0, NOTED_MAX - 1)
            waiting, taken, begun = pipe.execute()
            held = chain.from_iterable(self._hands(queue).values())
        return self._described(queue, (*waiting, *taken, *begun, *held))

    def _hands(self, queue: Queue) -> dict[str, set[bytes]]:
        """What each worker of a queue has in hand, as RQ noted it: by the key of that note."""
        with self._client.pipeline(transaction=False) as pipe:
            keys = [f"{worker}:executions" for worker in sorted(get_keys(queue))]
            for key in keys:
                pipe.smembers(key)
            return dict(zip(keys, cast("list[set[bytes]]", pipe.execute()), strict=True))

    def _described(self, queue: Queue, names: Iterable[bytes]) -> list[Noted]:
        """Our attempts among RQ's names of jobs and executions, each with what RQ says of it."""
        ids = {_attempt_of(name) for name in names}
        ours = sorted(id for id in ids if id.startswith("b-"))
        with redis_errors(), self._client.pipeline(transaction=False) as pipe:
            for id in ours:
                pipe.hget(Job(id, connection=self._client).key, "description")
            told = map(read_text, pipe.execute())
        return [Noted(queue.name, id, key) for id, key in zip(ours, told, strict=True)]

    def is_of(self, noted: Noted, key: Key, record: Record) -> bool:
        """Whether this is the current attempt of a job, in its place."""
        id = rq_job_id(self._namespace, key, record.created_at, record.attempt)
        return (noted.id, noted.queue) == (id, queue_name(self._namespace, record.node, key.engine))

    def discard_noted(self, noted: Noted) -> bool:
        """Like `discard`, by what RQ itself said of the attempt."""
        return self._discard(
            Queue(noted.queue, connection=self._client, serializer=JSONSerializer), noted.id
        )

    def _queue(self, node: str, engine: str) -> Queue:
        if (node, engine) not in self._queues:
            name = queue_name(self._namespace, node, engine)
            made = Queue(name, connection=self._client, serializer=JSONSerializer)
            self._queues[node, engine] = made
        return self._queues[node, engine]

    def close(self) -> None:
        self._client.close()


def _attempt_of(name: bytes) -> str:
    """Of RQ's name of a job, or of one execution of it: the job's id."""
    return read_text(name).partition(":")[0]
