"""scripts/chaos: the long form of every row, or of those named, one after another; the counts of each."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.chaos import rows
from tests.chaos.run import Run
from tests.chaos.stack import BEAT_MS


def main():
    table = rows.ROWS
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("row", nargs="*", metavar="ROW", help=f"{', '.join(table)}; default: all")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument(
        "--count", type=int, help="how often the damage is done; default: the long form's"
    )
    parser.add_argument("--short", action="store_true", help="the short form, as the tests run it")
    parser.add_argument(
        "--beat-ms",
        type=int,
        default=BEAT_MS,
        help="all budgets are scaled with it (1000: the real ones)",
    )
    parser.add_argument("-o", dest="output", choices=("table", "jsonl"), default="table")
    given = parser.parse_args()
    if unknown := [name for name in given.row if name not in table]:
        parser.error(f"no row {unknown[0]!r}; there are {', '.join(table)}")
    failed = False
    for name in given.row or table:
        failed |= not one(table[name], given)
    return 1 if failed else 0


def one(row, given):
    """Run a row and print what it found; whether all held."""
    seed = random.randrange(10**6) if given.seed is None else given.seed
    count = given.count or (row.short if given.short else row.long)
    if given.output == "table":
        print(f"{row.name}: {count} times, seed {seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        try:
            told, why = row.act(Run(Path(folder), count, seed, given.beat_ms)) or {}, ""
        except Exception as wrong:  # noqa: BLE001 - told, and the next row is run
            told, why = {}, f"{type(wrong).__name__}: {wrong}"
            traceback.print_exc(file=sys.stderr)
    found = {
        "row": row.name,
        "count": count,
        "seed": seed,
        "seconds": round(time.monotonic() - begun, 1),
    } | told
    if why:
        found["failed"] = why[:2_000]
    if given.output == "jsonl":
        print(json.dumps(found), flush=True)
    else:
        print(
            "".join(
                f"  {name:12} {value}\n"
                for name, value in found.items()
                if name not in ("row", "count", "seed")
            ),
            flush=True,
        )
    return not why


if __name__ == "__main__":
    sys.exit(main())
