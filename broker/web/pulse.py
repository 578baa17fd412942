"""What changes without a log entry: the jobs in doubt, the overview, nodes and groups.

One task of each server reads it once a second for all clients together, and only while one is connected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from broker.aio.client import AsyncBroker
from broker.client import Broker
from broker.errors import BrokerError
from broker.fleet.doubts import Doubts
from broker.fleet.nodes import node_json
from broker.fleet.overview import overview
from broker.readers.readers import Readers
from broker.subscriptions.groups import group_json
from broker.web.answers import dump

#: How often it looks, and how often at groups, in seconds.
PULSE_SECONDS = 1.0
GROUPS_SECONDS = 5.0
#: How often it tells of what it cannot explain, in seconds.
WARN_SECONDS = 60.0

#: The event that every listener gets, and those that are asked for.
DOUBT = "doubt"
STATE = ("overview", "nodes", "groups")

_log = logging.getLogger(__name__)


def nodes_json(broker: Broker) -> list[dict[str, Any]]:
    """The nodes, as every face shows them."""
    return [node_json(seen, broker.config.budgets) for seen in broker.nodes()]


def groups_json(broker: Broker) -> list[dict[str, Any]]:
    """The groups, as every face shows them."""
    return [group_json(seen) for seen in broker.groups()]


class Listener:
    """One client: what is newest of each kind, and which of it the client has."""

    def __init__(self, pulse: Pulse, bell: Callable[[], None], *, wants_state: bool) -> None:
        self._pulse = pulse
        self._told: dict[str, int] = {}
        self.kinds = (DOUBT, *STATE) if wants_state else (DOUBT,)
        self.bell = bell
        #: Whether the client knows that the readers are in trouble.
        self.is_troubled = False

    @property
    def wants_state(self) -> bool:
        """Whether the state of the fleet is asked for, too."""
        return len(self.kinds) > 1

    @property
    def has_news(self) -> bool:
        """Whether something is new since the last `take`."""
        newest = self._pulse.newest
        return any(newest.get(kind, (0, b""))[0] > self._told.get(kind, 0) for kind in self.kinds)

    def take(self) -> list[tuple[str, bytes]]:
        """What is new since the last call: kinds, and JSON of each."""
        found = []
        for kind in self.kinds:
            number, text = self._pulse.newest.get(kind, (0, b""))
            if number > self._told.get(kind, 0):
                self._told[kind] = number
                found.append((kind, text))
        return found


class Pulse:
    """For one event loop: `join`, then `leave`."""

    def __init__(self, broker: AsyncBroker, readers: Readers) -> None:
        self._broker = broker
        self._readers = readers
        self._doubts = Doubts(broker.broker)
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._groups_at = -GROUPS_SECONDS
        self._warned_at = -WARN_SECONDS
        #: By kind: a number that only grows, and the JSON.
        self.newest: dict[str, tuple[int, bytes]] = {}

    def join(self, bell: Callable[[], None], *, wants_state: bool) -> Listener:
        """One more client. `bell` is called in the loop whenever something is new."""
        listener = Listener(self, bell, wants_state=wants_state)
        if wants_state and not self._is_state_asked:  # what is left of it is old
            self.newest = {kind: one for kind, one in self.newest.items() if kind == DOUBT}
            self._groups_at = -GROUPS_SECONDS
        self._listeners.add(listener)
        if self._task is None:
            self.newest.clear()
            self._task = asyncio.get_running_loop().create_task(self._run())
        return listener

    def leave(self, listener: Listener) -> None:
        """This client goes; with the last one the looking ends."""
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    @property
    def _is_state_asked(self) -> bool:
        return any(listener.wants_state for listener in self._listeners)

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._look(began)
            except BrokerError as error:  # the readers tell it, and when it is over
                _log.debug("nothing new is known: %s", error)
                self._forget()
            except Exception as error:  # noqa: BLE001 - one failed look must not end the task
                self._warn(error)
                self._forget()
            self._tell_trouble()
            await asyncio.sleep(max(PULSE_SECONDS / 10, began + PULSE_SECONDS - time.monotonic()))

    def _tell_trouble(self) -> None:
        """Wake the streams whose clients are to know that the readers' trouble began or ended: no change tells them."""
        is_troubled = self._readers.trouble is not None
        self._ring(lambda listener: listener.is_troubled is not is_troubled)

    def _ring(self, whom: Callable[[Listener], bool]) -> None:
        for listener in filter(whom, self._listeners):
            listener.bell()

    def _forget(self) -> None:
        """A client that connects now must not be sent what was read before the trouble."""
        self.newest.clear()
        self._groups_at = -GROUPS_SECONDS

    def _warn(self, error: Exception) -> None:
        here = time.monotonic()
        if here - self._warned_at >= WARN_SECONDS:
            self._warned_at = here
            _log.warning("a look at the fleet failed: %r", error, exc_info=error)

    async def _look(self, now: float) -> None:
        if not self._readers.is_listed:
            return
        wants_state = self._is_state_asked
        wants_groups = wants_state and now - self._groups_at >= GROUPS_SECONDS
        found = await self._broker.run(lambda: self._read(wants_state, wants_groups))
        if wants_groups:
            self._groups_at = now
        for kind, text in found.items():
            if kind != DOUBT or self.newest.get(kind, (0, b""))[1] != text:
                self._number += 1
                self.newest[kind] = self._number, text
        self._ring(lambda listener: listener.has_news)

    def _read(self, wants_state: bool, wants_groups: bool) -> dict[str, bytes]:
        age, records = self._readers.age_seconds, self._readers.records
        broker = self._broker.broker
        keys = self._doubts.among(records)
        found: dict[str, Any] = {DOUBT: {"keys": [str(key) for key in keys]}}
        if wants_state:
            seen = overview(broker, records, list_age_seconds=age, doubts=self._doubts)
            found["overview"] = seen.to_json()
            found["nodes"] = nodes_json(broker)
        if wants_groups:
            found["groups"] = groups_json(broker)
        return {kind: dump(value) for kind, value in found.items()}
