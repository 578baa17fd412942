"""A lag is told while it grows, at most once a minute."""

from __future__ import annotations

import pytest

from broker.rules.lag import LagWatch

SECOND, MINUTE = 1_000, 60_000


def told(lag_at, seconds):
    """The moments, in seconds, at which a watch that looks each second says that the lag grew."""
    watch = LagWatch()
    return [at for at in range(seconds) if watch.grew(at * SECOND, lag_at(at))]


def test_a_lag_that_grows_is_told_once_a_minute():
    assert told(lambda at: at * SECOND, 200) == [60, 120, 180]


def test_it_is_told_by_how_much():
    watch = LagWatch()
    watch.grew(0, 5_000)
    assert watch.grew(MINUTE, 45_000) == 40_000


@pytest.mark.parametrize("lag_ms", [0, 500, 3_600_000])
def test_a_lag_that_stays_is_not_told_however_large_it_is(lag_ms):
    assert told(lambda at: lag_ms, 300) == []


def test_one_that_only_breathes_is_not_told():
    assert told(lambda at: 5_000 + 700 * (at % 2), 300) == []


def test_one_that_shrinks_is_not_told():
    assert told(lambda at: 400_000 - at * SECOND, 300) == []


def test_it_is_told_again_when_it_grows_again():
    def lag(at):
        return min(at, 130) * SECOND if at < 300 else (at - 170) * SECOND

    moments = told(lag, 500)
    assert [at for at in moments if 181 <= at <= 300] == []
    assert moments[:2] == [60, 120]
    assert [at for at in moments if at > 300]


def test_who_has_caught_up_begins_anew():
    assert told(lambda at: 0 if at % 50 == 0 else at * SECOND, 300) == []
