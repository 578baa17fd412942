"""How much noise a failure makes: whoever fails without end must not spin, nor fill disks with its complaints."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from contextlib import suppress

import redis

#: How a line begins that is not the rest of the one before it (a traceback's, say).
RECORD = re.compile(r"^\d{4}-\d\d-\d\d", re.MULTILINE)
#: How long one measurement takes, in seconds; so many on end tell a spin from a burst.
SECOND, LASTING = 1.0, 5
#: How a chronicle tells of a job.
CHANGED = "job changed"


class Meter:
    """How many lines each process wrote, and how many errors Redis met: the most a second, at once and for long."""

    def __init__(self, stack):
        self._stack = stack
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._client = redis.Redis(port=stack.redis.port, socket_timeout=1)
        #: Of one process: how many lines, whose, and what it said last.
        self.lines, self.lines_lasting = (0, "", ""), (0, "", "")
        #: How many errors, and by which commands.
        self.errors, self.errors_lasting = (0, {}), (0, {})

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()
        self._client.close()

    def _run(self):
        sizes, said, before, at = {}, {}, None, time.monotonic()
        last = deque(maxlen=LASTING)
        while not self._stop.wait(max(0.0, at + SECOND - time.monotonic())):
            elapsed, at = max(SECOND, time.monotonic() - at), time.monotonic()
            for name, text in self._texts(sizes):
                counts = said.setdefault(name, deque(maxlen=LASTING))
                counts.append(round(len(RECORD.findall(text)) / elapsed))
                self.lines = max(self.lines, (counts[-1], name, text[-1_500:]))
                lasting = (sum(counts) // LASTING, name, text[-1_500:])
                self.lines_lasting = max(self.lines_lasting, lasting)
            now = self._failures()
            if before and now and now.total() >= before.total():
                last.append((round((now - before).total() / elapsed), now - before))
                self.errors = max(self.errors, last[-1], key=_count)
                which = sum((commands for _, commands in last), Counter())
                lasting = (sum(map(_count, last)) // LASTING, which)
                self.errors_lasting = max(self.errors_lasting, lasting, key=_count)
            before = now

    def _texts(self, sizes):
        """What each process wrote since the last look, but for the lines of jobs: they are as many as the changes."""
        for path in self._stack.folder.glob("log-*"):
            with path.open() as log:
                log.seek(sizes.get(path, 0))
                lines = log.read().splitlines(keepends=True)
                text = "".join(line for line in lines if CHANGED not in line)
                sizes[path] = log.tell()
            yield path.name, text

    def _failures(self):
        """How many commands of each kind failed so far.

        A script that fails counts by the one in it that failed: Redis itself counts both, and the inner one twice.
        """
        with suppress(redis.RedisError, OSError):
            found = self._client.info("all")
            commands = {
                name.removeprefix("cmdstat_"): one["failed_calls"] + one["rejected_calls"]
                for name, one in found.items()
                if name.startswith("cmdstat_")
            }
            commands.pop("evalsha", None)
            return Counter(commands)
        return None


def _count(found):
    return found[0]
