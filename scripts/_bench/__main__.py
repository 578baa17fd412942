"""The benchmark: figures as ratios of what was measured in the same turn, so that another machine can be compared.

It reports and never fails: a goal is a goal. Its Redis is a private one, in memory, without append-only file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import books
import faces
import jobs
import latency
import longest
import merge
import start
from tools import SEED, Row

from broker import BrokerError
from broker.cli.table import Column, render
from broker.store.server import PrivateRedis, find_server


class Turns(NamedTuple):
    """How often each part is measured."""

    merge: int
    books: int
    start: int
    jobs: int
    latency: int
    faces: int
    longest: int


TURNS, TURNS_QUICK = Turns(40, 10, 20, 8, 10, 10, 5), Turns(2, 2, 2, 1, 1, 1, 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 0 whatever is found."""
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Measure, in turns, and print medians with quartiles beside the goals. Reports, never fails.",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few turns: does it run? not: how fast is it?"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="how to print it"
    )
    asked = parser.parse_args(argv)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # end in order, and leave nothing behind
    found = []
    try:
        for rows in measure(quick=asked.quick):
            found += rows
            if sys.stderr.isatty():
                told = (f"  {row.name}  {short(row.quartiles[1])}" for row in rows if row.quartiles)
                print("\n".join(told), file=sys.stderr)
    except BrokerError as wrong:
        print(f"bench: {wrong}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if asked.output == "json":
        print(json.dumps([row.to_json() for row in found], indent=2))
    else:
        print("\n".join(table(found)))
    return 0


def measure(*, quick: bool = False) -> Iterator[list[Row]]:
    """All figures, part by part."""
    for name in list(os.environ):  # what a user set must not be measured
        if name.startswith(("BROKER_", "REDIS_URL")):
            del os.environ[name]
    turns = TURNS_QUICK if quick else TURNS
    options = {"appendonly": "no", "save": ""}
    with (
        tempfile.TemporaryDirectory(prefix="fleet-broker-bench-") as folder,
        PrivateRedis(Path(folder), options=options) as redis,
    ):
        socket_path = unquote(redis.url.removeprefix("unix://"))
        yield from merge.rows(redis.url, socket_path, turns=turns.merge)
        yield from books.rows(redis.url, turns=turns.books, quick=quick)
        yield start.rows(redis.url, turns=turns.start)
        yield jobs.rows(redis.url, rounds=turns.jobs)
        yield latency.rows(redis.url, socket_path, turns=turns.latency, quick=quick)
        yield from faces.rows(redis.url, turns=turns.faces, quick=quick)
        # Last: it resets the server's own counts.
        yield longest.rows(redis.url, turns=turns.longest, quick=quick)


def table(rows: Sequence[Row]) -> list[str]:
    """For people: the figures with goals first."""
    columns = [Column("measured"), Column("median", right=True), Column("q1 - q3", right=True)]
    columns += [Column("unit"), Column("goal"), Column("n", right=True), Column("")]
    lines = []
    for row in sorted(rows, key=lambda row: not row.goal):
        q1, median, q3 = map(short, row.quartiles) if row.quartiles else ("", "-", "")
        spread = f"{q1} - {q3}" if len(row.values) > 1 else ""
        met = {True: "met", False: "missed", None: ""}[row.met]
        lines.append([row.what, median, spread, row.unit, row.goal, str(len(row.values)), met])
    head = f"Redis {find_server().version}, Python {platform.python_version()}, {os.cpu_count()} cores, seed {SEED}"
    return [head, "", *render(columns, lines)]


def short(number: float) -> str:
    """Three digits are all that such a measurement has."""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(main())
