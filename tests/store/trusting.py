"""What the tests of the trust store stand on: nodes that all know, a disk that fails or kills at a step."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from broker.store import durable
from broker.store.outbox import Announcement
from broker.store.trust import TrustStore
from tests.nodes import NOW, Node

#: One node of a name for all tests: nobody changes it.
member = cache(Node)

ME, ANN, BOB, CLEO = map(member, ("me", "ann", "bob", "cleo"))


def opened(folder: Path, **options: Any) -> TrustStore:
    """The store of `ME` in this folder, as a process that starts now finds it."""
    return TrustStore(folder, ME.anchor, **({"clock": lambda: NOW} | options))


class Heard(list[Announcement]):
    """Listens to a store."""

    __call__ = list.append

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(told.change, told.node) for told in self]


def state(store: TrustStore) -> dict[str, Any]:
    """All that the store holds, to compare."""
    return {"pins": dict(store.pins), "removals": dict(store.removals)}


def same_on_disk(store: TrustStore) -> bool:
    """Whether who opens the folder now finds what this store holds in memory, and waits with the same."""
    fresh = opened(store.folder)
    return (state(fresh), fresh.pending()) == (state(store), store.pending())


class Change(NamedTuple):
    """What stands before, what is done to `ann`, and how it is announced."""

    name: str
    before: Callable[[TrustStore], object]
    work: Callable[[TrustStore], bool]
    change: str


_ALL = [
    Change("pin", lambda _: None, lambda trust: trust.pin(ANN.card(ME)), "pinned"),
    Change(
        "pin a higher epoch",
        lambda trust: trust.pin(ANN.card(ME)),
        lambda trust: trust.pin(ANN.at(2).card()),
        "pinned",
    ),
    Change(
        "pin after a removal",
        lambda trust: (trust.pin(ANN.card()), trust.remove("ann", ME.against(ANN))),
        lambda trust: trust.pin(ANN.at(2).card()),
        "pinned",
    ),
    Change(
        "endorse",
        lambda trust: trust.pin(ANN.card()),
        lambda trust: trust.endorse("ann", [ME.of(ANN)]),
        "endorsed",
    ),
    Change(
        "rename",
        lambda trust: trust.pin(ANN.card()),
        lambda trust: trust.rename("ann", "Ann"),
        "renamed",
    ),
    Change(
        "remove", lambda trust: trust.pin(ANN.card()), lambda trust: trust.remove("ann"), "removed"
    ),
    Change(
        "remove with a proof",
        lambda trust: trust.pin(ANN.card()),
        lambda trust: trust.remove("ann", ME.against(ANN)),
        "removed",
    ),
]
#: Every way to change what is kept of a peer.
CHANGES = {change.name: change for change in _ALL}


def at_its_beginning(folder: Path, change: Change) -> tuple[TrustStore, Heard]:
    """A store in a new folder, before the change, and who listens to it from now on."""
    template = folder.parent / f"before {change.name}"
    if not template.exists():
        trust = opened(template)
        trust.pin(BOB.card())
        change.before(trust)
    shutil.copytree(template, folder)
    heard = Heard()
    return opened(folder, on_change=heard), heard


def files(folder: Path) -> dict[str, bytes]:
    """Everything below the folder."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def unfinished(folder: Path) -> list[str]:
    return [name for name in files(folder) if name.endswith(durable.TEMPORARY)]


class Disk:
    """The system calls of `broker.store.durable`, each one a step; at the chosen steps `strike` is called instead."""

    STEPS = ("open", "write", "utime", "fsync", "close", "replace", "unlink", "mkdir")

    def __init__(self, strike: Callable[[], None], *, at: Callable[[int, str], bool]) -> None:
        self.steps: list[str] = []
        self._strike = strike
        self._at = at
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        if name not in self.STEPS:
            return call

        def step(*args: Any, **more: Any) -> Any:
            what = self._names.get(args[0]) or re.sub(r"\.[0-9a-f]{8}\b", "", Path(args[0]).name)
            self.steps.append(f"{name} {what}")
            if self._at(len(self.steps), self.steps[-1]):
                if name == "write":  # half of it arrives
                    os.write(args[0], bytes(args[1])[: len(args[1]) // 2])
                if name == "close":
                    os.close(args[0])
                self._strike()
            made = call(*args, **more)
            if name == "open":
                self._names[made] = what
            return made

        return step


@contextmanager
def disk_of(disk: Disk) -> Iterator[Disk]:
    real, durable.os = durable.os, disk  # type: ignore[attr-defined, assignment]
    try:
        yield disk
    finally:
        durable.os = real  # type: ignore[attr-defined]


def failing(at: Callable[[int, str], bool], code: int = errno.EIO) -> Any:
    """A disk on which the steps chosen fail."""

    def strike() -> None:
        raise OSError(code, os.strerror(code))

    return disk_of(Disk(strike, at=at))


@contextmanager
def file_size_max(size: int) -> Iterator[None]:
    """Let the kernel itself refuse what would make a file larger."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def steps_of(work: Callable[[], object]) -> list[str]:
    """The steps that the work takes."""
    with disk_of(Disk(lambda: None, at=lambda *_: False)) as disk:
        work()
    return disk.steps


def is_killed(work: Callable[[], object], at: int) -> bool:
    """Do the work in a process that kills itself (-9) just before the step of that number; False: it was done first."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with disk_of(
                Disk(lambda: os.kill(os.getpid(), signal.SIGKILL), at=lambda count, _: count == at)
            ):
                work()
            code = 0
        except BaseException:  # noqa: BLE001 - the parent sees the code
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) != 0
