"""`broker why`: what decided a job's state, what was refused, what would change it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.cli.job import shown_state
from broker.cli.options import FormatOption, KeyArgument
from broker.cli.output import Format, ago, instant, print_fields
from broker.cli.session import broker
from broker.text import safe, to_json


def why(key: KeyArgument, output: FormatOption = Format.table) -> None:
    """What decided a job's state, which events were refused and by which rule, and what would change it."""
    with broker() as here:
        found = here.why(key).to_json()
    if output is not Format.table:
        print(to_json(found, indent=2 if output is Format.json else None))
        return
    print_fields(_facts(found))
    if found["refused"]:
        print("\nrefused, the newest first")
        for refusal in found["refused"]:
            print(f"  {safe(_refusal(refusal))}")
    print("\nwhat would change it")
    for sentence in found["next"]:
        print(f"  {safe(sentence)}")


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
    yield "reason", job["reason"]
    yield "error", job["error"]
    yield "node", job["node"]
    yield "desired", job["desired"]
    if job["kind"] == "submitted":
        yield "attempt", f"{job['attempt']} (rises whenever one is given up)"
        deaths = f", {job['deaths']} holders died" if job["deaths"] else ""
        once = ", at most once" if job["at_most_once"] else ""
        yield "tries", f"{job['tries']} of {job['attempts']}{deaths}{once}"
    else:
        yield "seq", job["seq"] or "none: its origin does not number"
        yield "last seen", f"{instant(job['last_seen'])} ({ago(job['last_seen'])})"


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
