"""The fleet: nodes, groups, and how it all stands."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from broker.client import Broker
from broker.errors import NotFound, Unavailable
from broker.fleet.overview import overview
from broker.readers.readers import Readers
from broker.subscriptions.groups import parked_json
from broker.web import fleet_models as models
from broker.web.answers import Json, told
from broker.web.hub import TheHub
from broker.web.pulse import groups_json, nodes_json
from broker.web.wanted import NAME, Nothing, body_of, read

router = APIRouter(tags=["fleet"])

Verb = Literal["drain", "resume", "dead", "remove"]

_FLAGS = {"drain": "drained", "dead": "dead"}


@router.get("/v1/nodes", response_model=list[models.Node], responses=told(503))
async def nodes(hub: TheHub) -> Response:
    """The nodes that were heard of: their slots, what runs there, and how long they have been silent."""
    return Json(await hub.broker.run(partial(nodes_json, hub.broker.broker)))


@router.post(
    "/v1/nodes/{node}/{verb}",
    response_model=models.Node,
    responses=told(400, 404, 408, 413, 503),
    openapi_extra=body_of(Nothing),
)
async def say(
    hub: TheHub, node: Annotated[str, Path(pattern=NAME)], verb: Verb, request: Request
) -> Response:
    """Say what is to become of a node; the answer is how it then stands, or stood before it was removed.

    drain: it gets no new jobs; what runs there goes on, what waits there goes elsewhere. dead: it is gone for good, so
    its jobs are given up without a grace. resume: like any other again. remove: forget it (one that still beats comes
    back). A node that was not heard of yet can be drained or dead: the flag waits for it.
    """
    await read(request, Nothing)
    return Json(await hub.broker.run(partial(_say, hub.broker.broker, node, verb)))


def _say(broker: Broker, name: str, verb: Verb) -> dict[str, Any]:
    if verb in ("drain", "dead"):
        broker.flag_node(name, _FLAGS[verb])
        return _seen(broker, name)
    seen = _seen(broker, name)
    if verb == "remove":
        broker.remove_node(name)
        return seen
    broker.flag_node(name, None)
    return seen | {"flag": None}  # one that never beat was known by its flag alone


def _seen(broker: Broker, name: str) -> dict[str, Any]:
    for seen in nodes_json(broker):
        if seen["node"] == name:
            return seen
    raise NotFound(f"no node {name!r} is known")


@router.get("/v1/groups", response_model=list[models.Group], responses=told(503))
async def groups(hub: TheHub) -> Response:
    """The groups that subscribed, at each origin where they have begun: who reads, and how far behind."""
    return Json(await hub.broker.run(partial(groups_json, hub.broker.broker)))


@router.get(
    "/v1/groups/{group}/parked",
    response_model=list[models.Parked],
    responses=told(400, 404, 503),
)
async def parked(hub: TheHub, group: Annotated[str, Path(pattern=NAME)]) -> Response:
    """The entries that a group's handler failed for good, by origin, oldest first."""
    return Json([parked_json(group, one) for one in await hub.broker.parked(group)])


@router.get("/v1/overview", response_model=models.Overview, responses=told(503))
async def whole(hub: TheHub) -> Response:
    """How it all stands, in one look."""
    if not hub.readers.is_listed:
        raise Unavailable("nothing was listed yet: ask again")
    return Json(await hub.broker.run(partial(_overview, hub.broker.broker, hub.readers)))


def _overview(broker: Broker, readers: Readers) -> dict[str, Any]:
    age = readers.age_seconds
    return overview(broker, readers.records, list_age_seconds=age).to_json()
