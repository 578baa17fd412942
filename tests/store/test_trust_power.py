"""The power goes: what no fsync confirmed may be gone. What was told stands all the same, and what stands is told."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest

from broker.errors import Unwritable
from broker.store.announce import Announcer, announcements
from broker.store.durable import TEMPORARY
from broker.store.store import Store
from broker.store.trust import TrustStore
from tests.store.trusting import (
    CHANGES,
    Disk,
    at_its_beginning,
    disk_of,
    opened,
    state,
    steps_of,
)


def _fail() -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class Volatile(Disk):
    """A disk of which a power cut takes back each rename and unlink that no fsync of the folder followed.

    At the steps chosen it fails; to fail at all that come is, for the files, what it is to be killed.
    """

    def __init__(self, at: Callable[[int, str], bool] = lambda *_: False) -> None:
        super().__init__(_fail, at=at)
        #: Of each folder what it says in memory alone: the path, and what stood there.
        self.unsure: dict[Path, list[tuple[Path, bytes | None]]] = defaultdict(list)
        self._paths: dict[int, Path] = {}

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name not in ("open", "replace", "unlink", "fsync"):
            return call

        def step(*args: Any, **more: Any) -> Any:
            changed = {"replace": 1, "unlink": 0}.get(name)
            if changed is not None:
                path = Path(args[changed])
                old = path.read_bytes() if path.exists() else None
            made = call(*args, **more)
            if name == "open":
                self._paths[made] = Path(args[0])
            elif name == "fsync":
                self.unsure.pop(self._paths[args[0]], None)
            elif not path.name.endswith(TEMPORARY):
                self.unsure[path.parent].append((path, old))
            return made

        return step

    def cut(self, kept: Mapping[Path, int]) -> None:
        """The power goes: of what is unsure, so many changes of each folder, the first ones, had reached the disk."""
        for folder, changes in self.unsure.items():
            for path, old in changes[kept[folder] :][::-1]:
                if old is None:
                    path.unlink()
                else:
                    path.write_bytes(old)


@pytest.fixture(params=CHANGES)
def change(request):
    return CHANGES[request.param]


@pytest.fixture
def begun(tmp_path, change):
    """Gives the store before the change, each time in a new folder, and how many steps the change takes."""
    names = map(str, count())
    counted, _ = at_its_beginning(tmp_path / "counted", change)
    steps = len(steps_of(lambda: change.work(counted)))

    def begin() -> TrustStore:
        return at_its_beginning(tmp_path / next(names), change)[0]

    return begin, steps


def outcomes(
    begin: Callable[[], TrustStore], work: Callable[[TrustStore, Volatile], object]
) -> Iterator[tuple[str, TrustStore]]:
    """The store as it is found after work and a power cut, for all that may or may not have reached the disk."""
    tried: set[tuple[int, ...]] = set()
    while True:
        trust, disk = begin(), Volatile()
        with disk_of(disk):
            work(trust, disk)
        counts = product(*(range(len(changes) + 1) for changes in disk.unsure.values()))
        left = next((kept for kept in counts if kept not in tried), None)
        if left is None:
            return
        tried.add(left)
        disk.cut(dict(zip(disk.unsure, left, strict=True)))
        yield trust.folder.name, opened(trust.folder)


def told(store: Store, trust: TrustStore, node: str) -> list[tuple[str, str]]:
    Announcer(store, node, trust).drain()
    return [(told.change, told.node) for told in announcements(store, node)]


def test_after_a_power_cut_at_any_step_a_change_is_whole_and_told_once_or_absent(
    store, change, begun
):
    begin, steps = begun
    trust = begin()
    before = state(trust)
    change.work(trust)
    after = state(trust)
    earlier = [(told.change, told.node) for told in trust.pending()][:-1]
    seen = []
    for step in range(1, steps + 1):
        answers = []

        def die(trust: TrustStore, disk: Volatile, step=step, answers=answers) -> None:
            disk._at = lambda number, _: number >= step
            with suppress(Unwritable):
                answers.append(change.work(trust))

        for node, found in outcomes(begin, die):
            assert state(found) in ([after] if answers else [before, after])
            seen.append(state(found) == after)
            news = [(change.change, "ann")] * seen[-1]
            assert told(store, found, node) == earlier + news
    assert set(seen) == {False, True}


def test_what_a_killed_process_left_and_another_told_stands_after_a_power_cut(store, change, begun):
    begin, steps = begun
    trust = begin()
    change.work(trust)
    after = state(trust)
    whole = [(told.change, told.node) for told in trust.pending()]
    seen = []
    for step in range(1, steps + 1):

        def die_and_be_told(trust: TrustStore, disk: Volatile, step=step) -> None:
            disk._at = lambda number, _: number >= step
            with suppress(Unwritable):
                change.work(trust)
            disk._at = lambda *_: False
            told(store, opened(trust.folder), trust.folder.name)

        for node, found in outcomes(begin, die_and_be_told):
            seen.append(state(found) == after)
            assert told(store, found, node) == (whole if seen[-1] else whole[:-1])
    assert set(seen) == {False, True}


def test_a_change_that_failed_does_not_come_back_untold_when_the_power_goes_later(
    store, change, begun
):
    begin, steps = begun
    trust = begin()
    change.work(trust)
    after = state(trust)
    whole = [(told.change, told.node) for told in trust.pending()]
    for step in range(1, steps):

        def fail_and_tell(trust: TrustStore, disk: Volatile, step=step) -> None:
            disk._at = lambda number, _: number == step
            with pytest.raises(Unwritable):
                change.work(trust)
            told(store, trust, trust.folder.name)

        for node, found in outcomes(begin, fail_and_tell):
            assert told(store, found, node) == (whole if state(found) == after else whole[:-1])
