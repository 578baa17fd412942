"""Redis itself fails: it is killed, frozen, cut off from its clients, or full. What it acknowledged stays true."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

from tests.chaos.checks import (
    all_ended,
    all_hold,
    in_order,
    lists_agree,
    no_ghosts,
    nothing_left,
)
from tests.chaos.everybody import Everybody
from tests.chaos.run import row
from tests.chaos.stack import kill, until

#: What a power cut takes under `appendfsync everysec`: what was written in so many seconds before.
UNSYNCED_SECONDS = 1.0
BUSY_SERVE = "tests.chaos.busy_serve"
#: From a start that was heard to the effect of the job, in seconds.
FORK_SECONDS_MAX = 3.0
#: How long what RQ noted may outlive its attempt: until the auditor is sure that nobody else clears it away.
LEFT_SECONDS_MAX = 60.0
#: What judges a worker, or moves its job: none of it is right while only Redis is away.
JUDGEMENTS = {"guess_applied", "requeued", "lost", "unplaced"}


@row("kill-redis-always", long=50, short=3)
def kill_redis_always(run):
    """kill -9 of Redis under load, each write synced: nothing that was acknowledged is lost, nothing runs twice."""
    with run.stack(appendfsync="always") as stack:
        fleet(stack)
        with Everybody(stack, run.chance) as crowd:
            for _ in run.turns("kills"):
                run.pause(0.5, 1.5)
                restart(stack, away(run, stack, 3))
            run.pause(0.5, 1.0)
            crowd.end()
            return whole(stack, crowd)


@row("kill-redis-everysec", long=50, short=2)
def kill_redis_everysec(run):
    """A power cut under load, synced each second: what is lost is counted and told, and all goes on from what is left.

    A kill alone loses nothing, since the kernel has what was written. So what was appended in the last second is cut
    off at a random byte, as a power cut leaves the file: one prefix of the order in which all was written.
    """
    with run.stack(appendfsync="everysec") as stack:
        # What RQ noted of an attempt, and whose clearing away was taken back, waits for as long as the brake may hold.
        stack.budgets = replace(stack.budgets, brake_ms=2 * stack.budgets.guess_ms)
        fleet(stack)
        with Everybody(stack, run.chance) as crowd, AppendOnly(stack.redis) as file:
            cuts = []
            for _ in run.turns("power cuts"):
                run.pause(0.5, 1.5)
                cuts.append(
                    (
                        time.monotonic(),
                        restart(stack, away(run, stack, 3), lambda: file.cut(run.chance)),
                    )
                )
            run.pause(0.5, 1.0)
            crowd.end()
            return remains(stack, crowd, cuts)


@row("redis-away", long=20, short=1)
def redis_away(run):
    """Redis is frozen, or killed, for three budgets while workers run jobs: nobody is judged, no attempt given up."""
    with run.stack() as stack:
        fleet(stack)
        watcher = stack.broker.watch()
        watcher.snapshot()
        keys = []
        for _ in run.turns("times away"):
            budget = stack.budgets.guess_ms / 1000
            payloads = [round(run.chance.uniform(0.5, 5 * budget), 3) for _ in range(4)]
            now = [
                job.key
                for payload in payloads
                for job in stack.broker.submit_many("work", [payload])
            ]
            keys += now
            until(
                # A short one may be over by now.
                lambda now=now: all(one.tries for one in stack.broker.view.get_many(now))
            )
            if run.chance.random() < 0.5:
                restart(stack, 3 * budget)
            else:
                kill(stack.redis.pid, signal.SIGSTOP)
                time.sleep(3 * budget)
                kill(stack.redis.pid, signal.SIGCONT)
            stack.ended(now)
        records = all_hold(stack, keys, watcher)
        watcher.close()
        judged = Counter(
            entry.rule for entry in stack.broker.log("desk").entries() if entry.rule in JUDGEMENTS
        )
        assert not judged, f"judged while Redis was away: {judged}"
        others = {
            str(key): record
            for key, record in records.items()
            if (record.state, record.attempt) != ("completed", 1)
        }
        assert not others, (
            f"{len(others)} of {len(keys)} ended otherwise: {next(iter(others.items()))}"
        )
        assert set(stack.effects.begun().values()) == {1}
        return {"jobs": len(keys)}


@row("client-kills", long=500, short=40)
def client_kills(run):
    """Every connection is cut, again and again, under load: nothing is lost, nothing runs twice."""
    with run.stack() as stack:
        fleet(stack)
        with Everybody(stack, run.chance) as crowd:
            killed = 0
            for _ in run.turns("kills"):
                run.pause(0.02, 0.2)
                killed += int(
                    stack.broker.store.client.execute_command("CLIENT", "KILL", "TYPE", "normal")
                )
            crowd.end()
            return {"connections": killed} | whole(stack, crowd)


@row("redis-full", long=10, short=1)
def redis_full(run):
    """maxmemory is reached under load: each caller is told by an error of ours, nothing is lost, all goes on after."""
    with run.stack() as stack:
        fleet(stack)
        client = stack.broker.store.client
        with Everybody(stack, run.chance) as crowd:
            for _ in run.turns("times full"):
                run.pause(1, 2)
                met = crowd.errors.total()
                client.config_set("maxmemory", client.info("memory")["used_memory"] + 100_000)
                until(lambda met=met: crowd.errors.total() > met)
                run.pause(0, 3 * stack.budgets.guess_ms / 1000)
                client.config_set("maxmemory", 0)
            run.pause(1, 2)
            crowd.end()
            return whole(stack, crowd)


@row("redis-disk-full", long=10, short=1)
def redis_disk_full(run):
    """The disk takes no more of the append-only file: each caller is told, nothing is lost, and all goes on after.

    The limit is one of the server's process on the size of its files, so that nothing must be mounted: where a full
    disk says ENOSPC it says EFBIG, and Redis does the same on either.
    """
    with run.stack() as stack:
        fleet(stack)
        with Everybody(stack, run.chance) as crowd, AppendOnly(stack.redis) as file:
            for _ in run.turns("times full"):
                run.pause(1, 2)
                met = crowd.errors.total()
                with files_of_at_most(stack.redis.pid, file.size + 20_000):
                    until(lambda met=met: crowd.errors.total() > met)
                    run.pause(0, 3 * stack.budgets.guess_ms / 1000)
            run.pause(1, 2)
            crowd.end()
            return whole(stack, crowd)


# --- what the rows are made of ---------------------------------------------------------------


def fleet(stack):
    """The roles, and four workers on two nodes."""
    stack.serve(BUSY_SERVE)
    stack.workers(["work"], ["node-a", "node-b"], slots=2)


def away(run, stack, budgets):
    """How long Redis stays away, in seconds: up to so many budgets."""
    return run.chance.uniform(0, budgets * stack.budgets.guess_ms / 1000)


def restart(stack, seconds, damage=lambda: None):
    """kill -9, and start it again after so many seconds. Gives what `damage` to its files gave."""
    kill(stack.redis.pid)
    stack.redis.stop()
    done = damage()
    time.sleep(seconds)
    stack.redis.start()
    return done


class AppendOnly:
    """The append-only file of a server: how long it was at which moment."""

    def __init__(self, server):
        self._folder = server.data_dir / "appendonlydir"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sizes = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.02):
            self._sizes = [*self._sizes[-200:], (time.monotonic(), self.size)]

    @property
    def path(self):
        """The one that is written to."""
        return max(self._folder.glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))

    @property
    def size(self):
        return self.path.stat().st_size

    def cut(self, chance):
        """Cut off a random part of what was appended in the last second, at any byte. How many bytes went."""
        since = time.monotonic() - UNSYNCED_SECONDS
        size = self.size
        # The first look after that moment: whoever looked late must not let more be cut than was unsynced.
        synced = next((length for at, length in list(self._sizes) if at >= since), size)
        kept = chance.randint(min(synced, size), size)
        os.truncate(self.path, kept)
        return size - kept


@contextmanager
def files_of_at_most(pid, size):
    """No file of the process may grow beyond so many bytes."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def whole(stack, crowd):
    """Nothing was lost, in no way; the counts."""
    records = all_hold(stack, crowd.keys, crowd.watcher)
    crowd.kept()
    entries = crowd.heard()
    crowd.leave()
    assert not crowd.refused, crowd.refused[:3]
    losses = [*crowd.gaps, *crowd.gone]
    assert not losses, f"told of a loss that was none: {losses[:3]}"
    given_up = sum(record.attempt > 1 for record in records.values())
    return told(crowd) | {"entries": entries, "jobs with a second attempt": given_up}


def told(crowd):
    return {
        "submitted": len(crowd.submitted),
        "reported": len(crowd.reported),
        "produced": len(crowd.produced),
        "errors": dict(crowd.errors),
    }


def remains(stack, crowd, cuts):
    """After losses: what they were, and that all that is left is one true list which goes on to its end."""
    missing = crowd.missing()
    gone = {name: len(words) for name, words in missing.items()}
    listed = {job.key: job.record for job in stack.broker.jobs()}
    no_ghosts(stack, crowd.keys)
    all_ended(stack, [key for key, record in listed.items() if record.kind == "submitted"])
    for origin in stack.broker.origins():
        in_order(stack.broker, origin)
    lists_agree(stack, crowd.watcher)
    nothing_left(stack, LEFT_SECONDS_MAX)
    entries = crowd.heard()
    crowd.leave()
    logs = {
        (origin, entry.rev)
        for origin in stack.broker.origins()
        for entry in stack.broker.log(origin).entries()
    }
    undone = [place for place in crowd.delivered if place not in logs]
    assert not undone or crowd.gaps, (
        f"{len(undone)} entries were told to the group and taken back, and nobody said so"
    )
    return (
        told(crowd)
        | {
            "entries": entries,
            "bytes cut": sum(cut for _, cut in cuts),
            "acknowledged and gone": gone,
            "begun twice, the start forgotten": begun_twice(stack, [at for at, _ in cuts]),
            "told to the group and taken back": len(undone),
            "the group was told of a loss": len(crowd.gaps),
            "a cursor was told of a loss": len(crowd.gone),
            "jobs listed anew": crowd.relisted,
        }
        | stack.awake.told()
    )


def begun_twice(stack, cuts):
    """How many attempts began anew since a power cut took their start back; nothing else may begin twice."""
    begun = {}
    for effect in stack.effects.read():
        if effect.what == "begin":
            begun.setdefault((effect.key, effect.attempt), []).append(effect.at)
    twice = {name: times for name, times in begun.items() if len(times) > 1}
    unexplained = {
        name: times
        for name, times in twice.items()
        for one, other in pairwise(times)
        # A start is said before its effect: it may have been taken back though the effect came after the cut.
        if not any(
            one - at >= -UNSYNCED_SECONDS - 0.2
            and stack.awake.between(at, one) <= FORK_SECONDS_MAX
            and at <= other
            for at in cuts
        )
    }
    assert not unexplained, f"began twice without a reason: {unexplained}"
    return len(twice)
