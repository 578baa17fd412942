"""`broker log` and `broker replay`: an origin's log as it is, and the job list that it adds up to."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli.job import shown_state
from broker.cli.jobs import COLUMNS as JOB_COLUMNS
from broker.cli.jobs import state_style
from broker.cli.options import FormatOption
from broker.cli.output import Columns, Format, instant, note, print_list, warn
from broker.cli.output import table_lines as lines_of
from broker.cli.session import broker
from broker.cli.table import Column
from broker.errors import Gone, Invalid, NotFound
from broker.jobs.outcome import Listed, entry_json
from broker.text import to_json

if TYPE_CHECKING:
    from broker.client import Broker
    from broker.rules.entry import Entry

#: Entries read by one call; a table's columns are fitted to so many at once.
PAGE = 500
#: How long `--follow` waits at the log's doorbell before it looks by itself.
FOLLOW_MS = 1_000

_REV = re.compile(r"[0-9]{1,15}(-[0-9]{1,15})?\Z")
_NEVER_TRIMMED = "0-0"

OriginArgument = Annotated[str, typer.Argument(metavar="ORIGIN", show_default=False)]


def _state(entry: dict[str, Any]) -> str:
    return shown_state(entry["record"]) if entry["record"] else "gone"


COLUMNS: Columns = (
    (Column("REV", 3), lambda entry: entry["rev"]),
    (Column("AT", 2), lambda entry: instant(entry["at"])),
    (Column("RULE"), lambda entry: entry["rule"]),
    (Column("KEY", least=16, keep_end=True), lambda entry: entry["key"]),
    (Column("STATE", style=state_style), _state),
    (Column("NODE", 4, least=8), lambda entry: (entry["record"] or {}).get("node") or "-"),
    (Column("BY", 5, least=6), lambda entry: entry["by"] or "-"),
)


def log(
    origin: OriginArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """What happened at an origin, in the order in which it was accepted."""
    if follow and output is Format.json:
        raise Invalid("--follow never ends an array: use -o jsonl")
    with broker() as here:
        _check_known(here, origin)
        if output is Format.json:
            found = [entry_json(origin, entry) for page in _pages(here, origin) for entry in page]
            print_list(found, output, COLUMNS, "")
            return
        shown = False
        for page in _followed(here, origin) if follow else _pages(here, origin):
            _print_page(origin, page, output, head=not shown)
            shown = True
        if not shown:
            note(f"the log of {origin} is empty")


def _print_page(origin: str, page: list[Entry], output: Format, *, head: bool) -> None:
    entries = [entry_json(origin, entry) for entry in page]
    if output is Format.jsonl:
        print("\n".join(map(to_json, entries)))
    else:
        print("\n".join(lines_of(entries, COLUMNS)[0 if head else 1 :]))
    sys.stdout.flush()


def _pages(here: Broker, origin: str, until: str | None = None) -> Iterator[list[Entry]]:
    """All there is, from the oldest on; where the rev `until` is given, no further."""
    entries = here.log(origin).entries(until)
    while page := list(islice(entries, PAGE)):
        yield page


def _followed(here: Broker, origin: str) -> Iterator[list[Entry]]:
    """All there is, then what comes. Where entries were trimmed unread, that is said, not hidden."""
    book = here.log(origin)
    place = book.position().place
    yield from _pages(here, origin, place.rev)
    while True:
        try:
            chunk = book.read_on(place, PAGE)
        except Gone as gone:
            place = book.position().place  # first: all that is accepted after the remark is shown
            warn(str(gone))
            continue
        place = chunk.place
        if chunk.entries:
            yield chunk.entries
        else:
            book.wait(place.rev, FOLLOW_MS)


def replay(
    origin: OriginArgument,
    until: Annotated[str | None, typer.Option(metavar="REV", help="Up to this entry.")] = None,
    output: FormatOption = Format.table,
) -> None:
    """The job list as the log of an origin alone tells it, now or after an earlier entry."""
    if until is not None and not _REV.match(until):
        raise Invalid(f"rev {until!r} is not of the form MILLISECONDS-NUMBER")
    with broker() as here:
        _check_known(here, origin)
        floor = here.log(origin).position().floor
        if floor != _NEVER_TRIMMED:
            warn(
                f"the log of {origin} begins after {floor}: jobs that it no longer tells are missing"
            )
        found = here.replay(origin, until)
    listed = [Listed(key, record) for key, record in found.items()]
    listed.sort(key=lambda job: (job.record.created_at, job.key))
    print_list((job.to_json() for job in listed), output, JOB_COLUMNS, "no jobs")


def _check_known(here: Broker, origin: str) -> None:
    here.log(origin)  # raises Invalid for what is no name
    if origin not in here.origins():
        raise NotFound(f"nothing has been heard of origin {origin}")
