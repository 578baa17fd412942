"""The files of the trust store: what is passed over, what is bounded, and who may read them."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from broker.errors import Refused, Untrusted, Unwritable
from broker.rules.admission import MEMBERS_MAX
from broker.rules.signed import canonical
from broker.rules.strict import RECORD_BYTES_MAX
from broker.rules.trust import ENDORSEMENTS_MAX, Card, Pin
from broker.store.peers import PEERS_MAX
from broker.store.trust import TrustStore
from tests.nodes import NOW, Node
from tests.store.trusting import ANN, BOB, CLEO, ME, failing, files, member, opened, same_on_disk

ZOE = member("zoe")


@pytest.fixture
def trust(tmp_path):
    return opened(tmp_path / "trust")


@pytest.mark.parametrize(
    "name",
    [".json", "..json", "A.json", "a:b.json", "*.json", "a\nb.json", "\udc80.json"],
    ids=repr,
)
def test_T10_a_file_of_an_unsafe_name_is_passed_over(trust, caplog, name):
    trust.pin(ANN.card())
    (trust.folder / "peers" / name).write_bytes((trust.folder / "peers/ann.json").read_bytes())
    assert set(opened(trust.folder).pins) == {"ann"}
    assert len(caplog.messages) == 1
    assert "\n" not in caplog.messages[0]


def with_pin(data: bytes, **fields) -> bytes:
    said = json.loads(data)
    return canonical({**said, "pin": {**said["pin"], **fields}})


BAD_FILES = {
    "another peer's file": lambda ann, bob: bob,
    "another node within": lambda ann, bob: with_pin(ann, node="bob"),
    "a swapped certificate": lambda ann, bob: with_pin(ann, certificate=BOB.certificate.pem),
    "another fingerprint": lambda ann, bob: with_pin(ann, fingerprint="sha256:" + "0" * 64),
    "an unknown field": lambda ann, bob: with_pin(ann, more=1),
    "too large a number": lambda ann, bob: ann.replace(b'"epoch":1', b'"epoch":9007199254740992'),
    "a float": lambda ann, bob: ann.replace(b'"epoch":1', b'"epoch":1.0'),
    "a duplicate key": lambda ann, bob: ann.replace(b'"epoch":1', b'"epoch":2,"epoch":1'),
    "no number": lambda ann, bob: ann.replace(b'"gen":1,', b""),
    "number zero": lambda ann, bob: ann.replace(b'"gen":1,', b'"gen":0,'),
    "neither pin nor removal": lambda ann, bob: ann.replace(b'"pin":', b'"pan":'),
    "both": lambda ann, bob: ann.replace(b'"pin":', b'"removal":{},"pin":'),
    "half of it": lambda ann, bob: ann[: len(ann) // 2],
    "nothing": lambda ann, bob: b"",
    "no text": lambda ann, bob: b"\xff\xfe",
    "deep nesting": lambda ann, bob: b"[" * 10_000,
    "more than is kept": lambda ann, bob: ann + b" " * RECORD_BYTES_MAX,
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_T12_one_bad_file_is_passed_over_with_a_warning_and_the_others_load(trust, caplog, kind):
    trust.pin(ANN.card())
    trust.pin(BOB.card())
    path = trust.folder / "peers/ann.json"
    ann, bob = path.read_bytes(), path.with_name("bob.json").read_bytes()
    path.write_bytes(BAD_FILES[kind](ann, bob))
    assert path.read_bytes() != ann
    fresh = opened(trust.folder)
    assert set(fresh.pins) == {"bob"}
    assert fresh.removals == {}
    assert ["'ann.json' is passed over" in message for message in caplog.messages] == [True]
    # It can be pinned anew over what was bad.
    assert fresh.pin(ANN.card())
    assert set(opened(trust.folder).pins) == {"ann", "bob"}


@pytest.mark.parametrize(
    "field, value, rule",
    [
        ("node", "dan", "name_mismatch"),
        ("name", "n" * 129, "out_of_bounds"),
        ("epoch", 0, "out_of_bounds"),
        ("epoch", 2**53, "big_integer"),
    ],
)
def test_what_could_not_be_read_again_is_never_written(trust, field, value, rule):
    """A program of ours that makes a card by hand passes by the strict reading; the disk does not."""
    trust.pin(BOB.card())
    before = files(trust.folder)
    with pytest.raises(Untrusted) as refused:
        trust.pin(replace(ANN.card(), **{field: value}))
    assert refused.value.rule == rule
    assert files(trust.folder) == before
    assert set(trust.pins) == {"bob"}


def test_whose_file_is_bad_is_pinned_by_the_operator_alone_for_it_may_have_been_removed(trust):
    trust.pin(ANN.card())
    trust.pin(BOB.card())
    trust.remove("ann", ME.against(ANN))
    (trust.folder / "peers/ann.json").write_bytes(b"{")
    fresh = opened(trust.folder)
    found = fresh.admit([ANN.card(BOB), CLEO.card(BOB)])
    assert [pin.node for pin in found.pins] == ["cleo"]
    assert {card.node: rule for card, rule in found.refused.items()} == {"ann": "damaged"}
    assert fresh.pin(ANN.card())
    assert fresh.admit([ANN.card(BOB)]).refused == {}
    assert same_on_disk(fresh)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_T12_what_is_no_file_is_passed_over_and_nobody_waits(trust, caplog, kind):
    trust.pin(ANN.card())
    odd = trust.folder / "peers/bob.json"
    if kind == "link":
        odd.symlink_to(trust.folder / "peers/ann.json")
    elif kind == "folder":
        odd.mkdir()
    else:
        os.mkfifo(odd)
    assert set(opened(trust.folder).pins) == {"ann"}
    assert "'bob.json' is passed over" in caplog.text


# --- bounds --------------------------------------------------------------------------------------


def test_a_peer_has_at_most_16_endorsements(trust):
    vouchers = [member(f"voucher-{number}") for number in range(ENDORSEMENTS_MAX + 1)]
    for voucher in vouchers:
        trust.pin(voucher.card())
    trust.pin(ANN.card(*vouchers[:-1]))
    assert len(trust.get("ann").endorsements) == 16
    with pytest.raises(Refused) as refused:
        trust.endorse("ann", [vouchers[-1].of(ANN)])
    assert refused.value.rule == "too_many_endorsements"
    assert same_on_disk(trust)


def test_a_peer_with_every_part_at_its_bound_fits_its_file(trust):
    vouchers = [member(f"{number:x}".rjust(63, "v")) for number in range(ENDORSEMENTS_MAX)]
    for voucher in vouchers:
        trust.pin(voucher.card())
    wide = member("w" * 63)
    card = replace(wide.card(*vouchers), name="\N{PILE OF POO}" * 32)
    assert trust.pin(card)
    assert len((trust.folder / f"peers/{wide.node}.json").read_bytes()) <= RECORD_BYTES_MAX
    assert same_on_disk(trust)


def fill(folder, pins: int, removals: int) -> None:
    """Peers as they stand on disk after as many changes."""
    one = Node("filler")
    for number in range(pins + removals):
        node = f"filler-{number}"
        if number < pins:
            certificate = Node(node).certificate
            kept = {"pin": Pin.of(Card.of(certificate, 1), NOW).to_json()}
        else:
            kept = {"removal": replace(ME.against(one), node=node).to_json()}
        (folder / f"peers/{node}.json").write_bytes(canonical({"gen": number + 1, **kept}))


def test_no_more_than_1_024_members_are_pinned(trust):
    fill(trust.folder, pins=MEMBERS_MAX - 1, removals=0)
    full = opened(trust.folder)
    assert full.pin(ANN.card())
    with pytest.raises(Refused) as refused:
        full.pin(BOB.card())
    assert refused.value.rule == "too_many_members"
    assert len(full.pins) == MEMBERS_MAX
    assert full.remove("ann")
    assert full.pin(BOB.card())
    assert full.pending()[-1].gen > MEMBERS_MAX - 1


def test_proofs_and_pins_together_are_bounded_and_a_removal_never_waits_for_room(trust):
    fill(trust.folder, pins=1, removals=PEERS_MAX - 2)
    full = opened(trust.folder)
    assert full.pin(ANN.card())
    with pytest.raises(Refused) as refused:
        full.pin(BOB.card())
    assert refused.value.rule == "too_many_members"
    assert full.remove("ann", ME.against(ANN))
    assert full.pin(ANN.at(2).card())
    assert same_on_disk(full)


def test_more_files_than_are_kept_are_passed_over_and_nobody_comes_back_for_that(trust, caplog):
    trust.pin(ANN.card())
    fill(trust.folder, pins=0, removals=PEERS_MAX - 1)
    assert len(opened(trust.folder).removals) == PEERS_MAX - 1
    assert caplog.messages == []
    trust.pin(ZOE.card())
    trust.remove("zoe", ME.against(ZOE))
    full = opened(trust.folder)
    assert len(full.removals) == PEERS_MAX - 1
    assert f"all files after {PEERS_MAX} are passed over" in caplog.text
    card = ZOE.card(ANN)
    assert full.admit([card]).refused == {card: "damaged"}


def test_a_bad_file_takes_a_place_too_until_it_is_replaced(trust):
    fill(trust.folder, pins=0, removals=PEERS_MAX - 1)
    (trust.folder / "peers/ann.json").write_bytes(b"{")
    full = opened(trust.folder)
    with pytest.raises(Refused) as refused:
        full.pin(BOB.card())
    assert refused.value.rule == "too_many_members"
    assert full.pin(ANN.card())
    assert same_on_disk(full)


# --- folder and process ---------------------------------------------------------------------------


def test_everything_is_for_this_user_alone(trust):
    trust.pin(ANN.card())
    assert {path.stat().st_mode & 0o777 for path in trust.folder.rglob("*") if path.is_file()} == {
        0o600
    }
    assert {path.stat().st_mode & 0o777 for path in (trust.folder, trust.folder / "peers")} == {
        0o700
    }


def test_a_folder_that_cannot_be_written_to_is_read_all_the_same(trust, caplog):
    trust.pin(ANN.card())
    with failing(lambda _, step: step.startswith(("open lock", "write", "unlink"))):
        read_only = opened(trust.folder)
        assert read_only.match("ann", ANN.certificate.der)
        with pytest.raises(Unwritable):
            read_only.remove("ann")
        assert read_only.match("ann", ANN.certificate.der)
    assert "can only be read" in caplog.text


def test_a_store_without_an_identity_trusts_the_word_of_its_peers_alone(tmp_path):
    trust = TrustStore(tmp_path, clock=lambda: NOW)
    trust.pin(ANN.card())
    trust.pin(BOB.card(ANN))
    with pytest.raises(Untrusted) as refused:
        trust.endorse("bob", [ME.of(BOB)])
    assert refused.value.rule == "unknown_endorser"
