"""Hands a placed attempt to the workers of its node. The only module of the broker that knows RQ."""

from __future__ import annotations

from rq import Queue
from rq.exceptions import DuplicateJobError
from rq.serializers import JSONSerializer

from broker.rules.handoff import FUNCTION, queue_name, rq_job_id
from broker.rules.key import Key
from broker.rules.record import Record
from broker.store.connection import connect, redis_errors


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

    def _queue(self, node: str, engine: str) -> Queue:
        if (node, engine) not in self._queues:
            name = queue_name(self._namespace, node, engine)
            made = Queue(name, connection=self._client, serializer=JSONSerializer)
            self._queues[node, engine] = made
        return self._queues[node, engine]

    def close(self) -> None:
        self._client.close()
