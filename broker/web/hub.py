"""What every route of one HTTP server shares: the client, the readers, and what is known of the process around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Annotated, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from broker.aio.client import AsyncBroker
from broker.readers.readers import Readers
from broker.web.pulse import Pulse
from broker.web.stream import Texts
from broker.web.timings import Timings

#: What is read at once: it takes less than a millisecond.
SMALL_BYTES_MAX = 8 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hub:
    """One for each server, made when it starts and closed when it ends."""

    broker: AsyncBroker
    #: All followers of the list in this process, on one connection.
    readers: Readers
    #: Seconds since each loop of this process turned last, by its name.
    turns: Callable[[], Mapping[str, float]] = dict
    #: Set when the process was told to end: no new work is taken.
    draining: Event = field(default_factory=Event)
    #: What this process itself sees and counts: `readers` tells it each change.
    timings: Timings = field(default_factory=Timings)
    #: Held while a large body is read.
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: What every client of a stream is told beside changes, and the changes as text.
    pulse: Pulse = field(init=False)
    texts: Texts = field(init=False, default_factory=Texts)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pulse", Pulse(self.broker, self.readers))

    async def read(self, call: Callable[[], T], size: int) -> T:
        """What `call` reads out of a body of `size` bytes.

        Of a large one beside the loop, and one at a time: each keeps the interpreter busy, and all clients wait.
        """
        if size <= SMALL_BYTES_MAX:
            return call()
        async with self.reading:
            return await self.broker.run(call)


def _hub(connection: HTTPConnection) -> Hub:
    found: Hub = connection.app.state.hub
    return found


#: What a route takes to reach it.
TheHub = Annotated[Hub, Depends(_hub)]
