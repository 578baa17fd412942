"""What Redis holds is thrown away, in part or whole, or made into something else, while all use it: it heals itself."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress

import redis

from broker.errors import BrokerError
from broker.store.audited import Audited
from broker.store.keys import ORIGIN_TYPES
from broker.store.lease import LED_ROLES
from tests.chaos.checks import all_ended, in_order, lists_agree, no_ghosts, none_twice, nothing_left
from tests.chaos.everybody import GROUP, Everybody, Word
from tests.chaos.meter import Meter
from tests.chaos.run import row, share
from tests.chaos.servers import LEFT_SECONDS_MAX, fleet, told
from tests.chaos.stack import until

#: The origins that the crowd speaks of, and the group that listens to them.
ORIGINS = ("desk", "shop", "press", "studio")
#: Damages of one key, which is made a wrong type: of those that hold all jobs of an origin, and of a single job's.
JOB_KEYS = ("job", "refused", "spec", "result", "out")
#: The others.
PLAIN = ("FLUSHALL", "DEL log", "XGROUP DESTROY", "SCRIPT FLUSH")
#: After these the readers of the origin must be told that their place is gone.
TELLING = ("FLUSHALL", "DEL log", "type of log", "type of meta")
#: The rule by which a job is refused that may have been removed.
BARRED = "tombstoned"
#: Failing more often for seconds on end is spinning: lines a second of one process, errors a second of all together.
LINES_MAX = ERRORS_MAX = 20
#: How long a new job may take after a damage, and the gauges to read 0 after the last one, in seconds.
HEAL_SECONDS_MAX = 60.0
#: How long it may take until a reader is told that its place is gone.
TOLD_SECONDS_MAX = 20.0


@row("damage", long=50, short=5)
def damage(run):
    """FLUSHALL, DEL of a log, XGROUP DESTROY, SCRIPT FLUSH, a key of a wrong type, one after the other, under load."""
    with run.stack() as stack:
        fleet(stack)
        with Everybody(stack, run.chance) as crowd, Meter(stack) as meter:
            run.pause(2, 3)
            harm = Harm(stack, crowd, run.chance)
            damages = harm.plan(run.count)
            seconds = defaultdict(list)
            for turn in run.turns("damages"):
                what = damages[turn]
                seconds[what.partition(" of ")[0]].append(harm.do(what))
                run.pause(0.2, 1)
            run.pause(1.5, 2)
            crowd.end()
            return (
                healed(stack, crowd, harm)
                | noise(meter)
                | {
                    f"seconds to a new end after {kind}": f"{share(took, 0.5):.1f}, at most {max(took):.1f}"
                    for kind, took in seconds.items()
                }
            )


class Harm:
    """Does damage, and waits until a new job is through."""

    def __init__(self, stack, crowd, chance):
        self._stack, self._crowd, self._chance = stack, crowd, chance
        self._client, self._keys = stack.broker.store.client, stack.broker.store.keys
        #: When all was flushed last, by the monotonic clock.
        self.flushed_at = 0.0
        #: How long keys of a wrong type stood there, in seconds.
        self.spoilt_seconds = []
        self._spoilt = []

    def plan(self, count):
        """So many damages in the order of chance: each of the plain ones, then each key once before any comes twice."""
        keys = [
            f"type of {what}"
            for what in (*ORIGIN_TYPES, "sub", "parked", *JOB_KEYS, "node", "worker")
        ]
        keys += [f"type of {name}" for name in self._keys.fixed]
        keys += [
            f"type of {of(role)}"
            for role in LED_ROLES
            for of in (self._keys.leader, self._keys.term)
        ]
        found = list(PLAIN)
        while len(found) < count:
            self._chance.shuffle(keys)
            found += (
                keys
                if len(found) > len(PLAIN)
                else [*keys, *PLAIN, *PLAIN, "FLUSHALL", "DEL log", "XGROUP DESTROY"]
            )
        found = found[:count]
        self._chance.shuffle(found)
        return found

    def do(self, what):
        """Do it. Gives the seconds until a job that was submitted after it had ended."""
        begun = time.monotonic()
        origins = list(ORIGINS)
        before = self._standing()
        if what == "FLUSHALL":
            self._client.flushall()
            self.flushed_at = time.monotonic()
        elif what == "SCRIPT FLUSH":
            self._client.script_flush()
        elif what.startswith("type of broker:"):
            self._spoil(what.removeprefix("type of "))
        elif what in ("type of node", "type of worker"):
            seen = self._chance.choice(self._stack.broker.workers())
            self._spoil(
                self._keys.node(seen.node)
                if what.endswith("node")
                else self._keys.worker(seen.name)
            )
        else:
            origins = [self._chance.choice(ORIGINS)]
            self._harm_origin(what.removeprefix("type of "), origins[0])
        took = self._first_end(begun)
        # Now and then the next damage comes while this one still stands.
        if self._spoilt and self._chance.random() < 0.7:
            until(lambda: not any(self._is_wrong(*one) for one in self._spoilt), HEAL_SECONDS_MAX)
            self._spoilt.clear()
            self.spoilt_seconds.append(time.monotonic() - begun)
        if what in TELLING:
            self._all_told(what, origins, *before)
        return took

    def _harm_origin(self, what, origin):
        keys = self._keys.of(origin)
        if what == "DEL log":
            self._client.delete(keys.log)
        elif what == "XGROUP DESTROY":
            self._client.xgroup_destroy(keys.log, GROUP)
        elif what in ("sub", "parked"):
            self._spoil(getattr(keys, what)(GROUP))
        elif what in JOB_KEYS:
            words = [word for word in self._crowd.submitted if word.key.origin == "desk"]
            self._spoil(getattr(self._keys.of_job(words[-1].key), what))
        else:
            self._spoil(f"{keys.prefix}:{what}")

    def _spoil(self, name):
        """Make a key of a type that nobody expects there, in one step: what it held is lost."""
        wanted = self._keys.read(name).type
        with self._client.pipeline(transaction=True) as pipe:
            pipe.delete(name)
            pipe.sadd(name, "spoilt") if wanted == "string" else pipe.set(name, "spoilt")
            pipe.execute()
        self._spoilt.append((name, wanted))

    def _is_wrong(self, name, wanted):
        return self._client.type(name).decode() not in ("none", wanted)

    def _first_end(self, begun):
        """The seconds from the damage to the end of a job that was submitted after it."""
        submitted = None
        while time.monotonic() - begun < HEAL_SECONDS_MAX:
            with suppress(BrokerError):
                submitted = submitted or self._stack.broker.submit("work", 0, attempts=20)
                record = self._stack.broker.view.get(submitted.key)
                if record and record.ended:
                    self._crowd.submitted.append(Word(submitted.key, "", time.monotonic()))
                    return time.monotonic() - begun
            time.sleep(0.05)
        raise AssertionError(f"no job ended within {HEAL_SECONDS_MAX} s")

    def _standing(self):
        """For the group, and for the watcher of a cursor: the losses it was told of, and in whose log it stands."""
        crowd, client = self._crowd, self._client
        subs, watched = [], []
        for origin in ORIGINS:
            keys = self._keys.of(origin)
            with suppress(redis.ResponseError):
                epoch = client.hget(keys.meta, "epoch")
                if epoch and client.xlen(keys.log):
                    subs += [origin] * (client.hget(keys.sub(GROUP), "epoch") == epoch)
                    watched += [origin] * (
                        getattr(crowd.cursor.get(origin), "epoch", "").encode() == epoch
                    )
        return (crowd.gaps, len(crowd.gaps), subs), (crowd.gone, len(crowd.gone), watched)

    def _all_told(self, what, origins, *readers):
        """Those who stood in a log that is lost were told so."""
        for told_of, count, standing in readers:

            def silent(told_of=told_of, count=count, standing=standing):
                heard = {one.origin for one in told_of[count:]}
                return [origin for origin in origins if origin in standing and origin not in heard]

            with suppress(AssertionError):
                until(lambda silent=silent: not silent(), TOLD_SECONDS_MAX)
            whose = "the group" if told_of is self._crowd.gaps else "the watcher"
            assert not silent(), f"{what}: nobody told {whose} of {silent()}"


def healed(stack, crowd, harm):
    """All that is left is one true list, which goes on to its end; nothing but a flush took any job away."""
    words = (*crowd.submitted, *crowd.reported, *crowd.produced)
    kept = {word.key for word in words if word.at > harm.flushed_at}
    records = dict(zip(kept, stack.broker.view.get_many(list(kept)), strict=True))
    # Where tombstones were lost, what was created before is not taken any more: it might have been removed.
    barred = {key for key, record in records.items() if record is None and was_barred(stack, key)}
    lost = [str(key) for key, record in records.items() if record is None and key not in barred]
    assert not lost, f"{len(lost)} jobs are gone, such as {lost[:3]}"
    no_ghosts(stack, crowd.keys)
    all_ended(stack, [key for key in kept if records[key]])
    none_twice(stack)
    for origin in stack.broker.origins():
        in_order(stack.broker, origin)
    until(lambda: gauges_are_zero(stack), HEAL_SECONDS_MAX)
    lists_agree(stack, crowd.watcher)
    entries = crowd.heard()
    crowd.leave()
    aside = list(stack.broker.store.client.scan_iter("*:damaged", count=1_000))
    if aside:
        stack.broker.store.client.delete(*aside)
    nothing_left(stack, LEFT_SECONDS_MAX)
    assert set(crowd.refused) <= {BARRED}, crowd.refused
    again = sum(bool(record) and record.attempt > 1 for record in records.values())
    return told(crowd) | {
        "entries": entries,
        "kept since the last flush": len(kept),
        "of them with a second attempt": again,
        "jobs that were not taken, and told so": len(barred) + len(crowd.refused),
        "set aside": len(aside),
        "seconds until a key was set aside": f"{max(harm.spoilt_seconds, default=0):.1f} at most",
        "repairs": len(Audited(stack.broker.store).repairs(1_000)),
        "the group was told of a loss": len(crowd.gaps),
        "a cursor was told of a loss": len(crowd.gone),
    }


def was_barred(stack, key):
    return any(refusal.rule == BARRED for refusal in stack.broker.view.refusals(key))


def gauges_are_zero(stack):
    """Whether the newest whole round of the auditor found nothing."""
    seen = Audited(stack.broker.store).seen()
    return seen.at and not (seen.ghosts or seen.missing or seen.stuck or seen.drift or seen.unread)


def noise(meter):
    """Bursts are told; what goes on and on is a spin."""
    lines, errors = meter.lines_lasting, meter.errors_lasting
    assert lines[0] <= LINES_MAX, (
        f"{lines[1]} wrote {lines[0]} lines a second, on and on: {lines[2]}"
    )
    assert errors[0] <= ERRORS_MAX, f"{errors[0]} errors a second, on and on: {errors[1]}"
    return {
        "lines a second of one process": f"{meter.lines[0]}, {lines[0]} for long",
        "errors a second": f"{meter.errors[0]}, {errors[0]} for long",
    }
