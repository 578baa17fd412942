"""What Prometheus reads: one page, made anew for each scrape, whether Redis answers or not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.errors import BrokerError, Damaged
from broker.fleet.doubts import Doubts
from broker.fleet.overview import Overview, overview
from broker.web import gauges
from broker.web.gauges import Gauges, Process
from broker.web.hub import Hub
from broker.web.pulse import groups_json

#: A scrape waits so long for Redis, in seconds, and then tells what is known without it. (Prometheus waits 10.)
LOOK_SECONDS_MAX = 2.0
#: How often it tells of what it cannot explain, in seconds.
WARN_SECONDS = 60.0

router = APIRouter(tags=["health"])

_log = logging.getLogger(__name__)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """The fleet and this process in numbers, for Prometheus; also as OpenMetrics, where that is asked for."""
    meter: Meter = request.app.state.meter
    text, media_type = await meter.page(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": media_type})


class _Seen(NamedTuple):
    """One look."""

    listed: bool  #: whether the list that was counted was whole
    found: Overview
    groups: list[dict[str, Any]]


class Meter(Collector):
    """Makes the pages of one server. For one event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._gauges = Gauges()
        self._doubts = Doubts(hub.broker.broker)
        self._registry = CollectorRegistry()
        self._seen: _Seen | None = None
        self._looking: asyncio.Task[_Seen | None] | None = None
        self._turn = asyncio.Lock()
        self._warned_at = -WARN_SECONDS
        self._registry.register(self)
        self._registry.register(hub.timings.registry)
        ProcessCollector(registry=self._registry)

    def describe(self) -> list[Metric]:
        """Nothing is promised: what is told depends on what can be read."""
        return []

    async def page(self, accept: str) -> tuple[bytes, str]:
        """The page and its content type, as the `Accept` header asks. It never fails, nor takes long."""
        encode, media_type = choose_encoder(accept)
        seen = await self._look()
        async with self._turn:
            self._seen = seen
            text = await asyncio.to_thread(encode, self._registry)
        return text, media_type

    async def _look(self) -> _Seen | None:
        """None where Redis does not answer in time. Who asks next waits for the same answer: nothing piles up."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._ask())
        await asyncio.wait([self._looking], timeout=LOOK_SECONDS_MAX)
        return self._looking.result() if self._looking.done() else None

    async def _ask(self) -> _Seen | None:
        try:
            return await self._hub.broker.run(self._read)
        except BrokerError as error:  # the readers tell it, and when it is over
            _log.debug("nothing new is known: %s", error)
        except Exception as error:  # noqa: BLE001 - what the process knows itself is told all the same
            here = time.monotonic()
            if here - self._warned_at >= WARN_SECONDS:
                self._warned_at = here
                _log.warning("a look at the fleet failed: %r", error, exc_info=error)
        return None

    def _read(self) -> _Seen:
        broker, readers = self._hub.broker.broker, self._hub.readers
        listed, age = readers.is_listed, readers.age_seconds
        found = overview(broker, readers.records, list_age_seconds=age, doubts=self._doubts)
        try:
            groups = groups_json(broker)
        except Damaged as error:
            found.damaged.append(str(error))
            groups = []
        return _Seen(listed, found, groups)

    def collect(self) -> Iterator[Metric]:
        """All but what the process counts itself."""
        readers, seen = self._hub.readers, self._seen
        process = Process(
            turns=dict(self._hub.turns()),
            listed=seen.listed if seen else readers.is_listed,
            age_seconds=readers.age_seconds,
            drift=readers.drift,
        )
        yield from self._gauges.process(process, is_up=seen is not None)
        if seen is None:
            return
        if seen.listed:
            yield from self._gauges.jobs(seen.found)
        yield from self._gauges.books(seen.found)
        yield from self._gauges.groups(seen.groups)
        for part in (gauges.audit, gauges.redis, gauges.leaders):
            yield from part(seen.found)
