"""What may be posted: one event or an array of them, our own JSON or frames, read more strictly than a line of a file.

Who posts is often another program in another language, whose reader may take `State` for `state`; what one side took
for a field and the other did not is a job whose story nobody understands. So a name that is a known one but for its
case is refused, and so are two names of one object that differ by nothing else. The rest is `broker.rules.wire`'s.
Every complaint names the field by its path in the event, and the event by its place in the array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from broker.errors import Invalid, Malformed
from broker.rules import fields
from broker.rules.fields import FRAME, FRAME_REMOVAL, NATIVE
from broker.rules.jsonl import elements, load
from broker.rules.wire import Reported, parse_event

#: How many events one array may hold.
EVENTS_MAX = 1_000

_REMOVAL = "workloads:remove"


def read(body: bytes | str, node: str) -> tuple[list[Reported], bool]:
    """The events of a body, and whether it is an array; `node` is the origin of those that name none.

    Raises Malformed and Invalid, with `field` and `index`: one event that is none refuses the whole array.
    """
    value, text = load(body, "the body")
    if not isinstance(value, list):
        return [_event(value, text, node)], False
    if not 1 <= len(value) <= EVENTS_MAX:
        raise Malformed(f"an array must hold 1 to {EVENTS_MAX} events, not {len(value)}")
    events = []
    for index, (said, own) in enumerate(zip(value, elements(text), strict=True)):
        try:
            events.append(_event(said, own, node))
        except Invalid as wrong:
            wrong.index = index
            raise
    return events, True


def _event(said: Any, text: str, node: str) -> Reported:
    if not isinstance(said, Mapping):
        raise Malformed("not a JSON object")
    native = "event" in said
    _check_names(said, _NATIVE if native else _ENVELOPE)
    params = None if native else said.get("params")
    info = None
    if isinstance(params, Mapping):
        _check_names(params, _PARAMS, "params.")
        info = params.get("workloadInfo")
        if isinstance(info, Mapping):
            _check_names(info, _INFO, "params.workloadInfo.")
    if native:
        said = _stamped(said, NATIVE.origin, node)
    elif said.get("method") == _REMOVAL and isinstance(params, Mapping):
        said = {**said, "params": _stamped(params, FRAME.origin, node)}
    elif isinstance(params, Mapping) and isinstance(info, Mapping):
        info = _stamped(info, FRAME.origin, node)
        said = {**said, "params": {**params, "workloadInfo": info}}
    try:
        return parse_event(said, text)
    except Invalid as wrong:
        if not native and wrong.field:
            wrong.field = _path(wrong.field, said.get("method"))
        raise


def _stamped(said: Mapping[str, Any], origin: str, node: str) -> Mapping[str, Any]:
    return said if said.get(origin) not in (None, "") else {**said, origin: node}


def _path(field: str, method: Any) -> str:
    """Where a frame's field stands that a complaint names by its last part."""
    if field in {"jsonrpc", "method", "params", "params.workloadInfo"}:
        return field
    return (
        "params." if method == _REMOVAL or field == "resync" else "params.workloadInfo."
    ) + field


def _check_names(said: Mapping[str, Any], known: Mapping[str, str], path: str = "") -> None:
    met: dict[str, str] = {}
    for name in said:
        folded = name.casefold()
        meant = known.get(folded, name)
        if name != meant:
            raise Malformed(
                f"{fields.shown(name)} is not {meant}: names count as they are spelled",
                field=path + _clean(name),
            )
        if folded in met:
            other = fields.shown(met[folded])
            raise Malformed(
                f"{fields.shown(name)} and {other} differ by nothing but case",
                field=path + _clean(name),
            )
        met[folded] = name


def _clean(name: str) -> str:
    """A stranger's name that can be written as JSON text, and is not long."""
    return name[:100].encode(errors="replace").decode()


def _folded(names: Iterable[str]) -> dict[str, str]:
    return {name.casefold(): name for name in names}


_NATIVE = _folded([*asdict(NATIVE).values(), "event", "event_id", "resync", "force"])
#: `event` and `id` are no part of a frame, but what looks like them is a slip.
_ENVELOPE = _folded(["jsonrpc", "method", "params", "event", "id"])
_PARAMS = _folded([*asdict(FRAME_REMOVAL).values(), "workloadInfo", "resync"])
_INFO = _folded([*asdict(FRAME).values(), "resync"])
