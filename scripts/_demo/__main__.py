"""The demo: a fleet of two nodes at real work, then the stories that made other job lists lie.

One job for each file of a folder, on each of two engines: `checksum` (the program sha256sum) and `statistics` (a Python
function). Exit code 0 only if every single result is right.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from files import LEFT_OUT, Found, find_files
from fleet import Failed, Fleet
from stories import Told, lies, read_stories, tell
from work import (
    CHANGED,
    ENGINES,
    RIGHT,
    TOLD_SECONDS,
    WRONG,
    Result,
    follow,
    judge,
    submit,
    table,
)

from broker import BrokerError
from broker.cli.output import terminal_width
from broker.text import safe

ROOT = Path(__file__).resolve().parents[2]
NODES = 2
FILES_MAX = 1_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the exit code."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupt)
    try:
        asked = _parse(argv)
        found = _look(asked.folder, asked.files_max)
        return _show(found)
    except (Failed, BrokerError, OSError) as wrong:
        if isinstance(wrong, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            print(f"demo: {safe(wrong)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything is ended", file=sys.stderr)
        return 130


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo",
        description="Show a fleet of two nodes on this machine: one checksum job and one statistics job for each "
        "file of FOLDER, then the stories that make job lists lie. Exit code 0 only if every result is right.",
        epilog=f"Left out: symbolic links, unreadable files, and the folders {' '.join(sorted(LEFT_OUT))}. "
        "Nothing is written into FOLDER, and a broker of your own is not touched.",
    )
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="default: this project's own tracked files"
    )
    parser.add_argument(
        "--files-max",
        type=_positive,
        default=FILES_MAX,
        metavar="N",
        help=f"use the first N files, by name (default {FILES_MAX:,})",
    )
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _look(folder: str | None, files_max: int) -> Found:
    root = ROOT if folder is None else Path(folder)
    if not root.is_dir():
        raise Failed(f"{folder}: {'not a folder' if root.exists() else 'no such folder'}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise Failed(f"{folder}: the folder cannot be read")
    found = find_files(root.resolve(), files_max, tracked=folder is None)
    if not found.files:
        raise Failed(f"{folder or root}: no readable file is in there")
    return found


# --- the show --------------------------------------------------------------------------------------


def _show(found: Found) -> int:
    begun = time.monotonic()
    stories = read_stories()
    print(f"{len(found.files):,} files in {safe(found.root)}{_left_out(found)}", flush=True)
    with Fleet(set(ENGINES), NODES) as fleet:
        print(f"the fleet is up: {', '.join(fleet.nodes)}; {_since(begun)}", flush=True)
        keys = submit(fleet.broker, found, fleet.data / "links")
        records = follow(fleet, keys)
        results = list(_paced(judge(fleet.broker, found, keys, records), len(keys)))
        print("\n".join(table(results, terminal_width())), flush=True)
        print(f"{len(stories)} stories that make job lists lie, through broker report:")
        told = list(tell(fleet.broker, stories))
        print("\n".join(one.line for one in told), flush=True)
        untrue = lies(fleet.broker)
    nodes = sorted({record.node for record in records.values() if record.node})
    return _close(results, told, untrue, nodes, _since(begun))


def _close(
    results: Sequence[Result],
    told: Sequence[Told],
    untrue: Sequence[str],
    nodes: Sequence[str],
    since: str,
) -> int:
    """The closing line, and the exit code."""
    verdicts = Counter(result.verdict for result in results)
    for line in untrue:
        print(f"demo: {safe(line)}", file=sys.stderr)
    failures = [
        (verdicts[WRONG], "files with a wrong result"),
        (sum(bool(one.wrong) for one in told), "stories that went wrong"),
        (len(untrue), "jobs that the list shows wrongly"),
    ]
    if any(count for count, _ in failures):
        said = ", ".join(f"{count:,} {what}" for count, what in failures if count)
        print(f"demo: NOT proven: {said}; {since}", file=sys.stderr)
        return 1
    changed = f" ({verdicts[CHANGED]:,} changed meanwhile)" if verdicts[CHANGED] else ""
    print(
        f"proven: {2 * verdicts[RIGHT]:,} jobs on {' and '.join(nodes)} gave the SHA-256 and the counts that we found "
        f"ourselves{changed}; {len(told)} stories were answered by the rules; every list equals its log; {since}"
    )
    return 0


def _paced(results: Iterable[Result], count: int) -> Iterator[Result]:
    """The results as they come; a line now and then where that takes long."""
    told_at = time.monotonic()
    for number, result in enumerate(results, 1):
        yield result
        if time.monotonic() - told_at > TOLD_SECONDS:
            told_at = time.monotonic()
            print(f"compared with the files themselves: {number:,}/{count:,}", flush=True)


def _left_out(found: Found) -> str:
    parts = [f"{count:,} {what}" if count else what for what, count in found.passed_over.items()]
    return f" (left out: {', '.join(parts)})" if parts else ""


def _since(begun: float) -> str:
    return f"{time.monotonic() - begun:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
