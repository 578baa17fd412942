"""Files that are replaced whole: after a failed write or a crash, the old content or the new one, and nothing else.

It knows nothing of what the files hold. There is one writer at a time: callers hold the lock of the folder.
Every system call goes through `os` here, so that a test can let any one of them fail.
"""

# ruff: noqa: PTH102, PTH105, PTH108 - pathlib would hide the system calls

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.errors import Unwritable

#: What a file is called until it is whole.
TEMPORARY = ".tmp"


def replace(path: Path, data: bytes) -> None:
    """Give the file this content, durably; mode 0600. Raises Unwritable: then the old content stands."""
    with disk_errors(path):
        old = read(path)
        _put(path, data)
        _sync_entry(path, old)


def remove(path: Path) -> None:
    """Unlink the file, durably; none there is as good. Raises Unwritable: then the file stands."""
    with disk_errors(path):
        old = read(path)
        with suppress(FileNotFoundError):
            os.unlink(path)
        _sync_entry(path, old)


def read(path: Path, bytes_max: int | None = None) -> bytes | None:
    """The content, None where no file is. Raises OSError for what is no regular file, or larger."""
    try:
        # No link is followed, and no pipe can make us wait.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("no regular file")
        if bytes_max is not None and found.st_size > bytes_max:
            raise OSError(f"more than {bytes_max} bytes")
        return opened.read()


def make_folder(path: Path) -> None:
    """Make the folder, and those above it, where they are missing, durably; mode 0700. Raises Unwritable."""
    with disk_errors(path):
        is_there = path.is_dir()
    if is_there:
        return
    make_folder(path.parent)
    with disk_errors(path):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not path.is_dir():  # else another process was quicker
                raise
        _sync(path.parent)


def sweep(folder: Path) -> None:
    """Unlink what killed writers left unfinished."""
    for left in folder.glob(f"*{TEMPORARY}"):
        with disk_errors(left):
            os.unlink(left)


def sync(folder: Path) -> None:
    """Make durable what the folder says of its files, whoever renamed them. Raises Unwritable."""
    with disk_errors(folder):
        _sync(folder)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder against every other process and thread. Raises Unwritable where its lock cannot be opened."""
    path = folder / "lock"
    with disk_errors(path):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with disk_errors(path):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        # By name: a child forked meanwhile holds the same open file, and closing ours would not be enough.
        fcntl.flock(file, fcntl.LOCK_UN)
        with suppress(OSError):  # nothing was written to it
            os.close(file)


@contextmanager
def disk_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Turn what the system says of a file into one clear error of ours."""
    try:
        yield
    except OSError as failed:
        raise Unwritable(f"cannot {verb} {path}: {failed.strerror or failed}") from failed


def _put(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
            # The system's own stamps are as coarse as its ticks: two writes within one would look alike.
            now = time.time_ns()
            os.utime(file, ns=(now, now))
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _sync_entry(path: Path, old: bytes | None) -> None:
    """Make what the folder says of the file durable; where that fails, put the old content back."""
    try:
        _sync(path.parent)
    except BaseException:
        with suppress(OSError):
            if old is None:
                os.unlink(path)
            else:
                _put(path, old)
        raise


def _sync(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
