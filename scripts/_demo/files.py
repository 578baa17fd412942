"""What the demo works on: the regular files of a folder, and what is true of each by an account of our own."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: Folders that hold no work of anybody's.
LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"}
)
CHUNK_BYTES = 1 << 20
_WORD = re.compile(rb"\S+")


@dataclass(frozen=True)
class Facts:
    """What is true of a file's bytes."""

    sha256: str
    lines: int
    words: int
    bytes: int


@dataclass
class Found:
    """The files to work on, by name, and how many were passed over, by reason."""

    root: Path
    files: list[Path] = field(default_factory=list)
    passed_over: dict[str, int] = field(default_factory=dict)

    def name(self, path: Path) -> str:
        """The name as people know it: below the folder."""
        return str(path.relative_to(self.root))

    def pass_over(self, reason: str) -> None:
        """Count what is not worked on."""
        self.passed_over[reason] = self.passed_over.get(reason, 0) + 1


def find_files(root: Path, files_max: int, *, tracked: bool = False) -> Found:
    """The regular, readable files below `root`; `tracked`: those that git knows, where it can be asked.

    Links are not followed. Looks no further than one file beyond `files_max`.
    """
    found = Found(root)
    for path in (tracked and _tracked(root)) or _walk(root, found):
        try:
            mode = path.lstat().st_mode
        except OSError:
            continue  # git knows it still, or it vanished just now
        if stat.S_ISLNK(mode):
            found.pass_over("symbolic links")
        elif not stat.S_ISREG(mode):
            found.pass_over("neither files nor folders")
        elif not os.access(path, os.R_OK):
            found.pass_over("unreadable")
        elif len(found.files) == files_max:
            found.passed_over[f"beyond the first {files_max:,} files"] = 0
            break
        else:
            found.files.append(path)
    return found


def _tracked(root: Path) -> list[Path]:
    asked = ["git", "-C", str(root), "ls-files", "-z"]
    try:
        told = subprocess.run(asked, capture_output=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return []  # a copy without git
    return [root / os.fsdecode(name) for name in sorted(told.split(b"\0")) if name]


def _walk(root: Path, found: Found) -> Iterator[Path]:
    for folder, folders, names in os.walk(root, onerror=lambda _: found.pass_over("unreadable")):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118
        folders[:] = sorted(set(folders) - LEFT_OUT - set(links))
        for name in sorted([*names, *links]):
            yield Path(folder, name)


def facts_of(path: Path) -> Facts:
    """Read it once, a chunk at a time: hashlib's SHA-256, and counts by another way than the engine's."""
    digest = hashlib.sha256()
    lines = words = size = 0
    is_open = False  # whether the chunk before ended within a word
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            lines += chunk.count(b"\n")
            words += sum(1 for _ in _WORD.finditer(chunk)) - (
                is_open and _WORD.match(chunk) is not None
            )
            size += len(chunk)
            is_open = _WORD.match(chunk, len(chunk) - 1) is not None
    return Facts(digest.hexdigest(), lines, words, size)
