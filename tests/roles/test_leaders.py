"""Terms: they outlive what Redis forgets, and no write of a leader that was replaced is taken anywhere."""

from __future__ import annotations

import shutil

import pytest

from broker.roles.sweeper import Sweeper
from broker.rules.event import Place
from broker.store.lease import Lease
from broker.store.server import PrivateRedis
from broker.store.store import Store
from tests.roles.fleet import PATIENT, settle

ROLES = ("dispatcher", "janitor", "sweeper")
OLD, NEWBORN = "old", "newborn"
#: For so long nobody beats of whom a sweeper is to judge.
SILENT_MS = PATIENT.guess_ms + 1_000


def test_a_term_outlives_a_restart_of_redis(tmp_path, namespace):
    with PrivateRedis(tmp_path) as server:
        store = Store.from_url(server.url, namespace)
        lease = Lease(store, "sweeper", "a", 60_000)
        term = lease.hold()
        lease.release()
        store.close()
        server.stop()
        server.start()
        store = Store.from_url(server.url, namespace)
        assert int(store.client.get(store.keys.term("sweeper"))) == term
        assert Lease(store, "sweeper", "b", 60_000).hold() > term
        store.close()


def test_a_term_that_redis_lost_with_its_last_second_is_not_given_again(tmp_path, namespace):
    """The data folder as it was before that term was given."""
    kept = tmp_path / "kept"
    with PrivateRedis(tmp_path / "data") as server:
        store = Store.from_url(server.url, namespace)
        lease = Lease(store, "sweeper", "a", 60_000)
        first = lease.hold()
        lease.release()
        shutil.copytree(server.data_dir, kept)
        lost = Lease(store, "sweeper", "b", 60_000).hold()
        store.close()
    with PrivateRedis(kept) as server:
        store = Store.from_url(server.url, namespace)
        assert int(store.client.get(store.keys.term("sweeper"))) == first < lost
        assert Lease(store, "sweeper", "c", 60_000).hold() > lost
        store.close()


class Roles:
    """Each role with a write at hand, at an origin of one's choice."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.seconds = 0.0
        # The log's own times are Redis's: let none of them be later than what this clock says.
        fleet.clock.ahead_ms = 3_600_000
        self.made = []
        fleet.workers_of("node-a", count=2)

    def new(self, role):
        if role == "dispatcher":
            return self.fleet.dispatcher()
        if role == "janitor":
            return self.fleet.janitor(log_max=2)
        if role == "auditor":
            return self.fleet.auditor()
        store = Store.from_url(self.fleet.store.url, self.fleet.store.keys.namespace)
        store.clock = self.fleet.clock
        self.made.append(Sweeper(store, budgets=PATIENT, fleet_ms=0, here=lambda: self.seconds))
        return self.made[-1]

    def close(self):
        for sweeper in self.made:
            sweeper.close()
            sweeper._store.close()

    def give_work(self, role, origin):
        """What its next turn writes about; gives what would be seen of that."""
        fleet = self.fleet
        if role == "janitor":
            fleet.report_many(range(5), origin=origin)
            return lambda: fleet.log(origin)
        silent_ms = SILENT_MS if role == "sweeper" else 0
        fleet.clock.ahead_ms -= silent_ms
        key = fleet.submit(7, origin=origin)
        if role == "sweeper":
            fleet.say(Place(key=key, node="node-a", rev=fleet.view.get(key).rev, term=1))
            fleet.start(key)
        fleet.clock.ahead_ms += silent_ms
        fleet.beat()
        return lambda: fleet.view.get(key)

    def silence(self):
        """Long enough for a sweeper to have listened."""
        self.fleet.clock.ahead_ms += SILENT_MS
        self.seconds += SILENT_MS / 1000


@pytest.fixture
def roles(fleet):
    made = Roles(fleet)
    yield made
    made.close()


def lead_now(fleet, role, leader):
    """The lease of whoever leads ran out unnoticed, and this one took it."""
    fleet.store.client.delete(fleet.store.keys.leader(role))
    leader._lead.doubt()
    leader.step()
    assert leader._lead.term


def look_at_once(leader):
    """Watchers look for new origins once a second."""
    office = getattr(leader, "_office", None)
    if watcher := office._watcher if office else getattr(leader, "_watcher", None):
        watcher._look_at = 0.0


@pytest.mark.parametrize("role", ROLES)
def test_each_role_does_its_work_at_an_origin_that_came_later(fleet, roles, role):
    """So that what is refused below is refused for its term alone."""
    leader = roles.new(role)
    settle(leader)
    roles.silence()
    look = roles.give_work(role, NEWBORN)
    before = look()
    look_at_once(leader)
    leader.step()
    leader.step()
    assert look() != before


@pytest.mark.parametrize("role", ROLES)
def test_who_was_frozen_after_it_held_the_lead_writes_nothing_at_an_origin_born_since(
    fleet, roles, role, monkeypatch, caplog
):
    """No later leader has been there, so nothing there tells of one."""
    fleet.report(1, origin=OLD)
    frozen = roles.new(role)
    settle(frozen)
    roles.silence()
    hold = frozen._lead.hold
    looks = []

    def hold_and_freeze():
        term = hold()
        monkeypatch.setattr(frozen._lead, "hold", hold)
        lead_now(fleet, role, roles.new(role))
        looks.append(roles.give_work(role, NEWBORN))
        looks.append(looks[0]())
        look_at_once(frozen)
        return term

    monkeypatch.setattr(frozen._lead, "hold", hold_and_freeze)
    frozen.step()
    look, before = looks
    assert look() == before
    assert f"another {role} leads now" in caplog.text
    assert not frozen._lead.term


@pytest.mark.parametrize("role", [*ROLES, "auditor"])
def test_who_leads_says_so_once_and_who_lost_the_lead_too(fleet, roles, role, caplog):
    """It finds so where it asks: the lease ran out while Redis did not answer, say."""
    caplog.set_level("INFO")
    leader, heir = roles.new(role), roles.new(role)
    settle(leader)
    term = leader._lead.term
    for _ in range(2):
        heir.step()
    assert f"leads as {role}, term {term}" in caplog.text
    assert caplog.text.count(f"leads as {role}") == 1
    assert "leads now" not in caplog.text
    lead_now(fleet, role, heir)
    for _ in range(3):
        leader._lead.doubt()
        leader.step()
    assert caplog.text.count(f"another {role} leads now: this one stands by") == 1
    assert caplog.text.count(f"leads as {role}") == 2
