"""What a sweeper is tried on: jobs under way, and time that passes for them as the test wants."""

from __future__ import annotations

from tests.roles.fleet import PATIENT, settle

BEAT, SUSPECT, GUESS, GRACE = (
    PATIENT.beat_ms,
    PATIENT.suspect_ms,
    PATIENT.guess_ms,
    PATIENT.grace_ms,
)
START, STALE, BRAKE = PATIENT.start_ms, PATIENT.stale_ms, PATIENT.brake_ms


def listened(fleet, sweeper):
    """It has listened for a whole budget, in which every worker beat."""
    settle(sweeper)
    wait(fleet, GUESS)
    fleet.beat()
    settle(sweeper)
    return sweeper


def attentive(fleet, **options):
    """A sweeper that took office and has listened."""
    fleet.know_origin()
    return listened(fleet, fleet.sweeper(**options))


def wait(fleet, ms):
    """Time passes, and nobody is heard of."""
    fleet.clock.ahead_ms += ms


def placed(fleet, *ids, **more):
    """Submitted, placed and handed over to RQ."""
    keys = fleet.submit_many(ids, **more)
    place(fleet)
    assert fleet.placed(keys) == keys
    return keys


def place(fleet):
    fleet.beat()
    if not fleet.dispatchers:
        fleet.dispatcher()
    settle(fleet.dispatchers[0])


def running(fleet, *ids, **more):
    keys = placed(fleet, *ids, **more)
    for key in keys:
        fleet.start(key)
    return keys


def shown(fleet, key):
    """The state as it is shown, the attempt and the node."""
    record = fleet.view.get(key)
    return record.state + "~" * record.inferred, record.attempt, record.node


def rules_of(fleet, key):
    """What was decided about one job, in order."""
    log = fleet.store.client.xrange(fleet.store.keys.of(key.origin).log)
    job = key.job.encode()
    return [fields[b"rule"].decode() for _, fields in log if fields[b"job"] == job]


#: How each word of a sweeper comes to be due: what is prepared, and how long it takes from then.
DUE = {
    "guess_applied": ("running", GUESS),
    "requeued": ("a guess", GRACE),
    "lost": ("the last guess", GRACE),
    "unplaced": ("placed", START),
}


def prepare(fleet, sweeper, what):
    """One job of each situation that a sweeper judges; it is due after the time that `DUE` tells."""
    if what == "placed":
        [key] = placed(fleet, what)
    else:
        [key] = running(fleet, what, attempts=1 if what == "the last guess" else 3)
    if "guess" in what:
        wait(fleet, GUESS)
        fleet.beat()
        assert sweeper.step() == 1
    settle(sweeper)
    return key
