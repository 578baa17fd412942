"""`broker submit`: hand in one job, or one for each line of a file."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from broker.cli.exits import ERROR, JOB_FAILED, Exit
from broker.cli.lines import batches, opened
from broker.cli.options import FormatOption
from broker.cli.output import Format, note, print_list, warn
from broker.cli.progress import counting
from broker.cli.session import broker, check_seconds
from broker.errors import Damaged, Invalid, NotFound, Unavailable
from broker.jobs.submission import JSON_BYTES_MAX, encode_json
from broker.rules.state import COMPLETED
from broker.text import safe, to_json

if TYPE_CHECKING:
    from broker.client import Broker, Job

#: What is read of one payload at most: white space may make it longer than what is kept of it.
READ_BYTES_MAX = 4 * JSON_BYTES_MAX
#: Jobs handed in by one call.
BATCH = 200


def submit(
    engine: Annotated[str, typer.Argument(metavar="ENGINE")],
    payload: Annotated[
        str | None, typer.Argument(metavar="[JSON|-]", help="Any JSON; - is stdin; none is null.")
    ] = None,
    jsonl: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|-",
            help="A job for each line of a file: each line is one payload, any JSON.",
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The same id and payload again is the same job."),
    ] = None,
    origin: Annotated[
        str | None, typer.Option(metavar="ORIGIN", help="Default: BROKER_NODE or the host.")
    ] = None,
    run: Annotated[
        str, typer.Option(metavar="RUN", help="Nonce of the submitting program's run.")
    ] = "",
    priority: Annotated[int, typer.Option(metavar="N", help="-100 to 100; higher goes first.")] = 0,
    attempts: Annotated[
        int | None, typer.Option(metavar="N", help="Tries in all; default 3.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Of one try.")] = None,
    delay: Annotated[float, typer.Option(metavar="SECONDS", help="Not to run before.")] = 0,
    at_most_once: Annotated[bool, typer.Option("--at-most-once", help="Never try again.")] = False,
    model: Annotated[
        str,
        typer.Option(metavar="MODEL", help="Run where this model is (if nodes tell)."),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait, and exit as `wait` does.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """Hand in a job for our workers; prints its key."""
    check_seconds(timeout, "timeout")
    check_seconds(delay, "delay")
    options: dict[str, Any] = {
        "origin": origin,
        "run": run,
        "priority": priority,
        "attempts": attempts,
        "timeout": timeout,
        "delay": delay,
        "at_most_once": at_most_once,
        "model": model,
    }
    if jsonl is not None:
        if payload is not None or id is not None:
            raise Invalid("--jsonl takes neither a payload nor --id")
        _submit_lines(engine, jsonl, options, output, wait=wait)
        return
    value = _payload(payload)
    with broker() as here:
        job = here.submit(engine, value, id=id, **options)
        _warn_unoffered(here, engine)
        if output is Format.table:
            print(safe(job.key), flush=True)
        elif not wait:
            shown = here.listed(job.key).to_json()
            print(to_json(shown, indent=2 if output is Format.json else None))
        if wait:
            from broker.cli.wait import await_end

            await_end(here, job.key, None, output)


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    if text == "-":
        raw = sys.stdin.buffer.read(READ_BYTES_MAX + 1)
        if len(raw) > READ_BYTES_MAX:
            raise Invalid(f"payload is too large: at most {JSON_BYTES_MAX} bytes are taken")
        return parse_payload(raw)
    return parse_payload(text.encode(errors="surrogateescape"))


def parse_payload(raw: bytes) -> Any:
    """A payload from its JSON text; raises Invalid."""
    if len(raw) > READ_BYTES_MAX:
        raise Invalid(f"payload is too large: at most {JSON_BYTES_MAX} bytes are taken")
    try:
        value = json.loads(raw.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise Invalid("payload is not UTF-8 text") from None
    except json.JSONDecodeError as wrong:
        hint = " (a text is written as '\"text\"')" if wrong.pos == 0 and raw else ""
        raise Invalid(
            f"payload is not JSON: {wrong.msg} at character {wrong.pos + 1}{hint}"
        ) from None
    except Invalid:
        raise
    except (ValueError, RecursionError):
        raise Invalid("payload is not JSON that can be kept: a huge number, or too deep") from None
    if len(raw) > JSON_BYTES_MAX // 8 or b"\\ud" in raw.lower():
        # So that, in a file, only the line that is too large, or no text, is refused.
        encode_json("payload", value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise Invalid(f"payload is not JSON: {name} is no number")


def _submit_lines(
    engine: str, file: str, options: dict[str, Any], output: Format, *, wait: bool
) -> None:
    """A job for each line. A line that is no JSON is named by its number; the rest goes on."""
    from broker.cli.jobs import COLUMNS

    jobs: list[Job] = []
    malformed = done = 0
    keep = wait or output is not Format.table
    with broker() as here, opened(file) as source, counting("jobs") as advance:
        _warn_unoffered(here, engine)
        for batch in batches(source, BATCH, READ_BYTES_MAX):
            values = []
            for number, line in batch:
                if not line.strip():
                    continue
                try:
                    values.append(parse_payload(line))
                except Invalid as wrong:
                    malformed += 1
                    note(f"broker: line {number}: {wrong}")
            last = batch[-1][0]
            try:
                accepted = here.submit_many(engine, values, **options) if values else []
            except (Damaged, Unavailable) as lost:
                known = f"all up to line {done} are handed in, " if done else ""
                raise type(lost)(
                    f"{lost}; {known}of lines {done + 1} to {last} it is not known"
                ) from lost
            done = last
            advance(len(accepted))
            if output is Format.table:
                for job in accepted:
                    print(safe(job.key))
                sys.stdout.flush()
            jobs += accepted if keep else []
        failed = sum(not _succeeds(job) for job in jobs) if wait else 0
        if output is not Format.table:
            keys = [job.key for job in jobs]
            found = zip(keys, here.view.get_many(keys), strict=True)
            records = [(key, record) for key, record in found if record is not None]
            shown = (listed.to_json() for listed in here.list_records(records))
            print_list(shown, output, COLUMNS, "no jobs")
    if failed:
        raise Exit(JOB_FAILED, f"{failed} of {len(jobs)} jobs did not complete")
    if malformed:
        raise Exit(ERROR, f"{malformed} lines are no payloads; the others were handed in")


def _succeeds(job: Job) -> bool:
    try:
        record = job.wait()
    except NotFound:  # lost, or replaced: the others are waited for all the same
        return False
    return record is not None and record.state == COMPLETED


def _warn_unoffered(here: Broker, engine: str) -> None:
    budget = here.config.budgets.suspect_ms
    if not any(seen.engine == engine and seen.silent_ms <= budget for seen in here.workers()):
        warn(f"no node offers engine {engine} now; the job waits for one")
