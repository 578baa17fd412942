"""How long it took until a killed worker's job was shown as doubtful, guessed to be lost, and running elsewhere.

The first is seen as a user sees it, in a list; the others are told by the log, whose entries carry Redis's time.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import NamedTuple

from broker.roles.serve import SWEEPER_SECONDS
from tests.chaos.run import share

#: How often a list is looked at; a dispatcher's pace, and what a start takes on a free slot; in milliseconds.
LOOK_MS, PLACING_MS = 50, 300
SWEEP_MS = round(SWEEPER_SECONDS * 1_000)
#: By how much a budget may be exceeded.
SLACK = 1.5
#: Who had so many looks between the first moment of doubt and the guess must have seen the doubt.
LOOKS_MIN = 5


def now_ms():
    return time.time_ns() // 1_000_000


class Kill(NamedTuple):
    """A worker was killed: by its name, or while it had this attempt in hand."""

    at: int  #: epoch ms
    worker: str = ""
    key: str = ""
    attempt: int = 0


class Fate(NamedTuple):
    """What came of a running attempt whose worker was killed: milliseconds from the kill, None where it never came."""

    key: str
    attempt: int
    doubted: int | None
    guessed: int | None
    again: int | None
    looks: int  #: so many there was time for while it was doubtful, and no guess stood


class Fair:
    """How long it was from one epoch millisecond to another; what this machine stood still does not count."""

    def __init__(self, stack):
        self._awake, self.budgets = stack.awake, stack.budgets
        self._since = time.time() - time.monotonic()

    def ms(self, begun, ended):
        return round(1_000 * self._awake.between(*self._here(begun, ended)))

    def judged_ms(self, begun, ended):
        """Who judges and did not hear any worker for a while listens for a whole budget first, each time."""
        deaf = (self.budgets.suspect_ms - self.budgets.beat_ms) / 1_000
        stills = self._awake.stills(*self._here(begun, ended))
        listened = sum(seconds > deaf for seconds in stills) * self.budgets.guess_ms
        return max(0, self.ms(begun, ended) - listened)

    def _here(self, *moments):
        """By the monotonic clock."""
        return [moment / 1_000 - self._since for moment in moments]


class Eyes(threading.Thread):
    """Looks at running jobs in a list, again and again, and remembers when each attempt was first shown as doubtful."""

    def __init__(self, stack):
        super().__init__(name="eyes", daemon=True)
        self.doubted = {}  # (key, attempt) -> epoch ms
        self.came = {}  # worker -> when its beat was first seen, epoch ms
        self._broker = stack.client("eyes")
        self._watcher = self._broker.watch()
        self._suspect_ms = stack.budgets.suspect_ms
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._live = {}

    def __enter__(self):
        self._watcher.snapshot()
        self.start()
        return self

    def __exit__(self, *exc):
        self._closed.set()
        self._watcher.close()
        self.join()
        self._broker.close()

    def busy(self):
        """How many jobs wait, or run on a worker that is not in doubt."""
        with self._lock:
            return sum(
                not record.inferred and (key, record.attempt) not in self.doubted
                for key, record in self._live.items()
            )

    def run(self):
        while not self._closed.wait(LOOK_MS / 1_000):
            changes = self._watcher.changes(0)
            with self._lock:
                for change in changes:
                    self._live.pop(str(change.key), None)
                    if change.record and not change.record.ended:
                        self._live[str(change.key)] = change.record
            self._look()

    def _look(self):
        begun = now_ms()  # how long a look takes is no fault of what it sees
        fleet = {seen.name: seen.silent_ms for seen in self._broker.workers()}
        for name in fleet:
            self.came.setdefault(name, now_ms())
        for key, record in list(self._live.items()):
            silent = record.holder and fleet.get(record.worker, 0) > self._suspect_ms
            if silent and not record.inferred and (key, record.attempt) not in self.doubted:
                listed = self._broker.listed(key)
                if listed.suspect:
                    with self._lock:
                        self.doubted[key, listed.record.attempt] = begun


class Tale:
    """The whole log of an origin, job by job: what came of whom."""

    def __init__(self, broker, origin, fair):
        self._fair = fair
        self._stories, self._hands = defaultdict(list), defaultdict(list)
        self._nodes = defaultdict(set)  # node -> the workers that started a job there
        for entry in broker.log(origin).entries():
            at, key = int(entry.rev.split("-")[0]), str(entry.key(origin))
            self._stories[key].append((at, entry))
            if entry.rule == "started":
                self._hands[entry.record.worker].append((at, key, entry.record.attempt))
                self._nodes[entry.record.node].add(entry.record.worker)

    def fates(self, kills, doubted):
        """What came of each attempt that was running when its worker was killed; without those whose end was told."""
        found = {}
        for kill in kills:
            begun = [(kill.key, kill.attempt)] if kill.key else []
            begun += [taken[1:] for taken in self._hands[kill.worker] if taken[0] <= kill.at]
            if not begun:
                continue
            story = self._stories[begun[-1][0]]
            if fate := _fate(story, *begun[-1], kill.at, doubted, self._fair):
                found[begun[-1]] = fate
        return list(found.values())

    def handed(self, deaths, came, budgets):
        """How long after each death of who had just taken a job the job was started, in milliseconds.

        It is handed over again to its own node, whose other slots may be at work by then, and whose dead slot comes
        again as soon as Python has started: what it waited for one of them is left out. So is a job whose next taker
        died as well (that death counts), or that was taken back at once since its whole node fell silent.
        """
        for death in deaths:
            placed_at, node = 0, ""
            for at, entry in self._stories[death.key]:
                if entry.rule == "placed" and at <= death.at:
                    placed_at, node = at, entry.record.node
                elif entry.rule == "unplaced" and death.at < at < placed_at + budgets.start_ms:
                    break
                elif entry.rule == "started" and at >= death.at:
                    if not any(one.key == death.key and death.at < one.at < at for one in deaths):
                        by_then = death.at + _again_ms(budgets)
                        free_at = max(by_then, self._free(node, by_then, at, came))
                        yield self._fair.ms(death.at, at) - self._fair.ms(by_then, free_at)
                    break

    def _free(self, node, since, until, came):
        """When a slot of the node was first free at or after `since`; `until`: when one took a job at the latest."""
        found = [until]
        for worker in self._nodes[node]:
            begun = [taken for taken in self._hands[worker] if taken[0] <= since]
            if not any(since < taken[0] for taken in self._hands[worker]):
                continue  # it may be dead
            free = self._ended(*begun[-1][1:]) if begun else came.get(worker, until)
            found.append(max(since, free))
        return min(found)

    def _ended(self, key, attempt):
        """When this attempt was over, epoch ms."""
        return next(
            at
            for at, entry in self._stories[key]
            if entry.record is None or entry.record.attempt > attempt or entry.record.ended
        )


def _fate(story, key, attempt, killed_at, doubted, fair):
    """None where the attempt had not started, or ended by its own word."""
    running, guessed, again, looks = False, None, None, 0
    for at, entry in story:
        record = entry.record
        if record is None:
            continue
        if entry.rule == "started":
            if record.attempt == attempt:
                running = True
            elif record.attempt > attempt and again is None:
                again = fair.judged_ms(killed_at, at)
        elif entry.rule == "guess_applied" and record.attempt == attempt and guessed is None:
            guessed = fair.judged_ms(killed_at, at)
            doubt_at = killed_at - fair.budgets.beat_ms + fair.budgets.suspect_ms
            looks = fair.ms(doubt_at, at) // LOOK_MS
        elif entry.event == "finish" and running and again is None and guessed is None:
            return None
    if not running:
        return None
    seen = doubted.get((key, attempt))
    return Fate(key, attempt, seen and fair.ms(killed_at, seen), guessed, again, looks)


def limits(budgets):
    """What the budgets allow from the kill on, in milliseconds: a beat may have been said just before it."""
    guessed = budgets.guess_ms + SWEEP_MS
    return {
        "doubted": budgets.suspect_ms,
        "guessed": guessed,
        "again": guessed + budgets.grace_ms + SWEEP_MS + PLACING_MS,
        "handed": _again_ms(budgets) + PLACING_MS,
    }


def _again_ms(budgets):
    """How late a placed job that has not started is handed over again: it is looked for so often, once it is so old."""
    return 2 * (budgets.start_ms // 5)


def firm_share(values, part):
    """The value below which this part of them lies, one of them set aside: it may be the machine that was late.

    All of them for part 1; None where there are less than three.
    """
    ordered = sorted(values)
    if part == 1:
        return ordered[-1] if ordered else None
    return ordered[min(len(ordered) - 2, int(part * len(ordered)))] if len(ordered) > 2 else None


class Delays:
    """Milliseconds by name, each beside what the budgets allow."""

    def __init__(self, budgets):
        self._limits = limits(budgets)
        self._values = defaultdict(list)

    def add(self, name, value):
        if value is not None:
            self._values[name].append(value)

    def add_fates(self, found):
        for fate in found:
            for name in ("doubted", "guessed", "again"):
                self.add(name, getattr(fate, name))

    def told(self):
        return {
            f"{name}_ms": {
                "of": len(values),
                "p50": share(values, 0.5),
                "p99": share(values, 0.99),
                "allowed": self._limits[name],
            }
            for name, values in self._values.items()
        }

    def hold(self, part=0.99):
        """This part of each is within 1.5 times of what the budgets allow."""
        for name, values in self._values.items():
            late, allowed = firm_share(values, part), self._limits[name]
            assert late is None or late <= SLACK * allowed, (
                f"{name} after {late} ms at the {part} share of {len(values)}: {allowed} ms are allowed, "
                f"or {SLACK} times that; all: {sorted(values)}"
            )
