"""What the source document on the trust store says: exactly one announcement for each change that was really kept.

Cases T (the store) and F (its files); those of who is who and who vouches for whom are in test_sources_members.py. The
same at every system call, under kill -9 and with a thousand calls at once: tests/store/test_trust*.py.

Not here at all: F2 (errors of another system that pass by themselves).
"""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from threading import Barrier

import pytest

from broker.errors import Invalid, Refused, Unavailable, Untrusted, Unwritable
from broker.rules.key import check_name
from broker.rules.trust import read_cards
from broker.rules.word import Endorsement
from broker.store.announce import Announcer, announcements
from broker.store.store import Store
from tests.nodes import NOW, Node
from tests.store.trusting import (
    ANN,
    BOB,
    CLEO,
    failing,
    files,
    opened,
    same_on_disk,
    state,
    unfinished,
)

THREADS = 16
UNSAFE = [
    "", ".", "..", "../x", "a/../../x", "..\\x", "/etc/x", "C:x", "\\\\host\\x", "a:b", "a\0b", "a\nb", "*", "A",
]  # fmt: skip


#: The two ways in which endorsements come.
BY = {
    "endorse": lambda trust, *words: trust.endorse("cleo", words),
    "pin": lambda trust, *words: trust.pin(replace(CLEO.card(), endorsements=words)),
}
by_each = pytest.mark.parametrize("add", BY.values(), ids=BY)


class TestAnnounced:
    def test_T1_each_change_is_announced_once(self, trust, heard):
        trust.pin(ANN.card())
        trust.rename("ann", "Ann's desk")
        trust.remove("ann")
        trust.pin(ANN.card())
        trust.forget("ann")
        assert heard.changes == [
            (change, "ann") for change in ("pinned", "renamed", "removed", "pinned", "forgotten")
        ]
        assert [told.persisted for told in heard] == [True] * 4 + [False]

    @by_each
    def test_T2_a_batch_of_old_new_and_repeated_words_is_one_write_and_one_announcement(
        self, trusting, heard, trust_folder, add
    ):
        first, second = ANN.of(CLEO), BOB.of(CLEO)
        add(trusting, first)
        heard.clear()
        assert add(trusting, first, second, second)
        assert trusting.get("cleo").endorsements == (first, second)
        assert heard.changes == [("endorsed", "cleo")]
        before = files(trust_folder)
        for words in ((), (first,), (second, first), (ANN.of(CLEO, NOW + 1),)):
            assert not add(trusting, *words)
        assert (files(trust_folder), len(heard)) == (before, 1)

    def test_T3_whoever_hears_it_sees_it_live_and_in_a_store_opened_anew(self, trust_folder):
        seen = []

        def look(told):
            fresh = opened(trust_folder)
            seen.append((trust.get(told.node) is None, fresh.get(told.node) is None))
            trust.rename(told.node, "called back")  # the locks are free

        trust = opened(trust_folder, on_change=look)
        trust.pin(ANN.card())
        assert trust.get("ann").name == "called back"
        trust.remove("ann")
        assert seen == [(False, False), (False, False), (True, True)]

    @by_each
    def test_T4_a_replacement_that_fails_changes_and_announces_nothing_and_its_retry_once(
        self, trusting, heard, trust_folder, add
    ):
        before, kept = state(trusting), sorted(files(trust_folder))
        word = ANN.of(CLEO)
        with failing(lambda _, step: step.startswith("replace") and "cleo" in step):
            for _ in range(2):
                with pytest.raises(Unwritable):
                    add(trusting, word)
        assert heard == []
        assert state(trusting) == before
        assert same_on_disk(trusting)
        assert sorted(files(trust_folder)) == kept
        assert add(trusting, word)
        assert heard.changes == [("endorsed", "cleo")]

    def test_T5_sixteen_threads_with_the_same_word_by_both_ways_are_one_change(
        self, trusting, heard
    ):
        for number in range(20):
            card = Node(f"peer-{number}").card()
            trusting.pin(card)
            heard.clear()
            word = Endorsement.signed(ANN, card, NOW)
            gate = Barrier(THREADS, timeout=60)

            def submit(thread, card=card, word=word, gate=gate):
                gate.wait()
                if thread % 2:
                    return trusting.endorse(card.node, [word])
                return trusting.pin(replace(card, endorsements=(word,)))

            with ThreadPoolExecutor(THREADS) as pool:
                assert sum(pool.map(submit, range(THREADS))) == 1
            assert trusting.get(card.node).endorsements == (word,)
            assert heard.changes == [("endorsed", card.node)]

    def test_T6_a_word_about_a_stranger_leaves_nothing_in_memory_or_on_disk(
        self, trusting, heard, trust_folder
    ):
        stranger = Node("stranger")
        before = state(trusting), files(trust_folder)
        assert not trusting.endorse("stranger", [ANN.of(stranger)])
        assert (state(trusting), files(trust_folder), heard) == (*before, [])

    def test_T7_what_is_no_news_is_silent(self, trusting, heard, trust_folder):
        before = files(trust_folder)
        assert not trusting.pin(ANN.card())
        assert not trusting.rename("ann", trusting.get("ann").name)
        for of in (trusting.remove, trusting.forget):
            assert not of("stranger")
        assert not trusting.admit([ANN.card()]).pins
        assert (files(trust_folder), heard) == (before, [])

    def test_T8_another_certificate_of_a_pinned_name_is_refused_and_the_first_kept(
        self, trusting, heard
    ):
        before = state(trusting)
        with pytest.raises(Refused) as refused:
            trusting.pin(Node("ann").at(2).card())
        assert refused.value.rule == "certificate_changed"
        assert (state(trusting), heard) == (before, [])

    def test_T9_a_lower_epoch_changes_nothing_and_a_higher_one_replaces(self, trusting, heard):
        trusting.pin(ANN.at(2).card())
        heard.clear()
        assert not trusting.pin(ANN.at(1).card())
        assert trusting.get("ann").epoch == 2
        assert heard == []
        assert trusting.pin(ANN.at(3).card())
        assert trusting.get("ann").epoch == 3
        assert heard.changes == [("pinned", "ann")]

    def test_forgetting_needs_no_disk_and_is_announced_as_what_it_is(
        self, trusting, heard, trust_folder
    ):
        with failing(lambda *_: True):
            assert trusting.forget("ann")
        assert trusting.get("ann") is None
        assert [(told.change, told.persisted) for told in heard] == [("forgotten", False)]
        assert trusting.pending()[-1] == heard[0]
        assert opened(trust_folder).get("ann") is not None

    @pytest.fixture
    def redis(self, redis_url, namespace):
        with closing(Store.from_url(redis_url, namespace)) as redis:
            yield redis

    def test_what_nobody_could_be_told_is_told_once_when_redis_is_back(self, trusting, redis):
        assert Announcer(redis, "me", trusting).drain() == 3
        trusting.rename("ann", "Ann's desk")
        away = Store.from_url("redis://127.0.0.1:1")
        with pytest.raises(Unavailable):
            Announcer(away, "me", trusting).drain()
        again = opened(trusting.folder)  # a restart in between
        assert [Announcer(redis, "me", again).drain() for _ in range(2)] == [1, 0]
        assert told(redis) == [
            ("pinned", "ann"), ("pinned", "bob"), ("pinned", "cleo"), ("renamed", "ann")
        ]  # fmt: skip

    def test_what_was_told_but_not_struck_out_is_not_told_again(self, trusting, redis):
        with failing(lambda _, step: step.startswith("replace")), pytest.raises(Unwritable):
            Announcer(redis, "me", trusting).drain()
        assert len(told(redis)) == 3
        again = opened(trusting.folder)
        assert len(again.pending()) == 3
        assert Announcer(redis, "me", again).drain() == 3
        assert (len(told(redis)), again.pending()) == (3, ())

    def test_five_hundred_pins_of_what_is_pinned_announce_nothing(self, trusting, heard, redis):
        """What made a fleet of nine announce five times a second, with no file touched."""
        Announcer(redis, "me", trusting).drain()
        for number in range(500):
            card = (ANN, BOB, CLEO)[number % 3].card()
            assert not trusting.pin(card)
            assert not trusting.admit([card]).pins
        assert Announcer(redis, "me", trusting).drain() == 0
        assert (len(told(redis)), heard) == (3, [])


def told(redis):
    return [(one.change, one.node) for one in announcements(redis, "me")]


class TestNames:
    @pytest.mark.parametrize("name", UNSAFE)
    def test_T10_a_name_that_is_no_safe_file_is_refused_and_touches_none(
        self, trusting, heard, trust_folder, name
    ):
        neighbour = trust_folder.parent / "x.json"
        neighbour.write_text("untouched")
        before = files(trust_folder.parent)
        card = replace(ANN.card(), node=name)
        for change in (
            lambda: trusting.pin(card),
            lambda: trusting.admit([card]).pins,
            lambda: trusting.endorse(name, [ANN.of(BOB)]),
            lambda: trusting.rename(name, "other"),
            lambda: trusting.remove(name),
            lambda: trusting.forget(name),
        ):
            with suppress(Invalid, Refused, Untrusted):
                assert not change()
        assert (files(trust_folder.parent), heard) == (before, [])
        with pytest.raises(Untrusted):
            read_cards(json.dumps(ANN.card().to_json() | {"node": name}))

    @pytest.mark.parametrize("name", [".json", "..json", "A.json", "a b.json", "ann.json.json"])
    def test_T10_nor_is_a_file_of_such_a_name_taken_for_a_peer(self, trusting, trust_folder, name):
        (trust_folder / "peers" / name).write_bytes(
            (trust_folder / "peers" / "ann.json").read_bytes()
        )
        assert set(opened(trust_folder).pins) == {"ann", "bob", "cleo"}

    def test_T11_an_odd_but_safe_name_is_a_peer_like_any_other(self, trust, trust_folder):
        name = check_name("node", "peer.name-1")
        trust.pin(Node(name).card())
        assert set(opened(trust_folder).pins) == {name}
        assert [trust.remove(name) for _ in range(2)] == [True, False]
        assert dict(opened(trust_folder).pins) == {}

    @pytest.mark.parametrize(
        "spoil",
        [
            "another name",
            "another node inside",
            "another certificate",
            "cut",
            "no json",
            "too large",
        ],
    )
    def test_T12_one_bad_file_is_passed_over_and_blocks_no_other(
        self, trusting, trust_folder, caplog, spoil
    ):
        ann = trust_folder / "peers" / "ann.json"
        said = json.loads(ann.read_bytes())
        if spoil == "another name":
            ann.rename(ann.with_name("dora.json"))
        elif spoil == "another node inside":
            said["pin"]["node"] = "dora"
            ann.write_text(json.dumps(said))
        elif spoil == "another certificate":
            said["pin"]["certificate"] = Node("ann").card().certificate_pem
            ann.write_text(json.dumps(said))
        else:
            data = {
                "cut": ann.read_bytes()[:-9],
                "no json": b"\xff\x00",
                "too large": b" " * 20_000,
            }
            ann.write_bytes(data[spoil])
        assert set(opened(trust_folder).pins) == {"bob", "cleo"}
        assert "passed over" in caplog.text

    def test_T13_what_is_handed_out_cannot_change_what_is_held(self, trusting):
        before = state(trusting)
        pin = trusting.get("ann")
        with pytest.raises(dataclasses.FrozenInstanceError):
            pin.name = "other"
        with pytest.raises(TypeError):
            trusting.pins["mallory"] = pin
        with pytest.raises(TypeError):
            del trusting.pins["ann"]
        assert isinstance(pin.endorsements, tuple)
        pin.to_json()["endorsements"].append("other")
        assert state(trusting) == before

    @pytest.mark.parametrize(
        "change",
        [
            lambda trust: trust.rename("ann", "other"),
            lambda trust: trust.endorse("ann", [BOB.of(ANN)]),
            lambda trust: trust.remove("ann"),
            lambda trust: trust.pin(Node("dora").card()),
        ],
        ids=["rename", "endorse", "remove", "pin"],
    )
    def test_T14_where_nothing_can_be_written_the_error_is_told_and_nothing_changes(
        self, trusting, heard, change
    ):
        before = state(trusting)
        with failing(lambda _, step: step.startswith("open")), pytest.raises(Unwritable):
            change(trusting)
        assert (state(trusting), heard) == (before, [])
        assert change(trusting)

    def test_T15_whom_a_trusted_member_vouches_for_is_no_path(self, trusting, trust_folder):
        identity = trust_folder / "identity.json"
        identity.write_text("untouched")
        dora = Node("dora")
        card = dora.card(ANN).to_json() | {"node": "../identity"}
        with pytest.raises(Untrusted):
            trusting.admit(read_cards(json.dumps([card])))
        with pytest.raises(Untrusted):
            Node("../identity").card()  # no certificate bears such a name
        assert identity.read_text() == "untouched"
        assert set(trusting.pins) == {"ann", "bob", "cleo"}


class TestFiles:
    def test_F1_a_file_is_made_and_replaced_whole(self, trust, trust_folder):
        trust.pin(ANN.card())
        made = files(trust_folder)["peers/ann.json"]
        trust.rename("ann", "Ann's desk")
        assert files(trust_folder)["peers/ann.json"] != made
        assert unfinished(trust_folder) == []
        assert {path.stat().st_mode & 0o777 for path in trust_folder.rglob("*.json")} == {0o600}
        assert {path.stat().st_mode & 0o777 for path in (trust_folder, trust_folder / "peers")} == {
            0o700
        }

    def test_F3_an_error_that_stays_is_met_once_and_told(self, trusting, trust_folder):
        met = []

        def is_replace(_, step):
            if step.startswith("replace"):
                met.append(step)
            return bool(met) and met[-1] == step

        with failing(is_replace), pytest.raises(Unwritable, match=r"outbox\.json"):
            trusting.rename("ann", "other")
        assert len(met) == 1
        assert unfinished(trust_folder) == []
