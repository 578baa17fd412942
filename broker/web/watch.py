"""The list as it changes: server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query

from broker.errors import Unavailable
from broker.web.answers import told
from broker.web.hub import TheHub
from broker.web.stream import MEDIA_TYPE, EventStream, events
from broker.web.wanted import AskedChanges

router = APIRouter(tags=["watch"])

_STREAM = {
    "description": "Events: `ready`, `change`, `doubt`, `gone`, `trouble`; "
    "with `pulse` also `overview`, `nodes`, `groups`.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
}


@router.get("/v1/watch", response_class=EventStream, responses={200: _STREAM, **told(400, 503)})
async def watch(
    hub: TheHub,
    asked: Annotated[AskedChanges, Query()],
    last_event_id: Annotated[
        str,
        Header(
            description="The `id` of an event, or the `Last-Event-ID` of a list: go on from there."
        ),
    ] = "",
) -> EventStream:
    """Follow the jobs that fit, also into their removal or out of the filter.

    After `gone` something may have been missed: list again, and go on. Of what is told twice the higher `rev` counts.
    After `trouble` with a `why` nothing more is known, until it comes with null: while Redis is away none is let in.
    """
    if isinstance(trouble := hub.readers.trouble, Unavailable):
        raise Unavailable(str(trouble))
    stream = events(
        hub.readers,
        hub.pulse,
        hub.texts,
        asked.filter,
        after=last_event_id,
        wants_state=asked.pulse,
    )
    return EventStream(stream, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
