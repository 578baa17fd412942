"""What every engine must do, whatever it runs. A module of tests calls `suite(...)` with its engine's ways."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from workers.context import Context
from workers.engine import Engine, Permanent, Stopped


class Lane:
    """Keeps what an engine tells."""

    def __init__(self):
        self.fractions, self.chunks = [], []

    def progress(self, fraction):
        self.fractions.append(fraction)

    def write(self, chunk):
        self.chunks.append(chunk)


@dataclass
class Ways:
    """One engine in the situations of the suite, each with a payload that brings it about."""

    works: tuple[Engine, Any]
    fails: tuple[Engine, Any]
    fails_for_good: tuple[Engine, Any]
    speaks: tuple[Engine, Any, str]  #: and what it then writes to the lane
    runs_until_stopped: tuple[Engine, Any]


def context(stop: Callable[[], bool] = lambda: False) -> Context:
    return Context(lane=Lane(), stop=stop, key="home/any//1")


class EngineSuite:
    """Subclass it, and give `ways`."""

    @pytest.fixture
    def ways(self) -> Ways:
        raise NotImplementedError

    def test_what_it_returns_is_json(self, ways):
        engine, payload = ways.works
        json.dumps(engine.run(context(), payload), allow_nan=False)

    def test_it_runs_one_job_after_another(self, ways):
        engine, payload = ways.works
        assert engine.run(context(), payload) == engine.run(context(), payload)

    def test_a_failure_is_raised_and_may_be_tried_again(self, ways):
        engine, payload = ways.fails
        with pytest.raises(Exception) as raised:  # noqa: PT011 - any, but not these two
            engine.run(context(), payload)
        assert not isinstance(raised.value, Permanent | Stopped)

    def test_a_failure_for_good_is_permanent(self, ways):
        engine, payload = ways.fails_for_good
        with pytest.raises(Permanent) as raised:
            engine.run(context(), payload)
        assert str(raised.value)

    def test_output_goes_to_the_lane(self, ways):
        engine, payload, said = ways.speaks
        ctx = context()
        engine.run(ctx, payload)
        assert "".join(ctx.lane.chunks) == said

    def test_it_ends_soon_after_the_wish_to_stop(self, ways):
        engine, payload = ways.runs_until_stopped
        looks = itertools.count(1)
        ctx = context(lambda: next(looks) >= 3)
        began_at = time.monotonic()
        with contextlib.suppress(Stopped):
            engine.run(ctx, payload)
        assert ctx.saw_stop
        # Who does not stop runs for ten minutes, or for ever.
        assert time.monotonic() - began_at < 60
