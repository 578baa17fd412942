"""`broker trust`: whom a node trusts, what it hands to others, and what it tells of that."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.system.command import Command
from tests.system.peers import Peer


@pytest.fixture
def alpha(command: Command, tmp_path: Path) -> Peer:
    return Peer(command, tmp_path, "alpha").init()


@pytest.fixture
def beta(command: Command, tmp_path: Path) -> Peer:
    return Peer(command, tmp_path, "beta").init()


@pytest.fixture
def gamma(command: Command, tmp_path: Path) -> Peer:
    return Peer(command, tmp_path, "gamma").init()


class TestInit:
    def test_makes_an_identity_that_only_its_user_can_read(self, command, tmp_path):
        alpha = Peer(command, tmp_path, "alpha")
        ran = alpha.ok("init")
        assert "alpha" in ran.out
        assert "sha256:" in ran.out
        assert stat.S_IMODE(alpha.folder.stat().st_mode) == 0o700
        modes = {
            stat.S_IMODE(path.stat().st_mode) for path in alpha.folder.iterdir() if path.is_file()
        }
        assert modes == {0o600}

    def test_gives_its_card(self, command, tmp_path):
        alpha = Peer(command, tmp_path, "alpha")
        card = alpha.ok("init", "-o", "json").json
        assert list(card) == ["node", "name", "epoch", "certificate", "endorsements"]
        assert (card["node"], card["epoch"], card["endorsements"]) == ("alpha", 1, [])
        assert card == alpha.card()

    def test_a_second_time_changes_nothing_and_gives_the_same_card(self, alpha):
        before = alpha.bytes()
        ran = alpha.ok("init", "-o", "json")
        assert ran.json == alpha.card()
        assert ran.err == "alpha has its identity already\n"
        assert alpha.bytes() == before

    def test_raises_its_epoch(self, alpha):
        certificate = alpha.card()["certificate"]
        assert alpha.ok("init", "--epoch", 3, "-o", "json").json["epoch"] == 3
        assert alpha.card()["certificate"] == certificate
        assert "already" in alpha.ok("init", "--epoch", 3).err
        ran = alpha("init", "--epoch", 2)
        assert (ran.code, ran.err.count("\n")) == (4, 1)
        assert alpha.card()["epoch"] == 3

    def test_begins_at_the_epoch_that_it_is_told(self, command, tmp_path):
        alpha = Peer(command, tmp_path, "alpha").init("--epoch", 7)
        assert alpha.card()["epoch"] == 7

    @pytest.mark.parametrize("epoch", ["0", "-1", "x", str(2**53), "9" * 30])
    def test_an_epoch_that_is_none_is_a_usage_error(self, command, tmp_path, epoch):
        alpha = Peer(command, tmp_path, "alpha")
        ran = alpha("init", "--epoch", epoch)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert not alpha.folder.exists()

    def test_a_folder_of_another_node_is_refused(self, alpha):
        card = alpha.file(alpha.card())
        for words in (["init"], ["show"], ["pin", card]):
            ran = alpha(*words, BROKER_NODE="omega")
            assert (ran.code, ran.err.count("\n")) == (1, 1)
            assert "alpha" in ran.err
            assert "omega" in ran.err
            assert "BROKER_TRUST_DIR" in ran.err


class TestNoIdentity:
    WORDS = (
        ["show"],
        ["show", "beta"],
        ["pin", "-"],
        ["admit", "-"],
        ["endorse", "beta"],
        ["remove", "beta"],
        ["announcements"],
    )

    @pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
    def test_says_what_to_do(self, command, tmp_path, words):
        alpha = Peer(command, tmp_path, "alpha")
        ran = alpha(*words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "broker trust init" in ran.err
        assert not alpha.folder.exists()

    @pytest.mark.parametrize("words", [*WORDS, ["init"]], ids=lambda words: words[0])
    @pytest.mark.parametrize("harm", ["unlink", "empty", "garbage", "other"])
    def test_a_key_that_is_gone_or_wrong_is_never_made_anew(self, alpha, beta, words, harm):
        key = alpha.folder / "node.key"
        if harm == "unlink":
            key.unlink()
        else:
            raw = {
                "empty": b"",
                "garbage": b"\0" * 100,
                "other": (beta.folder / "node.key").read_bytes(),
            }
            key.write_bytes(raw[harm])
        before = alpha.bytes()
        ran = alpha(*words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert "node.key" in ran.err
        assert alpha.bytes() == before


class TestShow:
    def test_begins_with_itself(self, alpha, beta, gamma):
        alpha.pins(gamma, beta)
        head, *rows = alpha.ok("show").out.splitlines()
        assert head.split()[:3] == ["NODE", "TRUST", "EPOCH"]
        assert [row.split()[:2] for row in rows] == [
            ["alpha", "self"],
            ["beta", "pinned"],
            ["gamma", "pinned"],
        ]
        assert all("sha256:" in row for row in rows)

    def test_names_those_who_vouch(self, alpha, beta, gamma):
        alpha.pins(beta)
        beta.pins(gamma)
        card = beta.ok("endorse", "gamma").json
        alpha.ok("admit", alpha.file(card))
        assert "beta" in next(
            row for row in alpha.ok("show").out.splitlines() if row.startswith("gamma")
        )
        assert "endorsed by" in alpha.ok("show", "gamma").out

    def test_gives_what_another_takes_as_it_is(self, alpha, beta, gamma):
        alpha.pins(beta)
        gamma.ok("pin", gamma.file(alpha.card("beta")))
        assert gamma.card("beta")["certificate"] == beta.card()["certificate"]
        assert alpha.ok("show", "beta", "-o", "jsonl").lines == [alpha.card("beta")]

    def test_a_list_is_made_of_what_the_table_shows(self, alpha, beta):
        alpha.pins(beta)
        mine, its = alpha.ok("show", "-o", "json").json
        assert list(mine) == [
            "node",
            "name",
            "trust",
            "epoch",
            "fingerprint",
            "expires_at",
            "pinned_at",
            "endorsed_by",
        ]
        assert (mine["trust"], mine["pinned_at"]) == ("self", None)
        assert its["fingerprint"] in alpha.ok("show").out
        assert its["pinned_at"] < its["expires_at"]
        assert alpha.ok("show", "-o", "jsonl").lines == [mine, its]

    def test_gives_all_that_can_be_passed_on(self, alpha, beta):
        alpha.pins(beta)
        assert alpha.ok("show", "--cards").json == [alpha.card(), alpha.card("beta")]
        assert alpha("show", "beta", "--cards").code == 2

    def test_knows_no_other(self, alpha):
        ran = alpha("show", "omega")
        assert (ran.code, ran.out, ran.err.count("\n")) == (3, "", 1)

    def test_one_bad_file_hides_nobody_else(self, alpha, beta, gamma):
        alpha.pins(beta, gamma)
        (alpha.folder / "peers" / "beta.json").write_text("{")
        ran = alpha.ok("show")
        assert [row.split()[0] for row in ran.out.splitlines()[1:]] == ["alpha", "gamma"]
        assert "beta.json" in ran.err


class TestPin:
    def test_is_the_operators_word(self, alpha, beta):
        ran = alpha.ok("pin", alpha.file(beta.card()))
        fingerprint = next(
            word for word in beta.ok("show").out.split() if word.startswith("sha256:")
        )
        assert ran.out == f"pinned beta, epoch 1, {fingerprint}\n"
        assert alpha.known() == ["beta"]
        assert alpha.told() == [("pinned", "beta")]

    def test_takes_a_certificate_alone(self, alpha, beta):
        alpha.ok("pin", beta.folder / "node.crt", "--epoch", 4, "--name", "the box below")
        assert (alpha.card("beta")["epoch"], alpha.card("beta")["name"]) == (4, "the box below")

    @pytest.mark.parametrize("form", ["card", "pem"])
    def test_reads_a_pipe(self, alpha, beta, form):
        card = beta.card()
        raw = json.dumps(card) if form == "card" else card["certificate"]
        assert alpha.process("pin", "-", stdin=raw.encode()).code == 0
        assert alpha.known() == ["beta"]

    def test_the_same_again_is_no_news(self, alpha, beta):
        card = alpha.file(beta.card())
        alpha.ok("pin", card)
        before = alpha.bytes()
        for words in (["pin", card], ["pin", beta.folder / "node.crt"]):
            ran = alpha.ok(*words)
            assert (ran.out, ran.err) == ("", "beta is already pinned, in epoch 1\n")
        assert alpha.ok("admit", card).err == "beta is already pinned\n"
        assert alpha.ok("pin", card, "-o", "json").json == alpha.card("beta")
        assert alpha.bytes() == before
        assert alpha.told() == [("pinned", "beta")]

    def test_a_name_is_for_people_and_can_be_changed(self, alpha, beta):
        card = alpha.file(beta.card())
        alpha.ok("pin", card, "--name", "first")
        assert alpha.ok("pin", card, "--name", "second").out == "renamed beta to second\n"
        assert alpha.ok("pin", card).err == "beta is already pinned, in epoch 1\n"
        assert alpha.card("beta")["name"] == "second"
        assert alpha.told() == [("pinned", "beta"), ("renamed", "beta")]

    def test_a_newer_epoch_replaces_and_an_older_one_is_no_news(self, alpha, beta):
        card = alpha.file(beta.card())
        alpha.ok("pin", card, "--epoch", 2)
        assert "already" in alpha.ok("pin", card).err
        assert alpha.card("beta")["epoch"] == 2
        alpha.ok("pin", card, "--epoch", 3)
        assert alpha.told() == [("pinned", "beta")] * 2

    def test_another_certificate_of_the_same_name_is_refused(self, command, alpha, beta, tmp_path):
        alpha.pins(beta)
        before = alpha.bytes()
        (tmp_path / "elsewhere").mkdir()
        other = Peer(command, tmp_path / "elsewhere", "beta").init()
        ran = alpha("pin", alpha.file(other.card()))
        assert (ran.code, ran.out, ran.err.count("\n")) == (4, "", 1)
        assert "certificate_changed" in ran.err
        assert alpha.bytes() == before

    def test_itself_is_nothing_to_pin(self, alpha):
        before = alpha.bytes()
        ran = alpha("pin", alpha.file(alpha.card()))
        assert (ran.code, ran.err.count("\n")) == (4, 1)
        assert alpha.bytes() == before

    @pytest.mark.parametrize("words", [["--name", "x" * 129], ["--epoch", "0"], ["--epoch", "1.5"]])
    def test_wrong_arguments_are_a_usage_error(self, alpha, beta, words):
        ran = alpha("pin", alpha.file(beta.card()), *words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert alpha.known() == []

    def test_no_name_steers_the_terminal(self, alpha, beta):
        card = alpha.file(beta.card())
        said = [
            alpha.ok("pin", card, "--name", f"\x1b[2J\x9b31m\u202eevil {n}").out for n in (1, 2)
        ]
        said += [
            alpha.ok(*words).out for words in (["show"], ["show", "beta"], ["show", "-o", "json"])
        ]
        assert all("evil" in out and not set(out) & set("\x1b\x9b\u202e") for out in said[1:])


class TestAdmit:
    def test_takes_whom_a_trusted_node_vouches_for(self, alpha, beta, gamma):
        beta.pins(alpha)
        alpha.pins(gamma)
        vouched = beta.file(alpha.ok("endorse", "gamma").json)
        assert beta.ok("admit", vouched).out.startswith("pinned gamma, epoch 1, sha256:")
        assert beta.known() == ["alpha", "gamma"]
        assert beta.told() == [("pinned", "alpha"), ("pinned", "gamma")]
        assert beta.ok("admit", vouched).err == "gamma is already pinned\n"
        assert beta.told() == [("pinned", "alpha"), ("pinned", "gamma")]

    def test_nobody_else(self, alpha, beta, gamma):
        alpha.pins(gamma)
        before = beta.bytes()
        ran = beta("admit", beta.file(alpha.ok("endorse", "gamma").json))
        assert (ran.code, ran.out, ran.err.count("\n")) == (8, "", 1)
        assert "unknown_endorser" in ran.err
        assert beta.bytes() == before

    def test_follows_a_chain_in_whatever_order(self, command, tmp_path, alpha, beta, gamma):
        delta = Peer(command, tmp_path, "delta").init()
        delta.pins(alpha)
        alpha.pins(beta)
        beta.pins(gamma)
        cards = [beta.ok("endorse", "gamma").json, alpha.ok("endorse", "beta").json]
        delta.ok("admit", delta.file(cards))
        assert delta.known() == ["alpha", "beta", "gamma"]
        assert sorted(delta.told()) == [
            ("pinned", "alpha"),
            ("pinned", "beta"),
            ("pinned", "gamma"),
        ]

    def test_takes_a_whole_listing(self, alpha, beta, gamma):
        beta.pins(alpha)
        alpha.pins(beta, gamma)
        alpha.ok("endorse", "gamma")
        ran = beta.ok("admit", beta.file(alpha.ok("show", "--cards").json))
        assert beta.known() == ["alpha", "gamma"]
        assert "alpha is already pinned" in ran.err
        assert "holds no card" in beta.ok("admit", beta.file([])).err

    def test_merges_what_others_say_of_a_pinned_node(self, alpha, beta, gamma):
        beta.pins(alpha, gamma)
        alpha.pins(gamma)
        assert (
            beta.ok("admit", beta.file(alpha.ok("endorse", "gamma").json)).out
            == "endorsed gamma, by alpha\n"
        )
        assert beta.told()[-1] == ("endorsed", "gamma")


class TestEndorse:
    def test_prints_the_card_to_pass_on(self, alpha, beta):
        alpha.pins(beta)
        card = alpha.ok("endorse", "beta").json
        assert card == alpha.card("beta")
        [endorsement] = card["endorsements"]
        assert (endorsement["by"], endorsement["node"], endorsement["epoch"]) == (
            "alpha",
            "beta",
            1,
        )
        assert alpha.told() == [("pinned", "beta"), ("endorsed", "beta")]
        assert alpha.ok("endorse", "beta", "-o", "table").err.endswith("already endorsed\n")

    def test_twice_is_the_same_word(self, alpha, beta):
        alpha.pins(beta)
        first, before = alpha.ok("endorse", "beta").json, alpha.bytes()
        ran = alpha.ok("endorse", "beta")
        assert (ran.json, ran.err) == (first, "beta is already endorsed\n")
        assert alpha.bytes() == before
        assert len(alpha.told()) == 2

    def test_says_it_anew_in_a_newer_epoch_of_its_own(self, alpha, beta):
        alpha.pins(beta)
        alpha.ok("endorse", "beta")
        alpha.ok("init", "--epoch", 2)
        assert [said["by_epoch"] for said in alpha.ok("endorse", "beta").json["endorsements"]] == [
            1,
            2,
        ]

    def test_a_stranger_cannot_be_vouched_for(self, alpha):
        assert alpha("endorse", "omega").code == 3
        assert alpha("endorse", "alpha").code == 4
        assert alpha("endorse", "../alpha").code == 2
        assert alpha.told() == []


class TestRemove:
    def test_prints_a_proof_that_convinces_others(self, alpha, beta, gamma):
        alpha.pins(beta, gamma)
        beta.pins(alpha, gamma)
        proof = alpha.ok("remove", "gamma").json
        assert (proof["node"], proof["epoch"], proof["by"]) == ("gamma", 1, "alpha")
        assert alpha.known() == ["beta"]
        assert (
            beta.ok("remove", "--proof", beta.file(proof)).out
            == "removed gamma, epoch 1, by alpha\n"
        )
        assert beta.known() == ["alpha"]
        assert alpha.told()[-1] == beta.told()[-1] == ("removed", "gamma")

    def test_twice_is_the_same_proof(self, alpha, beta, gamma):
        alpha.pins(gamma)
        beta.pins(alpha, gamma)
        proof, before = alpha.ok("remove", "gamma").json, alpha.bytes()
        ran = alpha.ok("remove", "gamma")
        assert (ran.json, ran.err) == (proof, "gamma is already removed\n")
        assert alpha("show", "gamma").err.endswith("pinned here: alpha removed it in epoch 1\n")
        assert alpha.bytes() == before
        assert alpha.told() == [("pinned", "gamma"), ("removed", "gamma")]
        file = beta.file(proof)
        beta.ok("remove", "--proof", file)
        assert beta.ok("remove", "--proof", file).err == "gamma is already removed\n"
        assert beta.told()[2:] == [("removed", "gamma")]

    def test_a_proof_on_stdin(self, alpha, beta, gamma):
        alpha.pins(gamma)
        beta.pins(alpha, gamma)
        proof = alpha.ok("remove", "gamma").out.encode()
        assert beta.process("remove", "--proof", "-", stdin=proof).code == 0
        assert beta.known() == ["alpha"]

    def test_holds_until_a_newer_epoch(self, alpha, beta, gamma):
        beta.pins(alpha)
        alpha.pins(gamma)
        vouched = alpha.ok("endorse", "gamma").json
        old = alpha.file(gamma.card())
        alpha.ok("remove", "gamma")
        assert "removed" in alpha("pin", old).err
        assert alpha("pin", old).code == 4
        gamma.ok("init", "--epoch", 2)
        alpha.ok("pin", alpha.file(gamma.card()))
        assert alpha.card("gamma")["epoch"] == 2
        assert alpha.card("gamma")["endorsements"] == []
        beta.ok("admit", beta.file(vouched))  # it has not heard of the removal
        beta.ok("admit", beta.file(alpha.ok("endorse", "gamma").json))
        assert beta.card("gamma")["epoch"] == 2

    def test_an_older_proof_says_nothing_of_a_newer_epoch(self, alpha, beta, gamma):
        alpha.pins(gamma)
        beta.pins(alpha)
        proof = beta.file(alpha.ok("remove", "gamma").json)
        beta.ok("pin", beta.file(gamma.card()), "--epoch", 2)
        before = beta.bytes()
        ran = beta("remove", "--proof", proof)
        assert (ran.code, ran.out) == (8, "")
        assert "epoch" in ran.err
        assert beta.bytes() == before

    @pytest.mark.parametrize(
        "words,code",
        [([], 2), (["omega"], 3), (["alpha"], 4), (["a/b"], 2), (["omega", "--proof", "x"], 2)],
    )
    def test_wrong_arguments(self, alpha, words, code):
        ran = alpha("remove", *words)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)


class TestAnnouncements:
    def test_are_numbered_in_order(self, alpha, beta, gamma):
        alpha.pins(beta, gamma)
        alpha.ok("endorse", "beta")
        alpha.ok("remove", "gamma")
        found = alpha.ok("announcements", "-o", "json").json
        assert [said["id"] for said in found] == ["1-0", "2-0", "3-0", "4-0"]
        assert [(said["change"], said["node"]) for said in found] == [
            ("pinned", "beta"),
            ("pinned", "gamma"),
            ("endorsed", "beta"),
            ("removed", "gamma"),
        ]
        assert all(said["persisted"] is True for said in found)
        assert alpha.ok("announcements", "-o", "jsonl").lines == found
        rows = alpha.ok("announcements").out.splitlines()
        assert rows[0].split() == ["ID", "AT", "CHANGE", "NODE", "PERSISTED"]
        assert len(rows) == 5

    def test_of_another_node(self, alpha, beta):
        alpha.pins(beta)
        [found] = beta.ok("announcements", "alpha", "-o", "json").json
        assert found["node"] == "beta"
        ran = beta.ok("announcements")
        assert (ran.out, ran.err) == ("", "nothing announced\n")

    def test_wrong_names(self, alpha):
        assert alpha("announcements", "a*b").code == 2

    def test_need_redis(self, alpha):
        ran = alpha("announcements", REDIS_URL="redis://127.0.0.1:1")
        assert (ran.code, ran.out, ran.err.count("\n")) == (6, "", 1)


class TestRedisAway:
    NOWHERE = "redis://127.0.0.1:1"

    def test_a_change_is_kept_and_told_later_once(self, alpha, beta, gamma):
        for other in (beta, gamma):
            ran = alpha.ok("pin", alpha.file(other.card()), REDIS_URL=self.NOWHERE)
            assert ran.out.startswith(f"pinned {other.node}")
            assert ran.err.count("\n") == 1
            assert "warning" in ran.err
            assert "announced" in ran.err
        assert alpha.known() == ["beta", "gamma"]
        assert alpha.told() == [("pinned", "beta"), ("pinned", "gamma")]
        assert alpha.told() == [("pinned", "beta"), ("pinned", "gamma")]

    def test_nothing_to_tell_needs_no_redis(self, alpha, beta):
        card = alpha.file(beta.card())
        alpha.ok("pin", card)
        for words in (["show"], ["show", "beta"], ["init"], ["pin", card]):
            assert "warning" not in alpha.ok(*words, REDIS_URL=self.NOWHERE).err

    def test_a_stream_that_is_none_is_named_and_the_change_is_kept(self, alpha, beta, broker):
        key = broker.store.keys.trust("alpha")
        broker.store.client.set(key, "what is this")
        ran = alpha.ok("pin", alpha.file(beta.card()))
        assert "warning" in ran.err
        broker.store.client.delete(key)
        assert alpha.told() == [("pinned", "beta")]
