from __future__ import annotations

import errno
import os
import signal

import pytest

from broker.errors import Unwritable
from broker.store import durable
from tests.store.trusting import (
    Disk,
    disk_of,
    failing,
    file_size_max,
    files,
    is_killed,
    steps_of,
)

OLD, NEW = b"what stood before", b"what is to stand" * 1_000


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "peers" / "ann.json"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


#: The step with which the new content, or none, stands.
DECISIVE = {"replace ann.json.tmp", "unlink ann.json"}

WORKS = {
    "replace": (OLD, lambda path: durable.replace(path, NEW), {"ann.json": NEW}),
    "create": (None, lambda path: durable.replace(path, NEW), {"ann.json": NEW}),
    "remove": (OLD, durable.remove, {}),
}


@pytest.fixture(params=WORKS)
def work(request, tmp_path):
    """What stands before, how to change it, what stands then, and the path."""
    old, change, after = WORKS[request.param]
    path = tmp_path / "ann.json"
    before = {} if old is None else {"ann.json": old}

    def reset() -> None:
        path.unlink(missing_ok=True)
        if old is not None:
            path.write_bytes(old)

    reset()
    return path, reset, lambda: change(path), before, after


def test_F1_a_file_is_created_and_replaced_whole_and_nothing_else_is_left(work):
    path, _, change, _, after = work
    change()
    assert files(path.parent) == after


def test_what_is_written_is_for_this_user_alone(tmp_path):
    path = tmp_path / "ann.json"
    path.write_bytes(OLD)
    path.chmod(0o644)
    umask = os.umask(0)
    try:
        durable.replace(path, NEW)
        durable.make_folder(tmp_path / "a" / "b")
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o600
    # Who may write to a folder above can put another one in its place.
    for folder in ("a", "a/b"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_every_folder_that_is_made_reaches_the_disk(tmp_path):
    steps = steps_of(lambda: durable.make_folder(tmp_path / "a" / "b"))
    assert [step for step in steps if step.startswith(("mkdir", "fsync"))] == [
        "mkdir a", f"fsync {tmp_path.name}", "mkdir b", "fsync a"
    ]  # fmt: skip


def test_content_and_folder_reach_the_disk_in_this_order(tmp_path):
    path = tmp_path / "ann.json"
    path.write_bytes(OLD)
    temporary = "ann.json.tmp"
    assert steps_of(lambda: durable.replace(path, NEW)) == [
        "open ann.json",
        f"open {temporary}",
        f"write {temporary}",
        f"utime {temporary}",
        f"fsync {temporary}",
        f"close {temporary}",
        f"replace {temporary}",
        f"open {tmp_path.name}",
        f"fsync {tmp_path.name}",
        f"close {tmp_path.name}",
    ]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failure_at_any_step_leaves_the_old_content_and_nothing_else(work, code):
    path, reset, change, before, after = work
    count = len(steps_of(change))
    assert count >= 5
    for step in range(1, count + 1):
        reset()
        with (
            failing(lambda at, _, step=step: at == step, code) as disk,
            pytest.raises(Unwritable, match=f"{path}: {os.strerror(code)}"),
        ):
            change()
        assert files(path.parent) == before, disk.steps
        change()
        assert files(path.parent) == after


def test_F2_whoever_tries_again_after_two_failures_gets_it_done_at_the_third(work):
    path, _, change, before, after = work
    failures = iter([True, True])
    with failing(lambda _, step: step in DECISIVE and next(failures, False)):
        for _ in range(2):
            with pytest.raises(Unwritable):
                change()
            assert files(path.parent) == before
        change()
    assert files(path.parent) == after


def test_F3_what_fails_for_good_is_tried_once(work):
    _, _, change, _, _ = work
    with failing(lambda _, step: step in DECISIVE) as disk, pytest.raises(Unwritable):
        change()
    assert len(DECISIVE & set(disk.steps)) == 1
    assert len([step for step in disk.steps if step in DECISIVE]) == 1


def test_a_disk_that_stays_broken_leaves_the_old_or_the_new_content_whole(work):
    path, reset, change, before, after = work
    for step in range(1, len(steps_of(change)) + 1):
        reset()
        with failing(lambda at, _, step=step: at >= step), pytest.raises(Unwritable):
            change()
        durable.sweep(path.parent)
        assert files(path.parent) in (before, after)


def test_killed_at_any_step_the_old_or_the_new_content_is_whole(work):
    path, reset, change, before, after = work
    step = 1
    found = []
    while is_killed(change, step):
        durable.sweep(path.parent)
        found.append(files(path.parent))
        assert found[-1] in (before, after)
        reset()
        step += 1
    assert files(path.parent) == after
    # Once the new content stands, no later step takes it away.
    assert before in found
    assert after in found
    assert found.index(after) == len(found) - found.count(after)


def test_two_writes_of_one_moment_bear_different_stamps(tmp_path, monkeypatch):
    monkeypatch.setattr(durable.os, "fsync", lambda _: None)  # as quick as can be
    stamps = set()
    for _ in range(50):
        durable.replace(tmp_path / "ann.json", NEW)
        stamps.add((tmp_path / "ann.json").stat().st_mtime_ns)
    assert len(stamps) == 50


def test_a_write_that_takes_only_half_goes_on(tmp_path, monkeypatch):
    path = tmp_path / "ann.json"
    monkeypatch.setattr(
        durable.os, "write", lambda file, data, write=os.write: write(file, bytes(data)[:1_000])
    )
    durable.replace(path, NEW)
    assert path.read_bytes() == NEW


def test_what_the_kernel_cuts_off_in_the_middle_is_an_error_and_nothing_is_lost(path):
    with file_size_max(len(NEW) // 2), pytest.raises(Unwritable, match="File too large"):
        durable.replace(path, NEW)
    assert files(path.parent) == {"ann.json": OLD}


def test_what_a_killed_writer_left_is_swept(path):
    (path.parent / "bob.json.0a1b2c3d.tmp").write_bytes(b"half")
    durable.sweep(path.parent)
    assert files(path.parent) == {"ann.json": OLD}


def test_what_cannot_be_swept_is_named(path):
    odd = path.parent / "odd.tmp"
    odd.mkdir()
    with pytest.raises(Unwritable, match=r"cannot write .*/odd\.tmp: Is a directory"):
        durable.sweep(path.parent)


def test_removing_what_is_not_there_is_done(tmp_path):
    durable.remove(tmp_path / "ann.json")
    assert durable.read(tmp_path / "ann.json") is None


def test_only_a_regular_file_of_its_size_is_read(path):
    assert durable.read(path, len(OLD)) == OLD
    with pytest.raises(OSError, match="more than 3 bytes"):
        durable.read(path, 3)
    link, pipe = path.with_name("link"), path.with_name("pipe")
    link.symlink_to(path)
    os.mkfifo(pipe)
    for other in (link, pipe, path.parent):
        with pytest.raises(OSError, match=r"symbolic links|regular file|directory"):
            durable.read(other)


def test_a_pipe_in_the_place_of_a_file_is_an_error_and_nobody_waits(path):
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Unwritable, match="no regular file"):
        durable.replace(path, NEW)


def test_the_lock_is_held_against_other_processes_and_given_back(tmp_path):
    with durable.locked(tmp_path):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            with durable.locked(tmp_path):
                (tmp_path / "entered").touch()
            os._exit(0)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        assert not (tmp_path / "entered").exists()
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "entered").exists()


def test_the_disk_of_the_tests_is_the_real_one_where_it_does_not_strike(path):
    with disk_of(Disk(lambda: None, at=lambda *_: False)) as disk:
        durable.replace(path, NEW)
    assert path.read_bytes() == NEW
    assert disk.steps
