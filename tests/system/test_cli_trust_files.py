"""`broker trust` and files: what it is given, where it keeps things, and a disk that takes nothing."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import termios
from pathlib import Path
from typing import IO

import pytest

from tests.system.command import Command, until
from tests.system.peers import Peer

#: Linux: what root must give up to be refused like any other user.
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def as_anybody() -> None:
    """In the child: file modes count from here on, for root too."""
    prctl = ctypes.CDLL(None).prctl
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def on_a_full_disk() -> None:
    """In the child: no file can hold a byte."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.fixture
def alpha(command: Command, tmp_path: Path) -> Peer:
    return Peer(command, tmp_path, "alpha").init()


@pytest.fixture
def beta(command: Command, tmp_path: Path) -> Peer:
    return Peer(command, tmp_path, "beta").init()


class TestInput:
    @pytest.mark.parametrize(
        "words", [["pin"], ["admit"], ["remove", "--proof"]], ids=lambda words: words[0]
    )
    def test_that_cannot_be_read_is_one_clear_line(self, alpha, tmp_path, words):
        before = alpha.bytes()
        for file, says in (
            (tmp_path / "nothing", "No such file"),
            (tmp_path, "Is a directory"),
            (alpha.file(""), "is empty"),
            (alpha.file(" \n\n"), "is empty"),
            (tmp_path / ("x" * 300), "File name too long"),
        ):
            ran = alpha(*words, file)
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert f"{file}" in ran.err
            assert says in ran.err
        assert alpha.bytes() == before

    @pytest.mark.parametrize(
        "words", [["pin"], ["admit"], ["remove", "--proof"]], ids=lambda words: words[0]
    )
    def test_of_a_mebibyte_is_refused(self, alpha, words):
        before = alpha.bytes()
        for raw in (b"x" * 2**20, b"\0" * 2**20, b"{" + b" " * 2**20 + b"}"):
            ran = alpha(*words, alpha.file(raw))
            assert (ran.code, ran.out, ran.err.count("\n")) == (8, "", 1)
            assert len(ran.err) < 300
        assert alpha.bytes() == before

    def test_without_an_end_is_not_waited_for(self, alpha):
        ran = alpha.process("pin", "/dev/zero")
        assert (ran.code, ran.err.count("\n")) == (8, 1)

    def test_that_only_others_can_read(self, alpha, beta):
        card = alpha.file(beta.card())
        card.chmod(0)
        ran = alpha.process("pin", card, preexec_fn=as_anybody)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "Permission denied" in ran.err

    def test_on_an_empty_or_closed_stdin(self, alpha):
        for options in ({}, {"preexec_fn": lambda: os.close(0)}):
            ran = alpha.process("admit", "-", **options)
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)

    def test_that_comes_slowly_is_read_to_its_end(self, alpha, beta):
        raw = json.dumps(beta.card()).encode()
        with alpha.start("trust", "pin", "-") as pinning:
            pinning.stdin.write(raw[:100])
            pinning.stdin.flush()
            out, err = pinning.communicate(raw[100:], timeout=60)
        assert (pinning.returncode, err) == (0, b"")
        assert out.startswith(b"pinned beta")

    def test_ctrl_c_while_it_is_waited_for_is_quiet_and_changes_nothing(self, alpha, beta):
        before = alpha.bytes()
        with alpha.start("trust", "pin", "-") as pinning:
            pinning.stdin.write(json.dumps(beta.card()).encode())
            pinning.stdin.flush()
            until(lambda: not unread(pinning.stdin))
            pinning.send_signal(signal.SIGINT)
            out, err = pinning.communicate(timeout=60)
        assert (pinning.returncode, out, err) == (130, b"", b"")
        assert alpha.bytes() == before


def unread(pipe: IO[bytes]) -> int:
    """How many bytes of a pipe nobody has taken yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


class TestFolder:
    def test_that_cannot_be_made(self, command, tmp_path):
        (tmp_path / "alpha").write_text("a file")
        alpha = Peer(command, tmp_path, "alpha")
        for words in (["init"], ["show"], ["pin", "-"]):
            ran = alpha(*words)
            assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert (tmp_path / "alpha").read_text() == "a file"

    def test_that_cannot_be_written_keeps_nothing_half_done(self, alpha, beta, broker):
        card = alpha.file(beta.card())
        before = alpha.bytes()
        alpha.folder.chmod(0o500)
        (alpha.folder / "peers").chmod(0o500)
        ran = alpha.process("pin", card, preexec_fn=as_anybody)
        alpha.folder.chmod(0o700)
        (alpha.folder / "peers").chmod(0o700)
        assert (ran.code, ran.out) == (1, "")
        assert "Permission denied" in ran.err
        assert alpha.bytes() == before
        assert not broker.store.client.exists(broker.store.keys.trust("alpha"))

    def test_that_can_only_be_read_is_good_for_looking(self, alpha, beta):
        alpha.pins(beta)
        for folder in (alpha.folder / "peers", alpha.folder):
            folder.chmod(0o500)
        (alpha.folder / "lock").chmod(0o400)
        ran = alpha.process("show", "-o", "json", preexec_fn=as_anybody)
        for folder in (alpha.folder, alpha.folder / "peers"):
            folder.chmod(0o700)
        assert [shown["node"] for shown in ran.json] == ["alpha", "beta"]
        assert ran.code == 0

    def test_that_others_can_enter_is_refused(self, alpha):
        alpha.folder.chmod(0o755)
        ran = alpha("show")
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "chmod 700" in ran.err

    def test_of_a_key_that_others_can_read_is_refused(self, alpha):
        (alpha.folder / "node.key").chmod(0o640)
        ran = alpha("show")
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "chmod 600" in ran.err


class TestFullDisk:
    """Files that cannot grow: the system's word for it differs from a full disk's, the way out is the same."""

    def test_an_identity_is_made_whole_later(self, command, tmp_path):
        alpha = Peer(command, tmp_path, "alpha")
        ran = alpha.process("init", preexec_fn=on_a_full_disk)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "cannot write" in ran.err
        assert not list(alpha.folder.rglob("*.tmp"))
        assert "broker trust init" in alpha("show").err
        alpha.init()
        assert alpha.card()["epoch"] == 1

    @pytest.mark.parametrize("verb", ["pin", "endorse", "remove", "epoch"])
    def test_a_change_is_not_made_and_not_told(self, command, alpha, beta, tmp_path, verb):
        gamma = Peer(command, tmp_path, "gamma").init()
        alpha.pins(gamma)
        words = {
            "pin": ["pin", alpha.file(beta.card())],
            "endorse": ["endorse", "gamma"],
            "remove": ["remove", "gamma"],
            "epoch": ["init", "--epoch", "2"],
        }[verb]
        before = alpha.bytes()
        ran = alpha.process(*words, preexec_fn=on_a_full_disk)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert alpha.bytes() == before
        assert alpha.known() == ["gamma"]
        assert alpha.told() == [("pinned", "gamma")]
        alpha.ok(*words)
        changes = {"pin": "pinned", "endorse": "endorsed", "remove": "removed"}
        assert [change for change, _ in alpha.told()[1:]] == (
            [changes[verb]] if verb in changes else []
        )
