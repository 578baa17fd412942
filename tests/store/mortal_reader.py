"""Readers of a group that are really killed: a process that forks one for each line it is told, and says how it ended.

Forked, since two hundred interpreters take minutes to start. Each reader is a process of its own, with its own
connection, and dies by SIGKILL at the point it was told, or whenever its parent strikes. What it does goes to a ledger,
line by line, as any outside effect would: `handled RUN REV` once the handler did its work, `acked RUN REV` once `ack`
returned, `refused RUN CALL RULE` for what a thawed one is refused.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from redis.connection import AbstractConnection

from broker.errors import Refused
from broker.store.group import Group
from broker.store.store import Store
from tests.store.readers import ORIGIN

ROOT = Path(__file__).parents[2]

#: Where a reader dies, beside whenever it happens to be struck: before its handler; after it; with half of the call of
#: ack.lua on its way; with the whole of it on its way and no answer yet; and after the answer.
POINTS = ("before", "handled", "torn", "sent", "acked")
ANYTIME = "anytime"
FROZEN = "frozen"

#: No reader lives longer, whatever is broken.
SECONDS_MAX = 60
PR_SET_PDEATHSIG = 1


class Nursery:
    """The process that forks them, as the test talks to it."""

    def __init__(self, url, namespace, group, ledger):
        argv = [sys.executable, "-m", __name__, url, namespace, group, str(ledger)]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._process.kill()  # whoever still lives dies with it
        self._process.communicate()

    def run(self, **told):
        """Let one reader live until it ends or stops: what became of it, and its pid."""
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        ended, pid = json.loads(self._process.stdout.readline())
        return ended, pid


def main(url, namespace, group, ledger):
    for line in sys.stdin:
        told = json.loads(line)
        if "thaw" in told:
            pid = told["thaw"]
            os.kill(pid, signal.SIGCONT)
        elif (pid := os.fork()) == 0:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.alarm(SECONDS_MAX)
            try:
                Reader(url, namespace, group, ledger, told).live()
            finally:
                os._exit(0 if sys.exc_info()[0] is None else 1)
        elif told.get("point") == ANYTIME:
            time.sleep(told["strike_ms"] / 1000)
            os.kill(pid, signal.SIGKILL)
        print(json.dumps((_end_of(pid), pid)), flush=True)


def _end_of(pid):
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return "stopped"
    return "killed" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


class Reader:
    """Handles entry by entry, until there is none or it dies."""

    def __init__(self, url, namespace, group, ledger, told):
        self.run, self.point = told["run"], told.get("point", "")
        self.at, self.count = told.get("at", 0), told.get("count", 100)
        self.ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.store = Store.from_url(url, namespace)
        self.group = Group(
            self.store, group, f"run{self.run}", lease_ms=told["lease_ms"], parked_max=1_000
        )

    def live(self):
        while not (claim := self.group.claim(ORIGIN)):
            pass
        term, seen = claim.term, 0
        while entries := self._fetch(term):
            for rev, _ in entries:
                seen += 1
                self._handle(term, rev.decode(), self.point if seen == self.at else "")

    def _fetch(self, term):
        while True:
            entries = self.group.fetch(ORIGIN, term, self.count).entries
            if entries or self.point != ANYTIME:
                return entries

    def _handle(self, term, rev, point):
        if point == "before":
            die()
        self._note("handled", rev)
        if point == "handled":
            die()
        elif point == "torn":
            AbstractConnection.send_packed_command = send_half_and_die
        elif point == "sent":
            AbstractConnection.read_response = die
        elif point == FROZEN:
            os.kill(os.getpid(), signal.SIGSTOP)
            self._try_everything(term, rev)
            os._exit(0)
        self.group.ack(ORIGIN, term, rev)
        if point == "acked":
            die()
        self._note("acked", rev)

    def _try_everything(self, term, rev):
        """What the thawed one still believes it may do."""
        calls = {
            "ack": lambda: self.group.ack(ORIGIN, term, rev),
            "fetch": lambda: self.group.fetch(ORIGIN, term),
            "park": lambda: self.group.park(ORIGIN, term, rev, "it broke"),
            "fail": lambda: self.group.fail(ORIGIN, term),
            "skip": lambda: self.group.skip(ORIGIN, term),
        }
        for name, call in calls.items():
            try:
                call()
            except Refused as refused:
                self._note("refused", name, refused.rule)
        if not self.group.release(ORIGIN, term) and self.group.claim(ORIGIN) is None:
            self._note("refused", "lease", "held")

    def _note(self, *words):
        os.write(self.ledger, " ".join((words[0], str(self.run), *words[1:])).encode() + b"\n")


def die(*_args, **_more):
    os.kill(os.getpid(), signal.SIGKILL)


def send_half_and_die(connection, command, check_health=True):
    whole = b"".join(command) if isinstance(command, list) else command
    connection._sock.sendall(whole[: len(whole) // 2])
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
