"""What an engine is given: cheap to ask, and never in the way of the job."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from broker import Unavailable
from tests.workers.engine_suite import context
from workers.line import Line, Phase, Wish


def test_progress_is_told_now_and_then_and_its_end_always(monkeypatch):
    """Ten times in a second, of which each call takes a thousandth."""
    clock = SimpleNamespace(monotonic=itertools.count(0, 0.001).__next__)
    monkeypatch.setattr("workers.context.time", clock)
    ctx = context()
    for n in range(1000):
        ctx.progress(n / 1000)
    ctx.progress(1)
    assert 10 <= len(ctx.lane.fractions) <= 12
    assert ctx.lane.fractions[0] == 0
    assert ctx.lane.fractions[-1] == 1


def test_a_long_piece_of_output_is_cut_but_nothing_is_lost():
    ctx = context()
    text = "\U0001f600" * 40_000
    ctx.write(text)
    assert "".join(ctx.lane.chunks) == text
    assert all(len(chunk.encode()) <= 64 * 1024 for chunk in ctx.lane.chunks)


def test_what_is_no_text_is_replaced():
    ctx = context()
    ctx.write("a\ud800b")
    ctx.write(b"\xff")
    assert ctx.lane.chunks == ["a?b", "\ufffd"]


def test_a_lane_that_fails_does_not_slow_the_job_down(monkeypatch):
    monkeypatch.setattr("workers.context.QUIET_SECONDS", 600)
    ctx = context()
    asked = []

    def fail(chunk):
        asked.append(chunk)
        raise Unavailable("away")

    monkeypatch.setattr(ctx.lane, "write", fail)
    for _ in range(100):
        ctx.write("x")
    assert asked == ["x"]


def test_progress_must_be_a_number():
    with pytest.raises(ValueError):  # noqa: PT011 - Python's own
        context().progress("half")


def test_whether_it_saw_the_wish_is_remembered():
    wish = Line()
    ctx = context(lambda: wish.wish != Wish.RUN)
    assert not ctx.cancelled
    assert not ctx.saw_stop
    wish.ask(Wish.TIMEOUT)
    assert not ctx.saw_stop
    assert ctx.cancelled
    assert ctx.saw_stop


def test_the_first_wish_stands():
    line = Line()
    line.ask(Wish.TIMEOUT)
    line.ask(Wish.CANCEL)
    assert line.wish == Wish.TIMEOUT
    assert line.phase == Phase.FORKED
