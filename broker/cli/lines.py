"""What a file or a pipe holds: whole, or its lines in batches that end where the input pauses.

So bulk is fast, and a slow hand is answered at once. Memory is bounded by the size of a batch and
of a line, whatever the input holds.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from broker.errors import Invalid

READ_BYTES = 64 * 1024
#: A batch of long lines ends early.
BATCH_BYTES_MAX = 4 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


@contextmanager
def opened(name: str) -> Iterator[int]:
    """The file descriptor of a file, or of stdin for `-`. Raises Invalid where there is none."""
    if name == "-":
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(name, os.O_RDONLY)
    except OSError as wrong:
        raise Invalid(f"{name}: {wrong.strerror}") from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise Invalid(f"{name}: {os.strerror(errno.EISDIR)}")
        yield descriptor
    finally:
        os.close(descriptor)


def batches(
    descriptor: int, lines_max: int, line_bytes_max: int
) -> Iterator[list[tuple[int, bytes]]]:
    """(number from 1, line) pairs without line ends. A line that is too long comes cut after one byte too many.

    A batch ends at about `lines_max` lines, and whenever nothing more is there to be read yet.
    """
    number, rest, batch, size = 0, b"", list[tuple[int, bytes]](), 0
    while data := _read(descriptor):
        *whole, last = data.split(b"\n")
        for piece in whole:
            number += 1
            line = (rest + piece)[: line_bytes_max + 1]
            batch.append((number, line.removeprefix(_BOM) if number == 1 else line))
            rest, size = b"", size + len(line)
            if len(batch) >= lines_max or size >= BATCH_BYTES_MAX:
                yield batch
                batch, size = [], 0
        rest = (rest + last)[: line_bytes_max + 1]
        if batch and _pauses(descriptor):
            yield batch
            batch, size = [], 0
    if rest:
        batch.append((number + 1, rest.removeprefix(_BOM) if number == 0 else rest))
    if batch:
        yield batch


def read_whole(name: str, bytes_max: int) -> bytes:
    """All that a file or, for `-`, stdin holds, or its first `bytes_max` bytes. Raises Invalid."""
    held = b""
    with opened(name) as source:
        while len(held) < bytes_max and (data := _read(source)):
            held += data
    return held[:bytes_max]


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, READ_BYTES)
    except OSError as wrong:
        raise Invalid(f"the input cannot be read: {wrong.strerror}") from None


def _pauses(descriptor: int) -> bool:
    """Whether a read would wait. A regular file never does."""
    readable, _, _ = select.select([descriptor], [], [], 0)
    return not readable
