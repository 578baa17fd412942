"""The same wish for every job that fits: shown and asked about first, then said in batches.

What is done is always told: also where Ctrl-C, a lost Redis or a closed pipe ends it halfway.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from broker.cli.exits import ERROR, INTERRUPTED, REFUSED, USAGE, Exit
from broker.cli.options import check_state
from broker.cli.output import Format, note
from broker.cli.said import named, said
from broker.errors import Damaged, Invalid, Unavailable
from broker.rules.state import STATES
from broker.text import safe, to_json

if TYPE_CHECKING:
    from broker.client import Broker
    from broker.jobs.outcome import Outcome
    from broker.rules.key import Key

#: Jobs a call: so many are decided between two looks at Ctrl-C.
BATCH = 100
#: Jobs that the question shows by name.
SHOWN = 5


class Filter(NamedTuple):
    """Which jobs are meant, as `broker jobs` takes it."""

    state: str | None = None
    node: str | None = None
    engine: str | None = None
    origin: str | None = None

    def check(self, key: str | None) -> None:
        """Raise Invalid unless either a KEY or a filter was given."""
        check_state(self.state)
        given = any(part is not None for part in self)
        if given == (key is not None):
            raise Invalid("name a KEY, or say which jobs by --state, --engine, --node, --origin")


class Verb(NamedTuple):
    """What is wished: its name, for which states where none is named, and how it is said."""

    name: str
    states: frozenset[str] | None
    say: Callable[[Broker, Sequence[Key]], Sequence[Outcome]]


def wish(here: Broker, verb: Verb, fits: Filter, output: Format, *, yes: bool) -> None:
    """Say it for every job that fits, and leave by the exit code: 0 if each was ok, 4 if any was refused."""
    found = _find(here, verb, fits)
    if not found:
        note("no jobs fit")
        if output is Format.json:
            print("[]")
        return
    if not yes:
        _ask(verb, found)
    _say_all(here, verb, sorted(found), output)


def _find(here: Broker, verb: Verb, fits: Filter) -> dict[Key, str]:
    """The jobs that fit, each with its state. What was retried already is left out of a retry, and counted."""
    states = verb.states if fits.state is None else frozenset({fits.state})
    found: dict[Key, str] = {}
    retried: set[str] = set()
    for key, record in here.select(engine=fits.engine, origin=fits.origin):
        retried.add(record.retry_of)
        if (states is None or record.believed in states) and fits.node in (None, record.node):
            found[key] = record.believed
        else:
            found.pop(key, None)  # it changed since it was read before
    if verb.name == "retry" and (again := [key for key in found if str(key) in retried]):
        for key in again:
            del found[key]
        left_out = f"{len(again):,} that {'was' if len(again) == 1 else 'were'} retried before"
        note(f"left out: {left_out} (broker retry KEY does it again)")
    return found


def _ask(verb: Verb, found: dict[Key, str]) -> None:
    counts = Counter(found.values())
    by_state = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    jobs = f"{len(found):,} job{'s' if len(found) != 1 else ''}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Exit(USAGE, f"{jobs} fit ({by_state}); to {verb.name} them add --yes")
    note(f"{verb.name} {jobs}: {by_state}")
    for key in sorted(found)[:SHOWN]:
        note(f"  {found[key]:9}  {key}")
    if len(found) > SHOWN:
        note(f"  and {len(found) - SHOWN:,} more")
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Exit(ERROR, "nothing was done")


@dataclass
class _Told:
    """What was answered so far."""

    total: int
    output: Format
    ok: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    kept: list[dict[str, str]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.ok.total() + self.refused.total()

    def add(self, here: Broker, outcomes: Sequence[Outcome]) -> None:
        """Count a batch, and print it where each job has its line."""
        self.ok.update(_meanings(here, [outcome for outcome in outcomes if outcome.ok]))
        self.refused.update(outcome.rule for outcome in outcomes if not outcome.ok)
        self.errors += sum(outcome.outcome == "error" for outcome in outcomes)
        if self.output is Format.json:
            self.kept += [outcome.to_json() for outcome in outcomes]
            return
        for outcome in outcomes:
            shown = outcome.to_json()
            if self.output is Format.jsonl:
                print(to_json(shown))
            elif shown.get("new_key"):
                print(safe(shown["new_key"]))
        sys.stdout.flush()

    def summary(self) -> str:
        parts = [f"{count:,} {what}" for what, count in self.ok.most_common()]
        parts += [f"{count:,} refused: {named(rule)}" for rule, count in self.refused.most_common()]
        return "; ".join(parts) or "nothing was done"

    def close(self, verb: Verb) -> None:
        """Print what is left to print, of all that was done."""
        if self.output is Format.json:
            print(to_json(self.kept, indent=2))
        elif self.output is Format.table and self.ok:
            tell = note if verb.name == "retry" else print
            tell("; ".join(f"{count:,} {what}" for what, count in self.ok.most_common()))


def _say_all(here: Broker, verb: Verb, keys: Sequence[Key], output: Format) -> None:
    from broker.cli.progress import counting
    from broker.cli.signals import stop_orders

    told = _Told(len(keys), output)
    alone = output is Format.json or (output is Format.table and verb.name != "retry")
    with stop_orders() as stop, counting("jobs", len(keys), alone=alone) as advance:
        for at in range(0, len(keys), BATCH):
            if stop.event.is_set():
                break
            batch = keys[at : at + BATCH]
            try:
                outcomes = verb.say(here, batch)
                told.add(here, outcomes)
            except (Damaged, Unavailable) as lost:
                told.close(verb)
                unsure = f"of the next {len(batch):,} it is not known"
                raise type(lost)(f"{lost}; {_how_far(told)}; {unsure}") from lost
            except BrokenPipeError:
                raise Exit(ERROR, f"nobody reads the outcomes: {_how_far(told)}") from None
            advance(len(batch))
    told.close(verb)
    if told.count < len(keys):
        raise Exit(INTERRUPTED, _how_far(told))
    if told.refused:
        refused = "; ".join(
            f"{count:,} {named(rule)}" for rule, count in told.refused.most_common()
        )
        raise Exit(
            ERROR if told.errors else REFUSED,
            f"{told.refused.total():,} of {len(keys):,} jobs were refused: {refused}",
        )


def _how_far(told: _Told) -> str:
    return f"stopped after {told.count:,} of {told.total:,} jobs ({told.summary()})"


def _meanings(here: Broker, outcomes: Sequence[Outcome]) -> list[str]:
    """What each was told, in words; whether a wish for the end has ended the job already is looked up."""
    from broker.rules.key import Key

    asked = [Key.parse(outcome.key) for outcome in outcomes if outcome.rule == "desired"]
    records = dict(zip(map(str, asked), here.view.get_many(asked), strict=True))
    return [
        "cancelled"
        if outcome.key in records and ((record := records[outcome.key]) is None or record.ended)
        else said(outcome.rule)
        for outcome in outcomes
    ]
