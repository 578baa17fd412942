"""What was found is mended also where the log goes on all the time, and it is read on once for all of it."""

from __future__ import annotations

import pytest

from broker.rules.event import RemovePair, Report
from broker.store.meanwhile import Meanwhile
from broker.store.repair import Mender
from tests.store.readers import ORIGIN, key

TERM = 7


@pytest.fixture
def mender(shop):
    return Mender(shop.store)


def go_on(shop, count):
    for n in range(0, count, 100):
        shop.view.apply(
            [
                Report(key=key("busy"), created_at=shop.begun_at, state="running", seq=n + one, node=f"n{n + one}")
                for one in range(1, 1 + min(100, count - n))
            ]
        )  # fmt: skip


@pytest.mark.parametrize("count", [1_000, 1_001, 3_500])
def test_it_is_mended_however_long_the_log_went_on(shop, mender, count):
    shop.client.delete(shop.name("running"))
    [finding] = shop.audit()
    go_on(shop, count)
    assert mender.mend(finding, TERM)


def test_nor_is_it_mended_where_the_log_spoke_of_it_long_ago(shop, mender):
    shop.client.delete(shop.name("running"))
    [finding] = shop.audit()
    shop.say(RemovePair(origin=ORIGIN, id="running"))
    go_on(shop, 3_500)
    assert not mender.mend(finding, TERM)


def test_what_the_log_told_meanwhile_is_read_once_for_all_findings(shop, mender):
    """Redis would be held up by each of thousands; and those that it spoke of are no reason to begin anew."""
    shop.client.delete(shop.keys.live)
    found = shop.audit()
    shop.report("live", seq=1, node="n2")
    go_on(shop, 2_500)
    shop.client.config_resetstat()
    assert sum(mender.mend(finding, TERM) for finding in found) == len(found) - 1
    stats = shop.client.info("commandstats")
    # One for each 1,000 entries, one for each finding, and one in each repair.
    assert stats["cmdstat_xrange"]["calls"] == 2 + len(found) + len(found) - 1


@pytest.mark.parametrize("count", [1_000, 1_001])
def test_one_step_looks_through_no_more_than_a_thousand_entries(shop, mender, count, monkeypatch):
    shop.client.delete(shop.name("running"))
    [finding] = shop.audit()
    monkeypatch.setattr(Meanwhile, "silent_until", lambda self, job: self.begin)
    go_on(shop, count)
    assert mender.mend(finding, TERM) == (count == 1_000)
