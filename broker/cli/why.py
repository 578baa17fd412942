"""`broker why`: what decided a job's state, what was refused, what would change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.cli.job import is_live, shown_state
from broker.cli.options import FormatOption, KeyArgument
from broker.cli.output import Format, ago, field_lines, instant
from broker.cli.session import broker
from broker.errors import NotFound
from broker.rules.phrases import holders_lost
from broker.rules.state import RUNNING
from broker.text import safe, to_json

#: A whole key, and how many slashes one has.
KEY = "origin/engine/run/id"
WHOLE = KEY.count("/")


def why(key: KeyArgument, output: FormatOption = Format.table) -> None:
    """What decided a job's state, which attempts were given up and which events refused, and what would change it."""
    with broker() as here:
        try:
            found = here.why(key).to_json()
        except NotFound as none:
            if key.count("/") == WHOLE:
                raise
            raise NotFound(f"{none}; whether it was removed, its whole key tells: {KEY}") from None
    if output is not Format.table:
        print(to_json(found, indent=2 if output is Format.json else None))
        return
    print("\n".join(why_lines(found)))


def why_lines(found: dict[str, Any]) -> Iterator[str]:
    """What `Catalog.why` gives as JSON, for people; safe on a terminal."""
    yield from field_lines(_facts(found))
    if found["given_up"] or found["untold"]:
        yield "\nattempts that were given up, the newest first"
        for attempt in found["given_up"]:
            yield f"  {safe(_given_up(attempt))}"
        if found["untold"]:
            yield f"  {_untold(found['untold'])}"
    if found["refused"]:
        yield "\nrefused, the newest first"
        for refusal in found["refused"]:
            yield f"  {safe(_refusal(refusal))}"
    yield "\nwhat would change it"
    for sentence in found["next"]:
        yield f"  {safe(sentence)}"


def _facts(found: dict[str, Any]) -> Iterator[tuple[str, object]]:
    yield "key", found["key"]
    job, deciding = found["record"], found["deciding"]
    if job is None:
        removed = found["tombstone"]
        yield (
            "state",
            f"removed (all that was created up to {instant(removed)})" if removed else "unknown",
        )
        return
    yield "state", shown_state(job)
    if job["inferred"]:
        yield (
            "guess",
            f"a sweep's, in place of {job['guessed_from']}, at {instant(job['guessed_at'])}",
        )
    yield "decided by", f"{deciding['rule']}, said by {deciding['by'] or 'nobody named'}"
    yield "rev", f"{deciding['rev']} ({instant(deciding['at'])}, {ago(deciding['at'])})"
    if job["kind"] == "submitted" and (job["inferred"] or job["rule"] == "lost"):
        # A sweep always words it so, also where only the worker fell silent.
        yield "reason", None if job["inferred"] else job["reason"]
        yield "error", f"{job['error']} (what fell silent: see below)"
    elif not is_live(job):
        yield "reason", job["reason"]
        yield "error", job["error"]
    elif said := job["error"] or job["reason"]:
        last = job["tries"] - (job["state"] == RUNNING)
        yield "last try", f"try {last} ended: {said}"
    yield "node", job["node"]
    yield "desired", job["desired"]
    if job["kind"] == "submitted":
        yield "attempt", f"{job['attempt']} (rises whenever one is given up)"
        deaths = f", {holders_lost(job['deaths'])}" if job["deaths"] else ""
        once = ", at most once" if job["at_most_once"] else ""
        yield "tries", f"{job['tries']} of {job['attempts']}{deaths}{once}"
    else:
        yield "seq", job["seq"] or "none: its origin does not number"
        yield "last seen", f"{instant(job['last_seen'])} ({ago(job['last_seen'])})"


def _given_up(attempt: dict[str, Any]) -> str:
    where = f" on {attempt['node']}" if attempt["node"] else ""
    said = f"attempt {attempt['attempt']}{where}"
    if attempt["event"] == "finish":
        return f"{said} ended at {instant(attempt['at'])}: {attempt['rule']}, {attempt['error'] or 'no error told'}"
    worker = f" {attempt['worker']}" if attempt["worker"] else ""
    why = (
        f", its worker{worker} spoke of it no more"
        if attempt["event"] in ("requeue", "lost")
        else ""
    )
    return f"{said} was given up at {instant(attempt['at'])}: {attempt['rule']}{why}"


def _untold(count: int) -> str:
    which = "attempt 1" if count == 1 else f"attempts 1 to {count}"
    return f"the log no longer tells of {which}, or not near enough"


def _refusal(refusal: dict[str, Any]) -> str:
    known = dict(refusal)
    rule, count = known.pop("rule"), known.pop("count", 1)
    at = known.pop("at", None)
    said = ", ".join(
        f"{name} {value}" for name, value in known.items() if value not in (None, "", 0)
    )
    return (
        f"{rule}{f' x{count}' if count > 1 else ''}"
        + (f" at {instant(at)}" if at else "")
        + (f": {said}" if said else "")
    )
