"""AsyncBroker: the asyncio twin of `Broker`. The same names, the same rules, the same core: each call is the one of
`Broker`, made on a small pool of threads that belongs to this client, so that the event loop never waits for Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from broker.client import Broker

P = ParamSpec("P")
T = TypeVar("T")

#: How many calls are on their way at once; more wait for their turn.
THREADS = 8


def twin(
    method: Callable[Concatenate[Broker, P], T],
) -> Callable[Concatenate[AsyncBroker, P], Coroutine[Any, Any, T]]:
    """The same call, awaited."""

    @wraps(method)
    async def call(self: AsyncBroker, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(partial(method, self.broker, *args, **kwargs))

    return call


class AsyncBroker:
    """A client of one namespace on one Redis, for one event loop; `async with` it, or `close` it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config = broker.config
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="broker-calls")

    @classmethod
    async def from_url(
        cls, url: str | None = None, *, namespace: str | None = None, node: str | None = None
    ) -> Self:
        """See `Broker.from_url`."""
        return cls(await asyncio.to_thread(Broker.from_url, url, namespace=namespace, node=node))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the threads and the connections; what is on its way ends first."""
        await asyncio.to_thread(self._threads.shutdown)
        self.broker.close()

    async def run(self, call: Callable[[], T]) -> T:
        """Await what blocks. Given up by the caller, it still ends."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    get = twin(Broker.get)
    jobs = twin(Broker.jobs)
    listed = twin(Broker.listed)
    show = twin(Broker.show)
    why = twin(Broker.why)
    result = twin(Broker.result)
    output = twin(Broker.output)
    origins = twin(Broker.origins)
    nodes = twin(Broker.nodes)
    workers = twin(Broker.workers)
    groups = twin(Broker.groups)
    parked = twin(Broker.parked)
    audit = twin(Broker.audit)
    repairs = twin(Broker.repairs)
    find = twin(Broker.find)
    submit = twin(Broker.submit)
    submit_many = twin(Broker.submit_many)
    hand_in = twin(Broker.hand_in)
    report = twin(Broker.report)
    cancel = twin(Broker.cancel)
    remove = twin(Broker.remove)
    retry = twin(Broker.retry)
    cancel_many = twin(Broker.cancel_many)
    remove_many = twin(Broker.remove_many)
    retry_many = twin(Broker.retry_many)
    remove_pair = twin(Broker.remove_pair)
