"""`broker show`: all that is known of one job."""

from __future__ import annotations

from broker.cli.job import print_job
from broker.cli.options import FormatOption, KeyArgument
from broker.cli.output import Format
from broker.cli.session import broker


def show(key: KeyArgument, output: FormatOption = Format.table) -> None:
    """All that is known of a job: its record, its payload, the events that were refused."""
    with broker() as here:
        found = here.show(key)
    print_job(found, output)
