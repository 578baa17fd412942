"""Every word of a job's life said fifty times, by sixteen clients at once, in time and late."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from broker.rules.event import Finish, Intent, Place, Remove, RemovePair, Report, Start, Submit
from broker.rules.key import Key
from tests.chaos.checks import in_order, lists_agree, no_ghosts
from tests.chaos.crowd import ORIGINS, Crowd
from tests.chaos.run import row

COPIES = 50
#: So many of the copies are held back, and come when the job has long gone on.
HELD_BACK = 10
#: So many jobs live at a time.
GROUP = 25


@row("duplicates", long=1_000, short=50)
def duplicates(run):
    """Each event of a job's life x50 from 16 threads: one apply each, the others answered by the first's rule."""
    with run.stack() as stack, Crowd(run, stack) as crowd, stack.broker.watch() as watcher:
        watcher.snapshot()
        told, kept = Counter(), []
        for begun in range(0, run.count, GROUP):
            lives = [
                make_life(stack.broker, number)
                for number in range(begun, min(begun + GROUP, run.count))
            ]
            kept += [life.key for life in lives if life.end]
            told.update(live_through(crowd, lives))
        entries = sum(in_order(stack.broker, origin) for origin in stack.broker.origins())
        no_ghosts(stack, kept)
        lists_agree(stack, watcher)
        return {"events": sum(told.values()), "entries": entries} | dict(told.most_common())


class Life:
    """One job's events, each made when its time has come, and the answers to all copies of each."""

    def __init__(self, broker, number):
        self.broker, self.number = broker, number
        self.key = Key(ORIGINS[number % len(ORIGINS)], "e", "", f"d{number}")
        self.created_at = broker.store.clock.now()
        self.late = []
        self.heard = {}

    def record(self):
        return self.broker.view.get(self.key)

    def report(self, state, node="", **more):
        return Report(key=self.key, created_at=self.created_at, state=state, node=node, **more)

    def id(self, what):
        return f"{what}-{self.number}"


class Numbered(Life):
    """Numbers are their marks: late copies are refused, whatever they say."""

    end = "completed"
    duplicate = ("no_change",)
    refused = ("stale_seq", "terminal")

    def events(self):
        yield self.report("queued", seq=1)
        yield self.report("running", "a", seq=2)
        yield self.report("running", "b", seq=3)
        yield self.report("completed", "b", seq=4)


class Unnumbered(Life):
    """What an event says is its mark."""

    end = "failed"
    duplicate = ("no_change", "seen")
    refused = ()

    def events(self):
        yield self.report("queued")
        yield self.report("running", "a")
        yield self.report("failed", "a")


class Named(Life):
    """An event_id is answered for ever as it was first; so a move there and back is no repeat."""

    end = None  # removed
    duplicate = None
    refused = ()

    def events(self):
        yield self.report("queued", resync=True, event_id=self.id("q"))
        yield self.report("running", "a", resync=True, event_id=self.id("r"))
        yield self.report("running", "b", resync=True, event_id=self.id("there"))
        yield self.report("running", "a", resync=True, event_id=self.id("back"))
        yield self.report("completed", "a", resync=True, event_id=self.id("c"))
        yield Remove(key=self.key, event_id=self.id("x"))


class Submitted(Named):
    """Our own jobs, through to their end."""

    end = "completed"

    def events(self):
        yield Submit(
            key=self.key, created_at=self.created_at, digest="d", event_id=self.id("submit")
        )
        yield Place(
            key=self.key, node="a", rev=self.record().rev, term=1, event_id=self.id("place")
        )
        yield Start(**self.names(), node="a", worker="w", event_id=self.id("start"))
        yield from self.rest()

    def rest(self):
        yield Finish(**self.names(), state="completed", result="1", event_id=self.id("finish"))

    def names(self):
        record = self.record()
        return {
            "key": self.key,
            "created_at": record.created_at,
            "attempt": record.attempt,
            "holder": f"h{self.number}",
        }


class Retried(Submitted):
    end = "cancelled"

    def rest(self):
        failed = replace(
            next(super().rest()), state="failed", retryable=True, event_id=self.id("failed")
        )
        yield failed
        yield Intent(key=self.key, event_id=self.id("intent"))


class Cancelled(Submitted):
    end = None

    def rest(self):
        yield Intent(key=self.key, event_id=self.id("intent"))
        yield Finish(**self.names(), state="cancelled", event_id=self.id("finish"))
        yield RemovePair(origin=self.key.origin, id=self.key.id, event_id=self.id("x"))


class Removed(Submitted):
    """Asked to be removed while it runs: the holder's last word takes it away."""

    end = None

    def rest(self):
        names = self.names()
        yield Remove(key=self.key, event_id=self.id("x"))
        yield Finish(**names, state="completed", result="1", event_id=self.id("finish"))


LIVES = (Numbered, Unnumbered, Named, Submitted, Retried, Cancelled, Removed)


def make_life(broker, number):
    return LIVES[number % len(LIVES)](broker, number)


def live_through(crowd, lives):
    """All of them at once, a stage at a time; how all that was said was answered."""
    stories = {life: life.events() for life in lives}
    of_job = {life.key.id: life for life in lives}
    while stories:
        said = []
        for life, story in list(stories.items()):
            event = next(story, None)
            if event is None:
                del stories[life]
                continue
            said += [event] * (COPIES - HELD_BACK)
            life.late += [event] * HELD_BACK
        for life in lives:  # of what was held back, some come now
            crowd.chance.shuffle(life.late)
            count = len(life.late) if life not in stories else len(life.late) // 4
            # Never before its own first copies, which are said in this very round.
            late = [event for event in life.late if event in life.heard][:count]
            for event in late:
                life.late.remove(event)
            said += late
        hear(crowd.say(said), of_job)
    hear(crowd.say([event for life in lives for event in life.late]), of_job)
    return Counter(rule for life in lives for rule in check_life(life))


def hear(pairs, of_job):
    for event, answer in pairs:
        of_job[event.id if isinstance(event, RemovePair) else event.key.id].heard.setdefault(
            event, []
        ).append(answer)


def check_life(life):
    """One apply for each event, and one start at most; how all its copies were answered."""
    record = life.record()
    assert (record and record.state) == life.end, f"{life.key}: {record}"
    assert record is None or record.tries == isinstance(life, Submitted), record
    for event, answers in life.heard.items():
        told = f"{event}: {Counter(answers)}"
        assert len(answers) == COPIES, told
        applied = [answer for answer in answers if answer.outcome == "applied"]
        assert len(applied) == 1, told
        for answer in answers:
            if answer.outcome == "applied":
                continue
            if answer.outcome == "duplicate" and life.duplicate is None:
                assert (answer.rule, answer.rev) == applied[0][1:], told
            elif answer.outcome == "duplicate":
                assert answer.rule in life.duplicate, told
            else:
                assert (answer.outcome, answer.rule in life.refused) == ("refused", True), told
            yield f"{answer.outcome} {answer.rule}"
        yield f"applied {applied[0].rule}"
