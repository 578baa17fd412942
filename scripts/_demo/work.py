"""The demo's work: a job for each file on each engine, followed as it happens, and judged result by result."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from files import Facts, Found, facts_of
from fleet import Failed, Fleet

from broker import Broker, BrokerError, Key, Record
from broker.cli.table import Column, render
from broker.text import safe

ORIGIN = "demo"
CHECKSUM, STATISTICS = ENGINES = ("checksum", "statistics")
#: No job starts, ends or tells of progress for so long: something is stuck.
STILL_SECONDS_MAX = 120.0
TOLD_SECONDS = 2.0
#: Of a result. A file that somebody wrote to meanwhile proves nothing.
RIGHT, WRONG, CHANGED = "ok", "WRONG", "changed"

Keys = dict[Path, tuple[Key, Key]]


@dataclass(frozen=True)
class Result:
    """What the fleet found out about one file."""

    name: str
    nodes: str
    sha256: str
    counts: Mapping[str, int]
    verdict: str
    error: str = ""


def submit(broker: Broker, found: Found, links: Path) -> Keys:
    """One job for each file on each engine."""
    payloads = [
        {"path": _sendable(path, links / str(number))} for number, path in enumerate(found.files)
    ]
    jobs = [
        [job.key for job in broker.submit_many(engine, payloads, origin=ORIGIN)]
        for engine in ENGINES
    ]
    return dict(zip(found.files, zip(*jobs, strict=True), strict=True))


def _sendable(path: Path, link: Path) -> str:
    """The path as JSON can carry it; for a name that is not UTF-8, of a link to it in our own folder."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(path)
        return str(link)
    return str(path)


# --- following -------------------------------------------------------------------------------------


def follow(fleet: Fleet, keys: Keys) -> Mapping[Key, Record]:
    """Show how far it is until every job has ended; the records then."""
    wanted = {key for pair in keys.values() for key in pair}
    still_since = time.monotonic()
    with fleet.broker.watch([ORIGIN]) as watcher, _shown(len(keys), fleet.nodes) as show:
        watcher.snapshot()
        while True:
            show(watcher.records)
            if sum(key not in watcher.live for key in wanted) == len(wanted):
                return dict(watcher.records)
            fleet.check()
            if watcher.changes(wait_ms=250):
                still_since = time.monotonic()
            elif time.monotonic() - still_since > STILL_SECONDS_MAX and not _runs(watcher.live):
                raise Failed(f"nothing has happened for {STILL_SECONDS_MAX:.0f} s")


def _runs(live: Mapping[Key, Record]) -> bool:
    return any(record.state == "running" for record in live.values())


@contextmanager
def _shown(files: int, nodes: list[str]) -> Iterator[Any]:
    """A function that shows the records: bars on a terminal, a line now and then elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        with _bars(files, nodes) as show:
            yield show
        return
    told_at = time.monotonic()

    def tell(records: Mapping[Key, Record]) -> None:
        nonlocal told_at
        ended, running = _counts(records)
        if time.monotonic() - told_at < TOLD_SECONDS and sum(ended.values()) < 2 * files:
            return
        told_at = time.monotonic()
        parts = [f"{engine} {ended[engine]}/{files}" for engine in ENGINES]
        parts += [f"{node} runs {running[node]}" for node in nodes]
        print(", ".join(parts), flush=True)

    yield tell


@contextmanager
def _bars(files: int, nodes: list[str]) -> Iterator[Any]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, TextColumn("{task.fields[running]}"), transient=True) as progress:
        bars = {engine: progress.add_task(engine, total=files, running="") for engine in ENGINES}

        def show(records: Mapping[Key, Record]) -> None:
            ended, running = _counts(records)
            busy = "  ".join(f"{node} runs {running[node]}" for node in nodes)
            for engine, bar in bars.items():
                progress.update(bar, completed=ended[engine], running=busy if bar == 0 else "")

        yield show


def _counts(records: Mapping[Key, Record]) -> tuple[Counter[str], Counter[str]]:
    """How many have ended, by engine; how many run, by node."""
    ended: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for key, record in records.items():
        if record.ended:
            ended[key.engine] += 1
        elif record.state == "running":
            running[record.node] += 1
    return ended, running


# --- judging ---------------------------------------------------------------------------------------


def judge(
    broker: Broker, found: Found, keys: Keys, records: Mapping[Key, Record]
) -> Iterator[Result]:
    """Each file's results beside our own account of it."""
    for path, pair in keys.items():
        nodes = " ".join(sorted({records[key].node for key in pair}))
        try:
            checksum, statistics = map(broker.result, pair)
        except BrokerError as wrong:
            verdict = WRONG if _is_as_before(path, records[pair[0]]) else CHANGED
            yield Result(found.name(path), nodes, "", {}, verdict, str(wrong))
            continue
        # sha256sum marks a name that it had to escape by a backslash before the sum.
        sha256 = checksum["stdout"].removeprefix("\\")[:64]
        told = Facts(sha256, **statistics)
        verdict = RIGHT if told == _facts(path) else WRONG
        if verdict == WRONG and not _is_as_before(path, records[pair[0]]):
            verdict = CHANGED
        yield Result(found.name(path), nodes, sha256, statistics, verdict)


def _facts(path: Path) -> Facts | None:
    try:
        return facts_of(path)
    except OSError:
        return None


def _is_as_before(path: Path, record: Record) -> bool:
    """Whether nobody wrote to the file since its job was submitted."""
    try:
        status = path.stat()
    except OSError:
        return False
    return max(status.st_mtime, status.st_ctime) * 1000 < record.created_at


# --- the table -------------------------------------------------------------------------------------


def table(results: list[Result], width: int | None) -> list[str]:
    """The results, a line a file; where nobody looks (`width` None) nothing is cut."""
    columns = [
        Column("SHA-256"),
        *(Column(name, rank=1, right=True) for name in ("lines", "words", "bytes")),
        Column("nodes", rank=2),
        Column("file", least=8, keep_end=True),
        Column("verdict"),
    ]
    rows = [
        [
            result.sha256 or "-",
            *(
                f"{result.counts[name]:,}" if result.counts else "-"
                for name in ("lines", "words", "bytes")
            ),
            result.nodes,
            safe(result.name),
            result.verdict,
        ]
        for result in results
    ]
    lines = render(columns, rows, width)
    return lines + [
        f"{safe(result.name)}: {safe(result.error)}" for result in results if result.error
    ]
