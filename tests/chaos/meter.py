"""How much noise a failure makes: whoever fails without end must not spin, nor fill disks with its complaints."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from contextlib import suppress

import redis

#: So many measurements on end tell a spin from a burst.
LASTING = 5
#: How a line begins that is not the rest of the one before it (a traceback's, say).
RECORD = re.compile(r"^\d{4}-\d\d-\d\d", re.MULTILINE)
#: How long one measurement takes, in seconds.
SECOND = 1.0


class Meter:
    """The most lines that any process wrote, and the most errors that Redis answered, within one second."""

    def __init__(self, stack):
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._client = redis.Redis(port=stack.redis.port, socket_timeout=1)
        #: The most lines a second of one process: how many, whose, and what it said last.
        self.lines = (0, "", "")
        #: The most errors that Redis met within a second: how many, and which, by their first words and by command.
        self.errors = (0, {}, {})
        #: The most of them a second, over so many seconds on end: what goes wrong once is no spinning.
        self.errors_lasting = 0
        self._last = deque(maxlen=LASTING)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()
        self._client.close()

    def _run(self):
        sizes, before, at = {}, None, time.monotonic()
        while not self._stop.wait(max(0.0, at + SECOND - time.monotonic())):
            elapsed, at = max(SECOND, time.monotonic() - at), time.monotonic()
            for name, text in self._said(sizes):
                if (count := round(len(RECORD.findall(text)) / elapsed)) > self.lines[0]:
                    self.lines = (count, name, text[-1_500:])
            now = self._failures()
            if before and now and now[0] >= before[0]:
                count = round((now[0] - before[0]) / elapsed)
                self._last.append(count)
                if len(self._last) == LASTING:
                    self.errors_lasting = max(self.errors_lasting, round(sum(self._last) / LASTING))
                if count > self.errors[0]:
                    self.errors = (count, now[1] - before[1], now[2] - before[2])
            before = now

    def _said(self, sizes):
        """What each process wrote since the last look, and this one."""
        for path in self._stack.folder.glob("log-*"):
            with path.open() as log:
                log.seek(sizes.get(path, 0))
                text = log.read()
                sizes[path] = log.tell()
            yield path.name, text

    def _failures(self):
        """All that Redis met so far: how many, by their first words, and by the command that failed."""
        with suppress(redis.RedisError, OSError):
            found = self._client.info("all")
            kinds = {
                name: one["count"] for name, one in found.items() if name.startswith("errorstat_")
            }
            commands = {
                name: one["failed_calls"] + one["rejected_calls"]
                for name, one in found.items()
                if name.startswith("cmdstat_")
            }
            return found["total_error_replies"], Counter(kinds), Counter(commands)
        return None
