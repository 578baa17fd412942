"""Ingress: events of programs that run jobs themselves, posted one or many at a time.

An answer of 200 says that each event has its own answer: refused and duplicate are answers. Any other status says
that nothing was kept, but for a 500: its `outcomes` tell what had been taken before Redis failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from broker.client import Broker
from broker.errors import BrokerError, Damaged, Unanswered, Unavailable
from broker.jobs.outcome import Outcome
from broker.rules.ingress import read
from broker.rules.wire import Reported
from broker.web import models
from broker.web.answers import Json
from broker.web.body import read_body
from broker.web.event_schema import EVENTS, STATUSES
from broker.web.hub import TheHub
from broker.web.problems import problem

router = APIRouter(tags=["events"])


@router.post(
    "/v1/events",
    response_model=models.Outcome | list[models.Outcome],
    responses=STATUSES,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": EVENTS}}},
)
async def report_events(request: Request, hub: TheHub) -> Response:
    """Tell what happened to jobs that run elsewhere: one event, or an array of up to 1,000, answered in order.

    Our own JSON and the JSON-RPC frames of other programs are taken alike. One event, or up to 100 of one origin
    (a removal counts for two; a broad one goes alone), are taken whole or not at all. Sent again, a numbered event is
    never taken twice.
    """
    body = await read_body(request)
    events, is_array = await hub.read(partial(read, body, hub.broker.config.node), len(body))
    return await hub.broker.run(partial(_take, hub.broker.broker, events, is_array))


def _take(broker: Broker, events: list[Reported], is_array: bool) -> Response:
    try:
        outcomes = _report(broker, events)
    except _Untaken as untaken:
        answers = [known and known.to_json() for known in untaken.outcomes]
        return problem(500, untaken.rule, str(untaken), outcomes=answers)
    said = [outcome.to_json() for outcome in outcomes]
    return Json(said if is_array else said[0])


def _report(broker: Broker, events: list[Reported]) -> list[Outcome]:
    reporter = broker.reporter()
    for event in events:
        reporter.add(event)
    try:
        outcomes = reporter.flush()
    except Unanswered as lost:
        raise _Untaken("unanswered", f"{lost}: send it again", reporter.outcomes) from lost
    except (Unavailable, Damaged) as failed:
        raise _Untaken("not_taken", f"{failed}: send it again", reporter.outcomes) from failed
    damaged = [outcome for outcome in outcomes if outcome.outcome == "error"]
    if damaged:
        taken = [None if outcome.outcome == "error" else outcome for outcome in outcomes]
        raise _Untaken("not_taken", f"{damaged[0].key}: {damaged[0].rule}", taken)
    return outcomes


class _Untaken(BrokerError):
    """Not every event has its answer: `outcomes` has None for one that was not taken."""

    def __init__(self, rule: str, detail: str, outcomes: Sequence[Outcome | None]) -> None:
        super().__init__(detail)
        self.rule = rule
        self.outcomes = outcomes
