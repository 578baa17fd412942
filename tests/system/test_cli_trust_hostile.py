"""What a hostile peer can send to `broker trust`: refused by name, nothing kept, nothing told, no traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as ec_key
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as rsa_key

from broker.rules.certificate import read_certificate
from broker.rules.word import Endorsement, Removal
from broker.store.identity import Identity
from tests.system.command import Command
from tests.system.forge import Forger
from tests.system.peers import Peer

NOW = 1_790_000_000_000


@pytest.fixture
def victim(command: Command, tmp_path: Path) -> Peer:
    """A node that trusts `alpha`, in its epoch 2, and nobody else."""
    alpha = Peer(command, tmp_path, "alpha").init("--epoch", 2)
    victim = Peer(command, tmp_path, "victim").init()
    victim.pins(alpha)
    return victim


@pytest.fixture
def alpha(victim: Peer) -> Identity:
    """The one that the victim trusts, with its key in our hand."""
    return Identity.load(victim.files / "alpha", NOW)


@pytest.fixture
def mallory() -> Forger:
    return Forger("mallory")


@pytest.fixture(autouse=True)
def unmoved(victim, broker, monkeypatch):
    """Whatever the test sent: every byte of the folder and of the stream is as before."""
    stream = broker.store.keys.trust("victim")

    def held():
        return victim.bytes(), broker.store.client.xrange(stream)

    before = held()
    yield
    assert held() == before
    assert len(before[1]) == 1


def refused(victim: Peer, verb: str, value: object, rule: str) -> None:
    words = ["remove", "--proof"] if verb == "remove" else [verb]
    ran = victim(*words, victim.file(value))
    assert (ran.code, ran.out, ran.err.count("\n")) == (8, "", 1), ran
    assert re.search(rf"\b{rule}\)|: {rule}[,)]", ran.err), ran.err


NAMES = (
    "", ".", "..", "*", "a*", "[a-z]", "?", "../victim", "a/b", "/etc/passwd", "a\\b", "a\nb", "a\r\n", "a\0b", "\0",
    "A", "-rf", "x" * 64, "x" * 10_000, "peers/alpha", "identity.json\0", "\u202eatciv", "é", "a b", "a:b", "{a}",
    "%2e",
)  # fmt: skip


class TestNames:
    @pytest.mark.parametrize("verb", ["pin", "admit"])
    def test_on_a_card(self, victim, mallory, verb):
        for name in NAMES:
            refused(victim, verb, mallory.card(node=name), "out_of_bounds")

    def test_on_a_proof(self, victim, alpha):
        for name in NAMES:
            refused(victim, "remove", proof(alpha, node=name), "out_of_bounds")

    @pytest.mark.parametrize("verb", ["show", "endorse", "remove", "announcements"])
    def test_on_the_command_line(self, victim, verb):
        for name in NAMES:
            ran = victim(verb, "--", name)
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), name

    def test_in_a_certificate(self, victim):
        for name in ("..", "../victim", "a/b", "*", "a\0b", "a\nb", "AAA", "é"):
            san = name if name.isascii() else "e"  # a URI has no other characters
            refused(victim, "pin", Forger(name).certificate(san=san), "name_mismatch")

    def test_two_of_them(self, victim, mallory):
        for pem in (mallory.certificate(cn="alpha"), mallory.certificate(san="alpha")):
            refused(victim, "pin", pem, "name_mismatch")
            refused(victim, "pin", mallory.card(certificate=pem), "name_mismatch")

    def test_a_node_that_is_pinned_already(self, victim):
        """Its name on another key: an operator's typing error, and nothing that anybody can vouch for."""
        card = Forger("alpha").card(epoch=9)
        ran = victim("pin", victim.file(card))
        assert (ran.code, ran.out) == (4, "")
        assert "certificate_changed" in ran.err
        refused(victim, "admit", card, "certificate_changed")

    def test_its_own(self, victim):
        card = Forger("victim").card()
        ran = victim("pin", victim.file(card))
        assert (ran.code, ran.out) == (4, "")
        assert "own_node" in ran.err


JSON = (
    (b"null", "null"),
    (b'{"node":', "malformed_json"),
    (b"{\xff\xfe}", "malformed_json"),
    (b'{"node":"a","node":"b"}', "duplicate_key"),
    (b'{"epoch":1.0}', "float"),
    (b'{"epoch":1e3}', "float"),
    (b'{"epoch":NaN}', "malformed_json"),
    (b'{"epoch":9007199254740992}', "big_integer"),
    (b'{"epoch":' + b"9" * 12_000 + b"}", "big_integer"),
    (b'{"a":' * 9 + b"1" + b"}" * 9, "too_deep"),
    (b"[" * 15_000, "too_deep"),
    (b'{"node":"\\ud800"}', "lone_surrogate"),
    (b"{}", "malformed_record"),
)


FIELDS = (
    ({"extra": 1}, "malformed_record"),
    ({"node": 7}, "malformed_record"),
    ({"epoch": "1"}, "malformed_record"),
    ({"epoch": True}, "malformed_record"),
    ({"epoch": 0}, "out_of_bounds"),
    ({"epoch": -1}, "out_of_bounds"),
    ({"name": "x" * 129}, "out_of_bounds"),
    ({"name": ["x"]}, "malformed_record"),
    ({"certificate": 1}, "malformed_record"),
    ({"certificate": "x" * 5_000}, "too_large"),
    ({"certificate": "hello"}, "malformed_certificate"),
    ({"endorsements": {}}, "malformed_record"),
    ({"endorsements": [{}]}, "malformed_record"),
    ({"endorsements": [7] * 17}, "too_many_endorsements"),
)


class TestJson:
    @pytest.mark.parametrize("verb", ["pin", "admit", "remove"])
    def test_that_is_none(self, victim, verb):
        for raw, rule in JSON:
            is_json = verb != "pin" or raw[:1] in b"{["  # else it is taken for a certificate
            refused(victim, verb, raw, rule if is_json else "malformed_certificate")

    def test_that_is_of_another_kind(self, victim):
        for verb, rule in (("admit", "malformed_record"), ("remove", "malformed_json")):
            refused(victim, verb, b'"card"', rule)
            refused(victim, verb, b"[1]", rule)

    @pytest.mark.parametrize("verb", ["pin", "remove"])
    def test_that_is_too_long(self, victim, verb):
        refused(victim, verb, b'{"node":"' + b"a" * 2**20 + b'"}', "too_large")

    def test_that_is_much_too_long(self, victim):
        refused(victim, "admit", b"[" + b" " * 2**24 + b"]", "too_large")

    def test_of_too_many_cards(self, victim):
        refused(victim, "admit", [{}] * 1_025, "too_large")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    def test_of_a_card_with_a_wrong_field(self, victim, mallory, verb):
        for fields, rule in FIELDS:
            refused(victim, verb, mallory.card(**fields), rule)

    def test_one_wrong_card_spoils_the_array(self, victim, mallory, alpha):
        good = vouched(mallory.card(), alpha)
        refused(victim, "admit", [good, mallory.card(epoch=0)], "out_of_bounds")


class TestCertificates:
    @pytest.mark.parametrize("verb", ["pem", "pin", "admit"])
    @pytest.mark.parametrize(
        "wrong,rule",
        [
            ({"ca": True}, "is_ca"),
            ({"ca": None}, "is_ca"),
            ({"critical": False}, "is_ca"),
            ({"days": (-30, -1)}, "expired"),
            ({"days": (1, 30)}, "not_yet_valid"),
            ({"signer": Forger().key}, "bad_signature"),
        ],
    )
    def test_that_are_wrong(self, victim, mallory, alpha, verb, wrong, rule):
        pem = mallory.certificate(**wrong)
        if verb == "pem":
            refused(victim, "pin", pem, rule)
            return
        card = mallory.card(certificate=pem)
        if rule in ("expired", "not_yet_valid"):  # it can be read, so it can be vouched for
            card = vouched(card, alpha)
        refused(victim, verb, card, rule)

    def test_of_another_kind_of_key(self, victim):
        for key in (rsa_key(65537, 2048), ec_key(SECP256R1())):
            pem = Forger("mallory", key).certificate()
            refused(victim, "pin", pem, "not_ed25519")
            refused(victim, "admit", Forger().card(certificate=pem), "not_ed25519")

    def test_that_are_two_or_none(self, victim, mallory):
        pem = mallory.certificate()
        for text in (
            pem + pem,
            pem[: len(pem) // 2],
            pem.replace("CERTIFICATE", "PRIVATE KEY"),
            "x",
        ):
            refused(victim, "pin", text, "malformed_certificate")

    def test_a_key_of_ours_is_not_repeated(self, victim):
        key = (victim.files / "alpha" / "node.key").read_text()
        ran = victim("pin", victim.files / "alpha" / "node.key")
        assert ran.code == 8
        assert key.splitlines()[1] not in ran.err


def vouched(card: dict, by: Identity, tag: str = Endorsement.TAG, **wrong: object) -> dict:
    """The card with an endorsement that is right but for what is wrong; signed over what it says."""
    body = {
        "by": by.node,
        "by_epoch": by.epoch,
        "node": card["node"],
        "epoch": card["epoch"],
        "fingerprint": read_certificate(card["certificate"]).fingerprint,
        "issued_at": NOW,
    } | wrong
    return card | {"endorsements": [body | {"sig": by.sign(tag, body)}]}


class TestEndorsements:
    @pytest.mark.parametrize("verb", ["pin", "admit"])
    def test_for_another_certificate(self, victim, mallory, alpha, verb):
        """What was said of the honest certificate, on a card with another one of the same name."""
        card = vouched(mallory.card(), alpha) | {"certificate": Forger("mallory").certificate()}
        refused(victim, verb, card, "wrong_subject")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    @pytest.mark.parametrize(
        "wrong", [{"node": "other"}, {"epoch": 2}, {"fingerprint": f"sha256:{0:064x}"}]
    )
    def test_for_something_else(self, victim, mallory, alpha, verb, wrong):
        refused(victim, verb, vouched(mallory.card(), alpha, **wrong), "wrong_subject")

    @pytest.mark.parametrize("epoch", [1, 3])
    def test_of_another_epoch_of_who_gives_it(self, victim, mallory, alpha, epoch):
        refused(victim, "admit", vouched(mallory.card(), alpha, by_epoch=epoch), "stale_epoch")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    def test_with_a_signature_of_somebody_else(self, victim, mallory, alpha, verb):
        card = vouched(mallory.card(), alpha)
        [endorsement] = card["endorsements"]
        body = {name: value for name, value in endorsement.items() if name != "sig"}
        forged = card | {"endorsements": [mallory.sign(Endorsement.TAG, body)]}
        refused(victim, verb, forged, "bad_signature")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    @pytest.mark.parametrize("field,value", [("issued_at", NOW + 1), ("issued_at", 0)])
    def test_that_were_changed_afterwards(self, victim, mallory, alpha, verb, field, value):
        card = vouched(mallory.card(), alpha)
        card["endorsements"][0][field] = value
        refused(victim, verb, card, "bad_signature")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    @pytest.mark.parametrize("tag", [Removal.TAG, "", "fleet-broker.endorsement.v2"])
    def test_with_the_signature_of_another_kind_of_record(self, victim, mallory, alpha, verb, tag):
        refused(victim, verb, vouched(mallory.card(), alpha, tag), "bad_signature")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    def test_by_itself(self, victim, mallory, verb):
        card = mallory.card()
        body = {
            "by": "mallory", "by_epoch": 1, "node": "mallory", "epoch": 1,
            "fingerprint": read_certificate(card["certificate"]).fingerprint, "issued_at": NOW,
        }  # fmt: skip
        card["endorsements"] = [mallory.sign(Endorsement.TAG, body)]
        refused(victim, verb, card, "self_endorsement")

    def test_by_two_who_vouch_for_each_other(self, victim, mallory):
        eve = Forger("eve")
        cards = []
        for by, whom in ((mallory, eve), (eve, mallory)):
            card = whom.card()
            body = {
                "by": by.node, "by_epoch": 1, "node": whom.node, "epoch": 1,
                "fingerprint": read_certificate(card["certificate"]).fingerprint, "issued_at": NOW,
            }  # fmt: skip
            cards.append(card | {"endorsements": [by.sign(Endorsement.TAG, body)]})
        refused(victim, "admit", cards, "unknown_endorser")

    @pytest.mark.parametrize("verb", ["pin", "admit"])
    def test_with_a_signature_that_is_none(self, victim, mallory, alpha, verb):
        card = vouched(mallory.card(), alpha)

        def sign(sig):
            card["endorsements"][0]["sig"] = sig
            return card

        for sig in ("", "A" * 85, "+" * 86, "A" * 86 + "==", "é" * 86, "A" * 85 + "B"):
            refused(victim, verb, sign(sig), "bad_encoding")
        for sig in ("A" * 84, "A" * 88):
            refused(victim, verb, sign(sig), "out_of_bounds")
        refused(victim, verb, sign("A" * 86), "bad_signature")

    def test_by_nobody(self, victim, mallory):
        refused(victim, "admit", mallory.card(), "unvouched")

    def test_in_the_form_of_a_listing_of_somebody_else(self, victim, mallory, alpha):
        """The wrong ones are named, each, and no terminal is steered by what they are called."""
        cards = [mallory.card(name="\x1b[2J\u202e"), Forger("eve").card(name="\x9b31m")]
        ran = victim("admit", victim.file(cards))
        assert ran.code == 8
        assert "mallory" in ran.err
        assert "eve" in ran.err
        assert not set(ran.out + ran.err) & set("\x1b\x9b\u202e")

    def test_by_the_dozen(self, victim, mallory):
        """The line stays short; as json, each is answered."""
        cards = [mallory.card(epoch=epoch) for epoch in range(1, 41)]
        ran = victim("admit", victim.file(cards), "-o", "json")
        assert (ran.code, ran.err.count("\n")) == (8, 1)
        assert "40 are not admitted in all" in ran.err
        assert len(ran.err) < 1_000
        assert [(one["node"], one["outcome"], one["rule"]) for one in ran.json] == [
            ("mallory", "refused", "unvouched")
        ] * 40


def proof(signer: Identity, tag: str = Removal.TAG, **wrong: object) -> dict:
    """A removal of alpha's epoch 2 by alpha itself, right but for what is wrong; signed over what it says."""
    body = {"node": "alpha", "epoch": 2, "by": "alpha", "by_epoch": 2, "removed_at": NOW} | wrong
    return body | {"sig": signer.sign(tag, body)}


class TestRemovals:
    @pytest.mark.parametrize(
        "wrong,rule",
        [
            ({"epoch": 1}, "other_epoch"),
            ({"epoch": 3}, "other_epoch"),
            ({"epoch": 2**53 - 1}, "other_epoch"),
            ({"epoch": 2**53}, "big_integer"),
            ({"by_epoch": 1}, "stale_epoch"),
            ({"by": "mallory"}, "unknown_endorser"),
            ({"node": "mallory"}, "not_pinned"),
        ],
    )
    def test_that_say_something_else(self, victim, alpha, wrong, rule):
        said = proof(alpha) | wrong if rule == "big_integer" else proof(alpha, **wrong)
        refused(victim, "remove", said, rule)

    def test_of_the_node_itself(self, victim, alpha):
        ran = victim("remove", "--proof", victim.file(proof(alpha, node="victim", epoch=1)))
        assert (ran.code, ran.out) == (4, "")
        assert "own_node" in ran.err

    @pytest.mark.parametrize("by", ["alpha", "victim"])
    def test_with_a_signature_of_somebody_else(self, victim, mallory, by):
        body = {"node": "alpha", "epoch": 2, "by": by, "by_epoch": 2 if by == "alpha" else 1}
        forged = mallory.sign(Removal.TAG, body | {"removed_at": NOW})
        refused(victim, "remove", forged, "bad_signature")

    @pytest.mark.parametrize("tag", [Endorsement.TAG, "", "fleet-broker.removal.v2"])
    def test_with_the_signature_of_another_kind_of_record(self, victim, alpha, tag):
        refused(victim, "remove", proof(alpha, tag), "bad_signature")

    @pytest.mark.parametrize("field,value", [("removed_at", 0), ("removed_at", NOW + 1)])
    def test_that_were_changed_afterwards(self, victim, alpha, field, value):
        refused(victim, "remove", proof(alpha) | {field: value}, "bad_signature")

    def test_that_are_endorsements(self, victim, mallory, alpha):
        [endorsement] = vouched(mallory.card(), alpha)["endorsements"]
        refused(victim, "remove", endorsement, "malformed_record")
        refused(victim, "remove", [proof(alpha)], "malformed_json")

    def test_it_is_not_for_want_of_a_good_one(self, victim, alpha):
        """The very proof that the others here spoil is taken: by a node that trusts the same one."""
        other = Peer(victim._command, victim.files, "other").init()
        other.ok("pin", other.file(victim.card("alpha")))
        assert other.ok("remove", "--proof", other.file(json.dumps(proof(alpha)))).out
        assert other.known() == []
