"""Wishes that a job end, said at any moment of its life: before its submit was answered, placed, guessed, ended."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from broker.errors import NotFound, Refused
from broker.rules.key import Key
from tests.chaos.checks import all_ended, in_order, lists_agree, no_ghosts, none_twice, nothing_left
from tests.chaos.run import row, share
from tests.chaos.stack import family, kill, until

NODES = ("node-a", "node-b", "node-c")
#: How long a job works, in seconds, if nobody ends it.
WORK, FROZEN_WORK = 0.15, 0.6
#: Jobs under way at a time, beside those whose workers are frozen; the workers are fewer, so that some wait.
LANES = 14
#: Of the jobs, one in so many has its worker frozen while it runs, two at a time; and of the others, one in so many has
#: its end wished at once, before the submit can be answered.
FROZEN_EACH, FROZEN_LANES = 25, 2
AT_ONCE_EACH = 25
#: What is wished, and how often in a hundred.
WISHES = {"cancel": 70, "force": 15, "remove": 10, "remove --force": 5}
#: An effect may begin so long after a *running* job's cancel was acknowledged: it was on its way to its engine.
LATE_SECONDS_MAX = 0.5


@dataclass
class Life:
    """One job, and what was wished. Times are of the machine's monotonic clock, in seconds, as are the effects'."""

    key: Key
    wish: str
    frozen: bool
    begun: float = 0.0
    unknown: int = 0  #: how often the wish came before the job
    asked: float = 0.0
    acknowledged: float = 0.0
    answer: object = None
    waited: str = ""  #: the end that `wait` told
    was: str = ""  #: the state in which the log says that the wish met it
    attempt: int = 0  #: and the attempt
    entries: list = field(default_factory=list)  #: of the log, from its submit on
    after: list = field(default_factory=list)  #: those of them from the wish on

    @property
    def removes(self):
        return self.wish.startswith("remove")


@row("cancel", long=2_000, short=50)
def cancel(run):
    """Cancel at a uniformly random point of the life: cancelled, or ended and the cancel answered `too_late`."""
    with run.stack() as stack, ExitStack() as ending:
        stack.serve()
        stack.workers(["work"], NODES, slots=2)
        early = ending.enter_context(stack.broker.watch())
        early.snapshot()
        lives = Lanes(run, stack).live()
        late = ending.enter_context(stack.broker.watch())
        late.snapshot()
        return judge(stack, lives, early, late)


class Lanes:
    """Each lane leads one job after another through its life."""

    def __init__(self, run, stack):
        self.run, self.stack = run, stack
        self.lock = threading.Lock()
        numbers = range(run.count)
        self.left = [number for number in numbers if number % FROZEN_EACH]
        self.left_to_freeze = [number for number in numbers if not number % FROZEN_EACH]
        self.spans = [0.5]  #: how long jobs lived that nobody ended, in seconds, the newest last
        self.lives = []
        self.submits = ThreadPoolExecutor(LANES + FROZEN_LANES)

    def live(self):
        """All jobs, from before their submit to their end."""
        with ThreadPoolExecutor(LANES + FROZEN_LANES) as pool, self.submits:
            lanes = [pool.submit(self.lane, self.left, self.lead) for _ in range(LANES)]
            lanes += [
                pool.submit(self.lane, self.left_to_freeze, self.lead_frozen)
                for _ in range(FROZEN_LANES)
            ]
            for lane in lanes:
                lane.result()
        return self.lives

    def lane(self, left, lead):
        while True:
            with self.lock:
                if not left:
                    return
                number = left.pop()
                wish = self.run.chance.choices(list(WISHES), WISHES.values())[0]
                point = self.run.chance.random()
            life = Life(Key("desk", "work", "", f"c{number}"), wish, left is self.left_to_freeze)
            self.lives.append(life)
            lead(life, point)

    def lead(self, life, point):
        submitted = self.submit(life)
        if point > 1 / AT_ONCE_EACH:
            time.sleep(point * 1.15 * share(self.spans[-50:], 0.6))
        self.wish(life)
        self.see_end(life, submitted)

    def submit(self, life):
        life.begun = time.monotonic()
        seconds = FROZEN_WORK if life.frozen else WORK
        return self.submits.submit(self.stack.broker.submit, "work", seconds, id=life.key.id)

    def lead_frozen(self, life, point):
        """Its worker is frozen while it runs: for so long that a guess stands, sometimes that it runs elsewhere."""
        budgets = self.stack.budgets
        submitted = self.submit(life)
        submitted.result()
        view = self.stack.broker.view
        record = until(
            lambda: (found := view.get(life.key)) and (found.holder or found.ended) and found
        )
        pids = [
            pid
            for seen in self.stack.broker.workers()
            if seen.name == record.worker
            for pid in family(seen.pid)
        ]
        for pid in pids:
            kill(pid, signal.SIGSTOP)
        try:
            time.sleep(point * 1.5 * (budgets.guess_ms + budgets.grace_ms) / 1000)
            self.wish(life)
        finally:
            for pid in pids:
                kill(pid, signal.SIGCONT)
        self.see_end(life, submitted)

    def wish(self, life):
        """Until the job is known: who cancels before the submit was answered has to say it again."""
        broker, force = self.stack.broker, life.wish.endswith("force")
        act = broker.remove if life.removes else broker.cancel
        while True:
            life.asked = time.monotonic()
            outcome = act(life.key, force=force)
            life.acknowledged = time.monotonic()
            if outcome.rule != "unknown":
                life.answer = outcome
                return
            life.unknown += 1

    def see_end(self, life, submitted):
        """By `wait`: what it tells must be what the others tell."""
        try:
            submitted.result()
            if life.removes and self.is_untouched(life):
                life.unknown += 1
                self.wish(life)
            record = self.stack.broker.wait(life.key, 60)
        except NotFound:
            record = None
        except Refused as refused:
            if refused.rule != "tombstoned" or not life.removes:
                raise
            record = None
        life.waited = record.state if record else "gone"
        if life.waited in ("completed", "failed"):
            self.spans.append((record.completed_at - record.created_at) / 1000)

    def is_untouched(self, life):
        """Removed before it was created: a removal takes no younger job away."""
        record = self.stack.broker.view.get(life.key)
        return record is not None and record.desired == "run"


def judge(stack, lives, *watchers):
    keys = [life.key for life in lives]
    removed = {life.key for life in lives if life.removes}
    kept = [key for key in keys if key not in removed]
    records = all_ended(stack, kept)
    until(lambda: not any(stack.broker.view.get_many(list(removed))))
    none_twice(stack)
    no_ghosts(stack, kept)
    in_order(stack.broker, "desk")
    lists_agree(stack, *watchers)
    nothing_left(stack)
    tell_what_they_met(stack, lives)
    begins = defaultdict(list)
    for effect in stack.effects.read():
        if effect.what == "begin":
            begins[effect.key].append(effect)
    late, thawed = [], []
    through = 0
    for life in lives:
        through += check_end(life, records.get(life.key))
        after = [one for one in begins[str(life.key)] if one.at > life.acknowledged]
        seconds = [stack.awake.between(life.acknowledged, one.at) for one in after]
        if life.frozen:
            thawed += [f"{life.was} {one:.2f} s" for one in seconds]
            continue
        assert not after or life.was == "running", (
            f"began {seconds} s after its end was told: {life}"
        )
        anew = [one for one in after if one.attempt != life.attempt]
        assert not anew, f"begun anew though its end was wished: {anew}, {life}"
        late += seconds
    assert max(late, default=0) < LATE_SECONDS_MAX, f"began {max(late)} s after the cancel"
    met = Counter(life.was for life in lives)
    unborn = sum(1 for life in lives if life.unknown)
    ends = Counter(life.waited for life in lives)
    on_its_way = sum(
        1
        for life in lives
        if life.was == "running"
        and all(one.at > life.acknowledged for one in begins[str(life.key)])
    )
    return {
        "met": dict(met.most_common()),
        "wishes": dict(Counter(life.wish for life in lives).most_common()),
        "ends": dict(ends.most_common()),
        "said before the submit was answered": unborn,
        "started, and no effect yet": on_its_way,
        "completed before its worker heard of it": through,
        "effects that began after the acknowledgement of a running job's": len(late),
        "the latest of them, s": round(max(late, default=0), 4),
        "of attempts that were frozen on their way to it": ", ".join(thawed) or 0,
    } | stack.awake.told()


def tell_what_they_met(stack, lives):
    """The log tells between which entries of its job a wish came."""
    of_job = {life.key.job: life for life in lives}
    for entry in stack.broker.log("desk").entries():
        life = of_job[entry.job]
        if entry.event == "submit":
            life.entries.clear()  # what was said before concerns it no more
        life.entries.append(entry)
    for life in lives:
        wished = [at for at, entry in enumerate(life.entries) if entry.event in WISHED and at]
        if life.entries[0].event != "submit":
            life.was = "unborn"
        elif not wished:
            life.was = "ended"
        else:
            met = life.entries[wished[0] - 1].record
            life.was, life.attempt = state_of(met), met.attempt
            life.after = life.entries[wished[0] :]
        if life.was in ("unborn", "queued", "placed"):
            on = [entry for entry in life.after if entry.rule in ("started", "placed")]
            assert not on, f"{life.key} was {life.was} when its {life.wish} came, and went on: {on}"


#: The events by which a user ends a job.
WISHED = ("intent", "remove")


def state_of(record):
    if record.ended:
        return "ended"
    if record.inferred:
        return "guess"
    return "placed" if record.state == "queued" and record.node else record.state


def check_end(life, record):
    """Whether it ended through its work although it was asked to end before: it was shorter than a beat."""
    told = f"{life}: {record}"
    if life.removes:
        assert record is None, told
        assert life.answer.outcome == "applied", told
        return False
    assert record.state == life.waited, told
    if life.answer.rule == "too_late":
        assert record.state in ("completed", "failed"), told
        assert life.was == "ended", told
        return False
    assert life.answer.rule == "desired", told
    if record.state == "cancelled":
        return False
    assert (life.wish, life.was) in (("cancel", "running"), ("cancel", "guess")), told
    return True
