"""Events as others write them: our own JSON, and the JSON-RPC 2.0 frames of the programs that report to us.

It says what a text means, and knows nothing of records, Redis or clocks; whether the event changes anything is the
merge's to say. What is no event at all is `Malformed`; an event with a part out of its bounds is `Invalid`, with as
much of its key as can be told, and counts as refused by the rule `invalid`.

- The state is what the payload says, never what a frame's method name suggests.
- Numbers are JSON integers or strings of 1 to 15 digits: exact in every reader. Missing or null is 0, or an empty text.
- Unknown fields of a report are kept as the text that they came as (from a line: byte for byte). Names are taken as
  they are written: `State` is an unknown field. Those of a removal or of a frame around its event are not kept.
- A text that is too long for the record is cut there, and kept whole: the error in `full`, model and requester under
  these names in `extras`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.errors import Invalid, Malformed
from broker.rules import fields
from broker.rules.event import Remove, RemovePair, Report
from broker.rules.fields import FRAME, FRAME_REMOVAL, NATIVE, Names
from broker.rules.jsonl import dump, load, members
from broker.rules.key import ENGINE_BYTES_MAX, ID_BYTES_MAX, RUN_BYTES_MAX, Key, check_part, encode
from broker.rules.record import clip
from broker.rules.state import RANK

EVENT_ID_BYTES_MAX = 256

Reported = Report | Remove | RemovePair


LIFECYCLE = frozenset(
    f"workload:{what}" for what in ("submitted", "started", "completed", "errored")
)


class _Source(NamedTuple):
    """The line that an event was read from, and where in it the event's fields stand."""

    text: str = ""
    path: tuple[str, ...] = ()


def parse_line(line: bytes | str) -> Reported:
    """Read one line of JSONL. Raises Malformed, or Invalid with the key as far as it can be told."""
    value, text = load(line)
    return _event(value, text)


def parse_event(value: Any, text: str = "") -> Reported:
    """Read one event from the value that its JSON gives. Raises as `parse_line` does.

    Where the `text` is given that the value was loaded from, its unknown fields are kept byte for byte.
    """
    return _event(value, text)


def to_json(event: Reported) -> dict[str, Any]:
    """The event in our own JSON: `parse_event` gives it back, but for `by`, which nobody says of himself.

    Unknown fields of a frame that bear a name of ours (`node`, `run`, ...) are left out.
    """
    said: dict[str, Any] = {"event": "report" if isinstance(event, Report) else "remove"}
    if isinstance(event, RemovePair):
        said |= {"origin": event.origin, "id": event.id}
    else:
        said |= event.key._asdict()
    if isinstance(event, Report):
        return _report_json(said, event)
    return said | {
        "removed_at": event.removed_at or None,
        "force": event.force,
        "event_id": event.event_id,
    }


def _report_json(said: dict[str, Any], event: Report) -> dict[str, Any]:
    extras = json.loads(event.extras) if event.extras else {}
    said |= {
        "state": event.state,
        "node": event.node,
        "seq": event.seq,
        "created_at": event.created_at,
        "started_at": event.started_at or None,
        "completed_at": event.completed_at or None,
        "error": json.loads(event.full) if event.full else event.error or None,
        "model": _whole(event.model, extras.get("model")),
        "requester": _whole(event.requester, extras.get("requester")),
        "resync": event.resync,
        "stale_after": event.stale_after or None,
        "event_id": event.event_id,
    }
    return {**extras, **said}


def _whole(text: str, kept: Any) -> str:
    """The text that was cut to this one, if `kept` is that."""
    return kept if isinstance(kept, str) and clip(kept) == text else text


# --- the two dialects


def _event(value: Any, text: str) -> Reported:
    if not isinstance(value, Mapping):
        raise Malformed("not a JSON object")
    if "event" not in value:
        return _frame(value, text)
    name = value["event"]
    if name == "report":
        return _report(value, NATIVE, value, _Source(text))
    if name == "remove":
        return _removal(value, NATIVE)
    raise Malformed(
        f"unknown event {fields.shown(name)}: it is neither report nor remove", field="event"
    )


def _frame(value: Mapping[str, Any], text: str) -> Reported:
    """A JSON-RPC 2.0 notification. Its method says which of the two events it is, and nothing more."""
    if "method" not in value:
        raise Malformed("no event: it has neither `event` nor `method`")
    if value.get("jsonrpc") != "2.0":
        said = fields.shown(value.get("jsonrpc"))
        raise Malformed(f"no JSON-RPC 2.0 frame: jsonrpc is {said}", field="jsonrpc")
    method, params = value["method"], value.get("params")
    if not isinstance(method, str) or (method not in LIFECYCLE and method != "workloads:remove"):
        raise Malformed(f"unknown method {fields.shown(method)}", field="method")
    if not isinstance(params, Mapping):
        raise Malformed("the frame has no params", field="params")
    if method == "workloads:remove":
        return _removal(params, FRAME_REMOVAL)
    info = params.get("workloadInfo")
    if not isinstance(info, Mapping):
        raise Malformed("the frame has no params.workloadInfo", field="params.workloadInfo")
    return _report(info, FRAME, params, _Source(text, ("params", "workloadInfo")))


def _report(
    said: Mapping[str, Any], names: Names, envelope: Mapping[str, Any], source: _Source
) -> Report:
    try:
        key = Key(
            fields.node_name(names.origin, fields.string(said, names.origin)),
            fields.part(names.engine, fields.string(said, names.engine), ENGINE_BYTES_MAX),
            fields.part(names.run, fields.string(said, names.run), RUN_BYTES_MAX, empty=True),
            check_part(names.id, fields.string(said, names.id), ID_BYTES_MAX),
        )
        state = said.get(names.state)
        if not isinstance(state, str) or state not in RANK:
            raise Invalid(
                f"{names.state} must be one of {', '.join(RANK)}, not {fields.shown(state)}",
                field=names.state,
            )
        node = fields.string(said, names.node)
        created_at = fields.number(said, names.created_at)
        if created_at == 0:
            raise Invalid(
                f"{names.created_at} is missing: it tells a job from an earlier one",
                field=names.created_at,
            )
        unknown = None if names.known.issuperset(said) else _unknown(said, names, source)
        return Report(
            key=key,
            created_at=created_at,
            state=state,
            node=node and fields.node_name(names.node, node),
            seq=fields.number(said, names.seq),
            started_at=fields.number(said, names.started_at),
            completed_at=fields.number(said, names.completed_at),
            resync=fields.flag(envelope, "resync"),
            stale_after=fields.number(said, names.stale_after),
            event_id=_event_id(said, names),
            **fields.cut(
                fields.string(said, names.error),
                fields.string(said, names.model),
                fields.string(said, names.requester),
                unknown,
            ),
        )
    except Invalid as wrong:
        raise _named(wrong, said, names) from None


def _removal(said: Mapping[str, Any], names: Names) -> Remove | RemovePair:
    """Exact where an engine is named, else of every engine and run that shares (origin, id)."""
    broad = said.get(names.engine) is None
    try:
        origin = fields.node_name(names.origin, fields.string(said, names.origin))
        run = fields.part(names.run, fields.string(said, names.run), RUN_BYTES_MAX, empty=True)
        id = check_part(names.id, fields.string(said, names.id), ID_BYTES_MAX)
        removed_at, event_id = fields.number(said, names.removed_at), _event_id(said, names)
        if removed_at == 0 and said.get(names.removed_at) is not None:
            raise Invalid(
                f"{names.removed_at} must be above 0; without one, leave it out",
                field=names.removed_at,
            )
        force = names is NATIVE and fields.flag(said, "force")
        if broad:
            if run:
                raise Invalid(f"{names.run} without {names.engine} names no job", field=names.run)
            return RemovePair(
                origin=origin, id=id, removed_at=removed_at, force=force, event_id=event_id
            )
        engine = fields.part(names.engine, fields.string(said, names.engine), ENGINE_BYTES_MAX)
        return Remove(
            key=Key(origin, engine, run, id), removed_at=removed_at, force=force, event_id=event_id
        )
    except Invalid as wrong:
        raise _named(wrong, said, names, broad=broad) from None


def _named(
    wrong: Invalid, said: Mapping[str, Any], names: Names, *, broad: bool = False
) -> Invalid:
    """The same complaint with what can be told of the key, so that the outcome names the job."""
    if isinstance(wrong, Malformed):
        return wrong
    parts = [
        encode(clip(part.encode(errors="replace").decode(), ID_BYTES_MAX))
        if isinstance(part := said.get(name), str)
        else ""
        for name in (names.origin, names.engine, names.run, names.id)
    ]
    known = parts[0] or parts[3]
    if broad:  # a pair's text, as an outcome has it
        del parts[1:3]
    return Invalid(str(wrong), "/".join(parts) if known else "", wrong.field)


def _event_id(said: Mapping[str, Any], names: Names) -> str:
    if names is not NATIVE:
        return ""
    return check_part("event_id", fields.string(said, "event_id"), EVENT_ID_BYTES_MAX, empty=True)


def _unknown(said: Mapping[str, Any], names: Names, source: _Source) -> dict[str, str]:
    """The fields that the rules do not know, as JSON text, in their order."""
    unknown = [name for name in said if name not in names.known]
    if source.text:
        return members(source.text, source.path, unknown)
    if not all(isinstance(name, str) for name in unknown):
        raise Invalid("a field's name is not a text")
    return {name: dump(fields.shown(name), said[name]) for name in unknown}
