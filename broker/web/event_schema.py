"""What may be posted as an event, in the words of OpenAPI, with examples."""

from __future__ import annotations

from typing import Any

from broker.rules.event import NUMBER_MAX
from broker.rules.ingress import EVENTS_MAX
from broker.rules.key import ENGINE_BYTES_MAX, ID_BYTES_MAX, RUN_BYTES_MAX
from broker.rules.state import RANK
from broker.rules.wire import EVENT_ID_BYTES_MAX, LIFECYCLE
from broker.web.models import Outcome, Problem
from broker.web.problems import MEDIA_TYPE

Schema = dict[str, Any]

_NAME: Schema = {
    "type": ["string", "null"],
    "pattern": "^([a-z0-9][a-z0-9._-]{0,62})?$",
}
_TEXT: Schema = {"type": ["string", "null"]}
_FLAG: Schema = {"type": ["boolean", "null"]}


def _number(at_least: int = 0, **said: Any) -> Schema:
    digits = "^[0-9]{1,15}$" if at_least == 0 else "^0{0,14}[1-9][0-9]{0,14}$"
    number = {"type": "integer", "minimum": at_least, "maximum": NUMBER_MAX}
    text = {"type": "string", "pattern": digits, "maxLength": 15}
    none = [{"type": "null"}] if at_least == 0 else []
    return {"anyOf": [number, text, *none], **said}


def _part(bytes_max: int, *, empty: bool = False) -> Schema:
    if empty:
        return {"type": ["string", "null"], "maxLength": bytes_max}
    return {"type": "string", "minLength": 1, "maxLength": bytes_max}


def _object(title: str, required: dict[str, Schema], more: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "title": title,
        "required": [*required],
        "properties": required | more,
    }


_STATE: Schema = {"enum": [*RANK]}
_ORIGIN = _NAME | {"description": "without it the node of this server"}
_SEQ = _number(description="the event's number within its job, from 1; 0 = none")
_CREATED = _number(1, description="epoch ms")

_REPORT = _object(
    "report",
    {
        "event": {"const": "report"},
        "engine": _part(ENGINE_BYTES_MAX),
        "id": _part(ID_BYTES_MAX),
        "state": _STATE,
        "created_at": _CREATED,
    },
    {
        "origin": _ORIGIN,
        "run": _part(RUN_BYTES_MAX, empty=True),
        "node": _NAME,
        "seq": _SEQ,
        "started_at": _number(),
        "completed_at": _number(),
        "error": _TEXT,
        "model": _TEXT,
        "requester": _TEXT,
        "resync": _FLAG | {"description": "the producer repeats what stands; no news"},
        "stale_after": _number(description="ms that the origin may be silent about a live job"),
        "event_id": _part(EVENT_ID_BYTES_MAX, empty=True)
        | {"description": "names this very event, so that it is never taken twice"},
    },
)
_REMOVE = _object(
    "remove",
    {"event": {"const": "remove"}, "id": _part(ID_BYTES_MAX)},
    {
        "origin": _ORIGIN,
        "engine": _part(ENGINE_BYTES_MAX)
        | {"description": "without it every engine and run of this id"},
        "run": _part(RUN_BYTES_MAX, empty=True),
        "removed_at": _number(1),
        "force": _FLAG,
        "event_id": _part(EVENT_ID_BYTES_MAX, empty=True),
    },
)
_INFO = _object(
    "workloadInfo",
    {
        "engine": _part(ENGINE_BYTES_MAX),
        "id": _part(ID_BYTES_MAX),
        "state": _STATE,
        "createdAt": _CREATED,
    },
    {
        "originatedFrom": _ORIGIN,
        "runId": _part(RUN_BYTES_MAX, empty=True),
        "scheduledOn": _NAME,
        "seq": _SEQ,
        "startedAt": _number(),
        "completedAt": _number(),
        "error": _TEXT,
        "model": _TEXT,
        "requesterId": _TEXT,
        "staleAfter": _number(),
    },
)
_UNLOADED = _object(
    "workload",
    {"workloadId": _part(ID_BYTES_MAX)},
    {
        "originatedFrom": _ORIGIN,
        "engine": _part(ENGINE_BYTES_MAX),
        "runId": _part(RUN_BYTES_MAX, empty=True),
        "removedAt": _number(1),
    },
)


def _frame(title: str, methods: list[str], params: Schema) -> Schema:
    wanted: dict[str, Schema] = {
        "jsonrpc": {"const": "2.0"},
        "method": {"enum": methods},
        "params": params,
    }
    return _object(title, wanted, {})


_EVENT: Schema = {
    "oneOf": [
        _REPORT,
        _REMOVE,
        _frame(
            "lifecycle frame",
            sorted(LIFECYCLE),
            _object("params", {"workloadInfo": _INFO}, {"resync": _FLAG}),
        ),
        _frame("removal frame", ["workloads:remove"], _UNLOADED),
    ]
}

_RUNNING = {
    "event": "report",
    "origin": "desk",
    "engine": "ollama",
    "id": "7",
    "created_at": 1780000000000,
    "state": "running",
    "node": "gpu-1",
    "seq": 2,
}
_FRAME = {
    "jsonrpc": "2.0",
    "method": "workload:completed",
    "params": {
        "workloadInfo": {
            "id": "7",
            "engine": "ollama",
            "originatedFrom": "desk",
            "scheduledOn": "gpu-1",
            "createdAt": 1780000000000,
            "completedAt": 1780000004200,
            "state": "completed",
            "seq": 3,
        }
    },
}

#: The body of a post: its schema, and examples.
EVENTS: Schema = {
    "schema": {
        "anyOf": [
            _EVENT,
            {"type": "array", "minItems": 1, "maxItems": EVENTS_MAX, "items": _EVENT},
        ]
    },
    "examples": {
        "report": {"summary": "our own JSON", "value": _RUNNING},
        "frame": {"summary": "a frame", "value": _FRAME},
        "array": {
            "summary": "several, in order",
            "value": [_RUNNING, _FRAME, {"event": "remove", "origin": "desk", "id": "7"}],
        },
    },
}


_PROBLEM: Schema = {"$ref": f"#/components/schemas/{Problem.__name__}"}
_OUTCOME: Schema = {"$ref": f"#/components/schemas/{Outcome.__name__}"}


def _problem(**more: Schema) -> Schema:
    return {"allOf": [_PROBLEM, {"type": "object", "properties": more}]}


_NO_EVENT = "Something is no event: `field`, and in an array `index`, say what. Nothing was kept."
_UNTAKEN = (
    "`not_taken`: Redis refused, and nothing was kept of what has no outcome. `unanswered`: Redis did not answer, and "
    "that may be kept or not. Send it again: what was taken is answered `duplicate`."
)
_ABOUT: dict[int, tuple[str, Schema]] = {
    400: (
        _NO_EVENT,
        _problem(index={"type": "integer", "description": "the event's place, from 0"}),
    ),
    500: (
        _UNTAKEN,
        _problem(outcomes={"type": "array", "items": {"anyOf": [_OUTCOME, {"type": "null"}]}}),
    ),
}

#: What OpenAPI says of the answers that are the route's own.
STATUSES: dict[int | str, dict[str, Any]] = {
    status: {"description": said, "content": {MEDIA_TYPE: {"schema": schema}}}
    for status, (said, schema) in _ABOUT.items()
}
