"""`broker doctor`: the findings of the checkup, for people and for scripts."""

from __future__ import annotations

from broker.checkup import ERROR, examine
from broker.cli.exits import ERROR as EXIT_ERROR
from broker.cli.exits import Exit
from broker.cli.options import FormatOption
from broker.cli.output import Columns, Format, print_list
from broker.cli.session import broker
from broker.cli.table import Column

_STYLES = {"ok": "good", "warning": "doubt", "error": "bad"}

COLUMNS: Columns = (
    (Column("LEVEL", style=lambda level: _STYLES.get(level, "")), lambda found: found["level"]),
    (Column("TOPIC"), lambda found: found["topic"]),
    (Column("FINDING"), lambda found: found["text"]),
)


def doctor(output: FormatOption = Format.table) -> None:
    """Look for what is wrong with Redis and the fleet; exit code 1 if a finding is an error."""
    with broker() as here:
        findings = examine(here)
    print_list([finding.to_json() for finding in findings], output, COLUMNS, "nothing found")
    if any(finding.level == ERROR for finding in findings):
        raise Exit(EXIT_ERROR)
