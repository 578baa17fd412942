"""What is known of jobs, and how they are handed in."""

from __future__ import annotations

from functools import partial
from heapq import nlargest
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from broker.client import Broker
from broker.errors import NotFound, Refused
from broker.jobs.outcome import Listed
from broker.jobs.submission import JSON_BYTES_MAX
from broker.jobs.timeline import timeline
from broker.rules.filter import Filter
from broker.rules.key import Key
from broker.rules.record import Record
from broker.web import models, wishes
from broker.web.answers import Json, listed, told
from broker.web.hub import TheHub
from broker.web.paths import TheKey, path_of
from broker.web.wanted import AskedJobs, Submission, body_of, read

router = APIRouter(tags=["jobs"])
router.include_router(wishes.router)

#: A payload at its largest, and what stands around it.
BODY_BYTES_MAX = JSON_BYTES_MAX + 16 * 1024

_LISTED_HEADERS = {
    "Total-Count": {"description": "how many jobs fit", "schema": {"type": "integer"}},
    "Last-Event-ID": {
        "description": "where `/v1/watch` goes on from here without missing a change; missing just after the start",
        "schema": {"type": "string"},
    },
}


@router.get(
    "/v1/jobs",
    response_model=list[models.Listed],
    responses={200: {"headers": _LISTED_HEADERS}, **told(400, 503)},
)
async def jobs(hub: TheHub, asked: Annotated[AskedJobs, Query()]) -> Response:
    """Jobs, newest first, as they are in Redis now. To follow them, watch from the `Last-Event-ID` of the answer."""
    # Before the list is read: what happens meanwhile comes twice, and not never. And no place before the first
    # listing of those who follow: what was removed by then they cannot tell.
    position = hub.readers.position if hub.readers.is_listed else ""
    found, count = await hub.broker.run(
        partial(_list, hub.broker.broker, asked.filter, asked.limit)
    )
    headers = {"Total-Count": str(count)} | ({"Last-Event-ID": position} if position else {})
    return listed(found, Listed.to_json, headers)


def _list(broker: Broker, wanted: Filter, limit: int) -> tuple[list[Listed], int]:
    states, node, engine = wanted.states, wanted.node, wanted.engine
    found = dict(broker.select(states=states, node=node, engine=engine, origin=wanted.origin))
    return broker.list_records(nlargest(limit, found.items(), key=_age)), len(found)


def _age(pair: tuple[Key, Record]) -> tuple[int, Key]:
    key, record = pair
    return record.created_at, key


@router.post(
    "/v1/jobs",
    status_code=201,
    response_model=models.Listed,
    responses={
        201: {
            "description": "It is accepted.",
            "headers": {"Location": {"description": "the job", "schema": {"type": "string"}}},
        },
        200: {"description": "It was accepted before.", "model": models.Listed},
        **told(400, 408, 409, 413, 503),
    },
    openapi_extra=body_of(Submission),
)
async def submit(hub: TheHub, request: Request) -> Response:
    """Hand in a job. Give an `id` to be able to repeat the call: the same id with another payload is a `conflict`."""
    asked = await read(request, Submission, BODY_BYTES_MAX)
    options: dict[str, Any] = asked.model_dump(exclude={"engine", "payload"})
    outcome = await hub.broker.hand_in(asked.engine, asked.payload, **options)
    try:
        found = await hub.broker.listed(Key.parse(outcome.key))
    except NotFound:
        raise Refused("tombstoned", f"{outcome.key} was removed since it was accepted") from None
    status = 201 if outcome.applied else 200
    return Json(found.to_json(), status, {"Location": path_of(outcome.key)})


@router.get("/v1/jobs/{key}", response_model=models.Shown, responses=told(400, 404, 503))
async def show(hub: TheHub, key: TheKey) -> Response:
    """A job whole: its record, what was submitted or carried along with it, the events that were refused."""
    return Json(await hub.broker.show(key))


@router.get("/v1/jobs/{key}/why", response_model=models.Why, responses=told(400, 404, 503))
async def why(hub: TheHub, key: TheKey) -> Response:
    """What decided a job's state, what was refused and by which rule, and what would change it."""
    return Json((await hub.broker.why(key)).to_json())


@router.get("/v1/jobs/{key}/result", response_model=Any, responses=told(400, 404, 409, 503))
async def result(hub: TheHub, key: TheKey) -> Response:
    """What a job returned, as JSON. 409 `not_terminal` where it has not ended, `job_failed` where it did otherwise."""
    return Json(await hub.broker.result(key))


@router.get(
    "/v1/jobs/{key}/output", response_model=list[models.Chunk], responses=told(400, 404, 503)
)
async def output(
    hub: TheHub,
    key: TheKey,
    after: Annotated[
        str,
        Query(
            pattern=r"^[0-9]{1,15}(-[0-9]{1,15})?$",
            description="the `id` of the last one that is known",
        ),
    ] = "0-0",
) -> Response:
    """Progress and output of a job, oldest first: the newest 1,000 entries are kept."""
    return Json(await hub.broker.run(partial(_output, hub.broker.broker, key, after)))


def _output(broker: Broker, text: str, after: str) -> list[dict[str, Any]]:
    key = broker.find(text)
    chunks = broker.output(key, after)
    if not chunks:
        broker.get(key)  # raises NotFound
    return [
        {"id": chunk.id, "attempt": chunk.attempt, "what": chunk.what, "text": chunk.text}
        for chunk in chunks
    ]


@router.get("/v1/jobs/{key}/log", response_model=models.Timeline, responses=told(400, 404, 503))
async def log(hub: TheHub, key: TheKey) -> Response:
    """What happened to a job, oldest first: the newest 200 entries of its own, and what was refused."""
    found = await hub.broker.run(partial(_log, hub.broker.broker, key))
    return Json(found)


def _log(broker: Broker, text: str) -> dict[str, Any]:
    return timeline(broker, broker.find(text)).to_json()
