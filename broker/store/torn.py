"""The end of an append-only file that a power cut tore: cut off before a server reads it.

All that one script wrote stands in the file as one transaction. Of one that ends in the middle, Redis (seen in 7.0.15)
drops the torn command alone: it reads none of the transaction, but leaves its beginning in the file and appends to it.
At the next start that beginning is carried out together with what follows: half of a script's writes, long after.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: The program of the server is also the checker: which it is, it tells by its name.
CHECKER = "redis-check-aof"
#: A count or size in the file, with what follows it.
_HEAD_BYTES_MAX = 32

_UP_TO = re.compile(r"\bok_up_to=(\d+)")


def cut_torn(server: str, data_dir: Path) -> int:
    """Cut off what was begun and not ended, if that alone is wrong with the file: how many bytes went.

    A file that is damaged in any other way is left to the server, which refuses it. The server must not run.
    """
    files = sorted((data_dir / "appendonlydir").glob("*.incr.aof"), key=_number)
    if not files or not (size := files[-1].stat().st_size):
        return 0
    command = [CHECKER, str(files[-1])]
    said = subprocess.run(
        command, executable=server, capture_output=True, text=True, errors="replace", check=False
    )
    found = _UP_TO.search(said.stdout) if said.returncode else None
    if found is None:
        return 0
    whole = int(found[1])
    with files[-1].open("r+b") as file:
        file.seek(whole)
        if not is_torn(file.read()):
            return 0
        file.truncate(whole)
        os.fsync(file.fileno())
    return size - whole


def is_torn(tail: bytes) -> bool:
    """Whether these are commands as the file has them, the last one perhaps without its end."""
    at = 0
    try:
        while at < len(tail):
            if tail[at : at + 1] == b"#":
                at = _line_end(tail, at)
                continue
            count, at = _head(tail, at, b"*")
            for _ in range(count):
                size, at = _head(tail, at, b"$")
                at = _line_end(tail, at + size, 2)
    except _Ended:
        return True
    except ValueError:
        return False
    return True


class _Ended(Exception):
    """The bytes ended before what they began."""


def _head(tail: bytes, at: int, mark: bytes) -> tuple[int, int]:
    """The number of a line that begins with `mark`, and where the next one begins."""
    if tail[at : at + 1] not in (mark, b""):
        raise ValueError
    end = _line_end(tail, at)
    head = tail[at : end - 2]
    if not head[1:].isdigit():
        raise ValueError
    return int(head[1:]), end


def _line_end(tail: bytes, at: int, within: int = _HEAD_BYTES_MAX) -> int:
    found = tail.find(b"\r\n", at, at + within)
    if found >= 0:
        return found + 2
    if at + within > len(tail):
        raise _Ended
    raise ValueError


def _number(path: Path) -> int:
    """Of `appendonly.aof.12.incr.aof`: 12."""
    digits = re.search(r"\.(\d+)\.incr\.aof\Z", path.name)
    return int(digits[1]) if digits else -1
