"""Whether this process lives, and whether it can serve: for those who restart it, or send others to it.

To live is to turn: a loop that is stuck is mended by a restart, an outage of Redis is not. To be ready is to answer
truly: Redis answers, the list was read and keeps up.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from broker.aio.client import AsyncBroker
from broker.errors import BrokerError
from broker.fleet.checkup import Health, look
from broker.readers.readers import BEHIND_SECONDS_MAX
from broker.web.answers import told
from broker.web.hub import Hub, TheHub
from broker.web.problems import problem

#: A loop turns several times a second; with Redis away every few. One that has not for so long is stuck, in seconds.
STUCK_SECONDS = 30.0
#: How long Redis may take to answer before nobody should be sent here, in seconds.
ANSWER_SECONDS_MAX = 1.0
OK: Literal["ok"] = "ok"

router = APIRouter()


class Vitals:
    """Asks Redis how it is: one question at a time, however many want to know, and whatever it is stuck with."""

    def __init__(self, broker: AsyncBroker) -> None:
        self._broker = broker
        self._asked: asyncio.Task[Health | str] | None = None

    async def health(self) -> Health | str:
        """The server as it describes itself, else why it does not."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(asyncio.to_thread(self._look))
        done, _ = await asyncio.wait({self._asked}, timeout=ANSWER_SECONDS_MAX)
        return self._asked.result() if done else f"no answer within {ANSWER_SECONDS_MAX:g} s"

    def _look(self) -> Health | str:
        """Whether or not anybody still waits for it."""
        try:
            return look(self._broker.broker)
        except BrokerError as error:
            return str(error)


class Checked(BaseModel):
    """What was looked at, each `ok`."""

    status: Literal["ok"] = OK
    checks: dict[str, Literal["ok"]]


class Server(BaseModel):
    """A Redis or a Valkey."""

    name: str
    version: str


class Version(BaseModel):
    """What runs here."""

    name: str = "fleet-broker"
    version: str
    python: str
    redis: Server | None = Field(description="null where it does not answer")
    login: bool = Field(description="whether a token is needed")


@router.get("/livez", response_model=Checked, responses=told(503))
async def livez(hub: TheHub) -> Response | Checked:
    """Whether each loop of this process turned lately; a restart mends it where one did not."""
    ages = dict(hub.turns()) | {"readers": hub.readers.turn_seconds}
    checks = {
        name: OK if seconds < STUCK_SECONDS else f"has not turned for {seconds:.0f} s"
        for name, seconds in ages.items()
    }
    if hub.readers.closed and not hub.draining.is_set():
        checks["readers"] = "ended by themselves"
    return _answer(checks, "not_live")


@router.get("/readyz", response_model=Checked, responses=told(503))
async def readyz(hub: TheHub, request: Request) -> Response | Checked:
    """Whether this server answers truly now: Redis answers, the list was read and keeps up, and no end is near."""
    checks: dict[str, str] = {"process": "about to end" if hub.draining.is_set() else OK}
    vitals: Vitals = request.app.state.vitals
    health = await vitals.health()
    if isinstance(health, str):
        checks["redis"] = health
    else:
        checks["redis"] = _writes(health)
    checks["list"] = _list(hub)
    return _answer(checks, "not_ready")


@router.get("/version")
async def versions(request: Request) -> Version:
    """What runs here. Redis is asked now."""
    health = await request.app.state.vitals.health()
    redis = None
    if isinstance(health, Health):
        redis = Server(name=health.name, version=health.version)
    return Version(
        version=version("fleet-broker"),
        python=platform.python_version(),
        redis=redis,
        login=not request.app.state.gate.is_open,
    )


def _writes(health: Health) -> str:
    if health.role != "master":
        return f"is a {health.role}: it takes no writes"
    return f"our user may not write: {health.denied}" if health.denied else OK


def _list(hub: Hub) -> str:
    readers = hub.readers
    if readers.trouble is not None:
        return str(readers.trouble)
    if not readers.is_listed:
        return "not read yet"
    if readers.age_seconds > BEHIND_SECONDS_MAX:
        return f"{readers.age_seconds:.0f} s behind the logs"
    return OK


def _answer(checks: Mapping[str, str], rule: str) -> Response | Checked:
    wrong = [f"{name}: {said}" for name, said in checks.items() if said != OK]
    if wrong:
        return problem(503, rule, "; ".join(wrong), checks=checks)
    return Checked(checks=dict.fromkeys(checks, OK))
