"""`broker.Trust`: what a program, and the command line on its behalf, may ask of a node's trust."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker import Invalid, Misconfigured, NotFound, Refused, Settings, Trust, Untrusted, settings
from broker.rules.word import Endorsement
from broker.store.identity import Identity
from broker.trust import read_card
from tests.system.command import Command
from tests.system.peers import Peer

YEAR_MS = 366 * 86_400_000


@pytest.fixture
def config(tmp_path: Path, redis_url: str, namespace: str) -> Settings:
    return settings(
        trust_dir=tmp_path / "desk", node="desk", redis_url=redis_url, namespace=namespace
    )


@pytest.fixture
def trust(config: Settings) -> Trust:
    return Trust.init(config)[0]


@pytest.fixture
def ann(tmp_path: Path) -> Identity:
    return Identity.create(tmp_path / "ann", "ann", now())


@pytest.fixture
def bob(tmp_path: Path) -> Identity:
    return Identity.create(tmp_path / "bob", "bob", now())


def now() -> int:
    return int(time.time() * 1000)


def vouched(card, *by):
    return replace(card, endorsements=tuple(Endorsement.signed(one, card, now()) for one in by))


def test_it_begins_once(config):
    with pytest.raises(Misconfigured, match="broker trust init"):
        Trust.open(config)
    first, is_new = Trust.init(config)
    again, is_new_again = Trust.init(config)
    assert (is_new, is_new_again) == (True, False)
    assert first.card("desk") == again.card("desk") == Trust.open(config).card("desk")


def test_it_is_of_one_node(config, trust):
    other = config.model_copy(update={"node": "other"})
    for begin in (Trust.open, Trust.init):
        with pytest.raises(Misconfigured, match="BROKER_NODE or BROKER_TRUST_DIR"):
            begin(other)


def test_a_wrong_epoch_makes_nothing(config):
    with pytest.raises(Invalid):
        Trust.init(config, epoch=0)
    assert not config.trust_dir.exists()


class TestPin:
    def test_does_without_the_words_of_strangers(self, trust, ann, bob):
        pinned, left_out = trust.pin(vouched(bob.card, ann))
        assert (pinned.change, pinned.pin.endorsements) == ("pinned", ())
        assert left_out == {"ann": "unknown_endorser"}

    def test_does_without_the_words_of_another_epoch(self, trust, ann, bob):
        trust.pin(replace(ann.card, epoch=2))
        assert trust.pin(vouched(bob.card, ann))[1] == {"ann": "stale_epoch"}

    def test_keeps_the_words_of_those_who_count(self, trust, ann, bob):
        trust.pin(ann.card)
        pinned, left_out = trust.pin(vouched(bob.card, ann))
        assert ([word.by for word in pinned.pin.endorsements], left_out) == (["ann"], {})

    def test_a_forged_word_spoils_the_card(self, trust, ann, bob):
        trust.pin(ann.card)
        card = vouched(bob.card, ann)
        forged = replace(card.endorsements[0], sig=vouched(bob.card, bob).endorsements[0].sig)
        with pytest.raises(Untrusted, match="not the signature"):
            trust.pin(replace(card, endorsements=(forged,)))
        assert trust.store.get("bob") is None

    def test_the_name_that_was_given_outlives_a_newer_epoch(self, trust, ann):
        trust.pin(ann.card, name="Ann's desk")
        pinned, _ = trust.pin(replace(ann.card, epoch=2))
        assert (pinned.change, pinned.pin.name) == ("pinned", "Ann's desk")
        assert trust.pin(ann.card)[0].change == ""

    def test_a_merge_is_told_from_a_pin(self, trust, ann, bob):
        trust.pin(ann.card)
        trust.pin(bob.card)
        assert trust.pin(vouched(bob.card, ann))[0].change == "endorsed"
        assert trust.pin(vouched(bob.card, ann))[0].change == ""
        assert [told.change for told in trust.store.pending()] == ["pinned", "pinned", "endorsed"]


class TestReadCard:
    def test_the_operators_epoch_leaves_out_what_was_said_of_another(self, ann, bob):
        card = vouched(bob.card, ann)
        raw = json.dumps(card.to_json()).encode()
        assert read_card(raw) == read_card(raw, epoch=1) == card
        assert read_card(raw, epoch=2) == replace(card, epoch=2, endorsements=())

    def test_a_certificate_is_a_card(self, ann):
        pem = ann.certificate.pem.encode()
        assert read_card(pem) == ann.card
        assert read_card(b"\n  " + pem, epoch=7) == replace(ann.card, epoch=7)


class TestAdmit:
    def test_each_card_is_one_of_three(self, trust, ann, bob, tmp_path):
        eve = Identity.create(tmp_path / "eve", "eve", now())
        trust.pin(ann.card)
        found = trust.admit([trust.card("desk"), ann.card, vouched(bob.card, ann), eve.card])
        assert [(one.pin.node, one.change) for one in found.pinned] == [("bob", "pinned")]
        assert (found.known, found.refused) == (("ann",), (("eve", "unvouched", ""),))

    def test_tells_whose_word_did_not_count_and_why(self, trust, ann, bob, tmp_path):
        eve = Identity.create(tmp_path / "eve", "eve", now())
        trust.pin(replace(ann.card, epoch=2))
        found = trust.admit([vouched(eve.card, ann, bob)])
        reasons = "ann: stale_epoch, bob: unknown_endorser"
        assert found.refused == (("eve", "unvouched", reasons),)

    def test_of_two_cards_of_one_node_one_can_be_refused(self, trust, ann, bob):
        trust.pin(ann.card)
        newer = replace(bob.card, epoch=2)
        found = trust.admit([vouched(bob.card, ann), newer])
        assert [(one.pin.node, one.pin.epoch) for one in found.pinned] == [("bob", 1)]
        assert found.refused == (("bob", "unvouched", ""),)


class TestRemove:
    def test_the_proof_of_another_is_no_news_where_it_is_gone(
        self, trust, ann, bob, config, tmp_path
    ):
        trust.pin(ann.card)
        trust.pin(bob.card)
        own, changed = trust.remove("bob")
        assert changed
        other = Trust.init(
            config.model_copy(update={"node": "ann", "trust_dir": tmp_path / "ann"})
        )[0]
        other.pin(bob.card)
        theirs, _ = other.remove("bob")
        assert trust.remove_by(theirs) is False
        assert trust.remove("bob") == (own, False)

    def test_unknown_ones(self, trust):
        with pytest.raises(NotFound):
            trust.remove("bob")
        with pytest.raises(Refused, match="itself"):
            trust.remove("desk")


class TestExpired:
    @pytest.fixture
    def old(self, command: Command, tmp_path: Path, config: Settings, ann) -> Peer:
        """A node whose own certificate has run out, and which trusts ann."""
        Identity.create(config.trust_dir, "desk", now() - 2 * YEAR_MS)
        peer = Peer(command, tmp_path, "desk")
        peer.ok("pin", ann.folder / "node.crt")
        return peer

    def test_is_shown(self, old):
        assert "expired" in old.ok("show").out.splitlines()[1]

    def test_is_told_by_who_asks_for_an_identity(self, old):
        ran = old.ok("init")
        assert "certificate has expired" in ran.err

    def test_comes_back_with_a_new_key_in_a_higher_epoch_and_still_trusts_whom_it_trusted(
        self, old, command, tmp_path
    ):
        """As the documentation says: its files are put away, and the peers remove it and pin it anew."""
        beta, cleo = (Peer(command, tmp_path, node).init() for node in ("beta", "cleo"))
        Identity.create(tmp_path / "before", "desk", now())
        before = tmp_path / "before" / "node.crt"  # what they pinned while it held
        cleo.pins(beta)
        for peer in (beta, cleo):
            peer.ok("pin", before)
        for name in ("identity.json", "node.key", "node.crt"):
            (old.folder / name).rename(tmp_path / name)
        new = old.file(old.ok("init", "--epoch", "2", "-o", "json").json)
        assert old.known() == ["ann"]
        assert beta("pin", new).code == 4
        proof = beta.file(beta.ok("remove", "desk").json)
        beta.ok("pin", new)
        cleo.ok("remove", "--proof", proof)
        cleo.ok("admit", beta.file(beta.ok("endorse", "desk").json))
        for peer in (beta, cleo):
            assert peer.card("desk")["certificate"] == old.card()["certificate"]

    def test_vouches_for_nobody(self, old):
        ran = old("endorse", "ann")
        assert (ran.code, ran.out, ran.err.count("\n")) == (8, "", 1)
        assert "expired" in ran.err

    def test_can_still_remove_but_proves_nothing(self, old):
        ran = old.ok("remove", "ann")
        assert (ran.out, ran.err.count("\n")) == ("", 1)
        assert "without a proof" in ran.err
        assert old.known() == []
        assert old.told() == [("pinned", "ann"), ("removed", "ann")]
