"""Workers that can be told to die at a point of a job's life: named with `--import`, it puts the points in.

Whoever imports it has them in its own workers from then on: no process but a worker may.
"""

from __future__ import annotations

from tests.chaos.dying import pass_by
from workers import run
from workers.attempt import Attempt
from workers.notes import NotingWorker
from workers.worker import Worker


def _named(job):
    return (str(job.names.key), job.names.attempt) if job.names else ("", 0)


def _before(owner, name, point, named):
    """Let whoever calls this come by a point first."""
    done = getattr(owner, name)

    def passing(*args, **options):
        pass_by(point, *named(*args))
        return done(*args, **options)

    setattr(owner, name, passing)


def _after(owner, name, point, named):
    """Let whoever called this come by a point."""
    done = getattr(owner, name)

    def passing(*args, **options):
        found = done(*args, **options)
        if found is not False:  # a start that was refused
            pass_by(point, *named(*args))
        return found

    setattr(owner, name, passing)


def _of_attempt(attempt, *_):
    return str(attempt.key), attempt._names.attempt


def _of_job(_, job, *__):
    return _named(job)


def _of_horse(horse, *_):
    return str(horse.holder.key), horse.holder.attempt


_before(Worker, "execute_job", "taken", _of_job)
_after(Attempt, "start", "started", _of_attempt)
_after(Worker, "fork_work_horse", "forked", _of_job)
_before(Worker, "main_work_horse", "ridden", _of_job)
_before(run, "_say", "finishing", _of_horse)
_after(run, "_say", "finished", _of_horse)
_before(Attempt, "close", "closing", _of_attempt)
_before(NotingWorker, "forget", "forgetting", _of_job)
