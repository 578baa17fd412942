"""What a user may wish of jobs: that they end, go, or run again; of one, or of many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response

from broker.errors import Damaged, Invalid, Refused
from broker.jobs.outcome import Outcome
from broker.rules.key import Key
from broker.rules.phrases import SAID
from broker.web import models
from broker.web.answers import Json, told
from broker.web.hub import TheHub
from broker.web.paths import TheKey
from broker.web.problems import Problem
from broker.web.wanted import Body, Keys, Nothing, Wish, Wishes, body_of, read

router = APIRouter(tags=["jobs"])

Handler = TypeVar("Handler", bound=Callable[..., Any])


def _many(
    verb: str, body: type[Body], outcome: type[models.Outcome]
) -> Callable[[Handler], Handler]:
    """The route of a wish for many jobs: an array of outcomes."""
    return router.post(
        f"/v1/jobs/{verb}",
        response_model=list[outcome],  # type: ignore[valid-type]  # a type, chosen when the route is made
        responses=told(400, 408, 413, 503),
        openapi_extra=body_of(body),
    )


def _one(
    verb: str, body: type[Body], outcome: type[models.Outcome]
) -> Callable[[Handler], Handler]:
    """The route of a wish for one job: its outcome, or the error that a refusal is."""
    return router.post(
        f"/v1/jobs/{{key}}/{verb}",
        response_model=outcome,
        responses=told(400, 404, 408, 409, 413, 503),
        openapi_extra=body_of(body),
    )


@_many("cancel", Wishes, models.Outcome)
async def cancel_many(hub: TheHub, request: Request) -> Response:
    """Wish that each of these jobs ends: the outcomes in the order of the keys, refused ones among them."""
    wish = await read(request, Wishes)
    return _answers(await hub.broker.cancel_many(_keys(wish), force=wish.force))


@_many("retry", Keys, models.Retried)
async def retry_many(hub: TheHub, request: Request) -> Response:
    """Hand each of these ended jobs in anew. After a 503 some may be in already: another call makes them twice."""
    return _answers(await hub.broker.retry_many(_keys(await read(request, Keys))))


@_many("remove", Wishes, models.Outcome)
async def remove_many(hub: TheHub, request: Request) -> Response:
    """Take each of these jobs off the list, for good: the outcomes in the order of the keys."""
    wish = await read(request, Wishes)
    return _answers(await hub.broker.remove_many(_keys(wish), force=wish.force))


@_one("cancel", Wish, models.Outcome)
async def cancel(hub: TheHub, key: TheKey, request: Request) -> Response:
    """Wish that a job ends: a queued one does at once, a running one is told to stop."""
    wish = await read(request, Wish)
    return _answer(await hub.broker.cancel(key, force=wish.force))


@_one("retry", Nothing, models.Retried)
async def retry(hub: TheHub, key: TheKey, request: Request) -> Response:
    """Hand an ended job in anew: a new id, the same payload and options."""
    await read(request, Nothing)
    [outcome] = await hub.broker.retry_many([key])
    return _answer(outcome)


@_one("remove", Wish, models.Outcome)
async def remove(hub: TheHub, key: TheKey, request: Request) -> Response:
    """Take a job off the list, for good: late events do not bring it back. A running one is told to stop first."""
    wish = await read(request, Wish)
    return _answer(await hub.broker.remove(key, force=wish.force))


def _keys(wish: Keys) -> list[Key]:
    """The jobs that are meant; raises Problem naming the first that is no key, or is given twice."""
    found: dict[Key, None] = {}
    for number, text in enumerate(wish.keys):
        field = f"keys.{number}"
        try:
            key = Key.parse(text)
        except Invalid as wrong:
            raise Problem(400, "invalid", f"{field}: {wrong}", field=field) from None
        if key in found:
            raise Problem(400, "invalid", f"{field}: {key} stands there twice", field=field)
        found[key] = None
    return list(found)


def _answers(outcomes: list[Any]) -> Response:
    return Json([outcome.to_json() for outcome in outcomes])


def _answer(outcome: Outcome) -> Response:
    if outcome.ok:
        return Json(outcome.to_json())
    said = f"{outcome.key}: {SAID.get(outcome.rule, outcome.rule)}"
    if outcome.outcome == "error":
        raise Damaged(said)
    if outcome.rule in ("unknown", "tombstoned"):  # nothing of that name is there
        raise Problem(404, outcome.rule, said)
    raise Refused(outcome.rule, said)
