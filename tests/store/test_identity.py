"""A node's identity on disk: whole or not there, never replaced, never for other eyes, and loud when it is broken."""

from __future__ import annotations

import json
import os
import random
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from broker.errors import Invalid, Misconfigured, NotFound, Refused, Untrusted, Unwritable
from broker.rules.certificate import check_valid, read_certificate
from broker.rules.signed import verify
from broker.rules.strict import EPOCH_MAX
from broker.rules.vouch import Anchors, check_endorsement
from broker.rules.word import Endorsement
from broker.store import mint
from broker.store.identity import Identity
from tests.nodes import NOW
from tests.store.trusting import ANN, failing, files, is_killed, steps_of, unfinished

DAY = 86_400_000
NAMES = ["identity.json", "node.crt", "node.key"]


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "data" / "trust"


@pytest.fixture
def identity(folder) -> Identity:
    return Identity.create(folder, "desk", NOW)


def kept(folder):
    """What stands there, but for the lock, which says nothing."""
    return {name: data for name, data in files(folder).items() if name != "lock"}


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def key_pem(key, encryption=None):
    encryption = encryption or serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, encryption)


def complaint(call, *args):
    """What is said to the operator: one line."""
    with pytest.raises(Misconfigured) as found:
        call(*args)
    assert str(found.value).isprintable()
    return str(found.value)


class TestCreate:
    def test_it_is_there_for_the_next_process(self, folder, identity):
        assert Identity.load(folder, NOW) == identity
        assert (identity.node, identity.epoch, identity.created_at) == ("desk", 1, NOW)
        assert not identity.expired

    def test_three_files_are_all_it_is_and_for_this_user_alone(self, tmp_path):
        folder = tmp_path / "trust"
        before = os.umask(0)
        try:
            Identity.create(folder, "desk", NOW)
        finally:
            os.umask(before)
        assert sorted(kept(folder)) == NAMES
        assert mode(folder) == 0o700
        assert {mode(path) for path in folder.iterdir()} == {0o600}

    def test_what_it_says_of_itself_can_be_read_by_a_person(self, folder, identity):
        said = json.loads((folder / "identity.json").read_text())
        assert said == {"node": "desk", "epoch": 1, "created_at": NOW}

    def test_it_can_sign_what_its_card_lets_others_verify(self, identity):
        sig = identity.sign("tag.v1", {"a": 1})
        key = read_certificate(identity.card.certificate_pem).public_key
        assert verify(key, "tag.v1", {"a": 1}, sig)
        assert identity.card.to_json()["epoch"] == 1
        word = Endorsement.signed(identity, ANN.card(), NOW)
        check_endorsement(word, Anchors({}, identity.anchor), NOW)

    def test_it_shows_its_private_key_to_nobody(self, folder, identity):
        assert "key" not in repr(replace(identity, folder=Path("there"))).lower()

    def test_again_it_is_the_same_and_nothing_is_written(self, folder, identity):
        before = kept(folder)
        steps = steps_of(lambda: Identity.create(folder, "desk", NOW + DAY))
        assert not [step for step in steps if step.startswith(("write", "replace", "unlink"))]
        assert Identity.create(folder, "desk", NOW + DAY) == identity
        assert kept(folder) == before

    def test_a_folder_of_another_node_is_left_to_it(self, folder, identity):
        before = kept(folder)
        with pytest.raises(Refused) as found:
            Identity.create(folder, "other", NOW)
        assert found.value.rule == "other_node"
        assert kept(folder) == before

    @pytest.mark.parametrize(
        "name", ["", "..", "../up", "a/b", "a*", "Desk", "a\n", "a\0b", "a" * 64]
    )
    def test_what_is_no_name_leaves_nothing(self, folder, name):
        with pytest.raises(Invalid):
            Identity.create(folder, name, NOW)
        assert not folder.exists()

    def test_two_nodes_share_nothing(self, tmp_path):
        made = [Identity.create(tmp_path / name, "desk", NOW) for name in "ab"]
        assert len({one.certificate.public_key for one in made}) == 2
        serials = {
            x509.load_der_x509_certificate(one.certificate.der).serial_number for one in made
        }
        assert len(serials) == 2


class TestCertificate:
    def test_it_holds_from_five_minutes_back_for_397_days(self, identity):
        begin, end = NOW - 300_000, NOW - 300_000 + 397 * DAY
        for moment in (begin, NOW, end):
            check_valid(identity.certificate, moment)
        for moment, rule in ((begin - 1, "not_yet_valid"), (end + 1, "expired")):
            with pytest.raises(Untrusted) as found:
                check_valid(identity.certificate, moment)
            assert found.value.rule == rule

    def test_it_is_what_tls_peers_look_for(self, identity):
        made = x509.load_der_x509_certificate(identity.certificate.der)
        found = made.extensions.get_extension_for_class
        usage = found(x509.KeyUsage).value
        assert usage.digital_signature
        assert not usage.key_cert_sign
        assert set(found(x509.ExtendedKeyUsage).value) == {
            ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH,
        }  # fmt: skip
        own = found(x509.SubjectKeyIdentifier).value.digest
        assert found(x509.AuthorityKeyIdentifier).value.key_identifier == own
        assert made.version is x509.Version.v3

    def test_once_it_has_expired_it_loads_and_says_so(self, folder, identity):
        late = identity.certificate.not_after_ms + 1
        assert not Identity.load(folder, late - 1).expired
        old = Identity.load(folder, late)
        assert old.expired
        assert old == Identity.create(folder, "desk", late)
        word = Endorsement.signed(old, ANN.card(), late)
        with pytest.raises(Untrusted) as found:
            check_endorsement(word, Anchors({}, old.anchor), late)
        assert found.value.rule == "expired"


class TestMissing:
    @pytest.mark.parametrize("left", [None, [], ["node.key"], ["node.key", "node.crt"]])
    def test_until_its_last_file_is_written_there_is_no_identity(self, folder, left):
        if left is not None:
            Identity.create(folder, "desk", NOW)
            for name in set(NAMES) - set(left):
                (folder / name).unlink()
            (folder / "making").touch()
        with pytest.raises(NotFound, match="broker trust init"):
            Identity.load(folder, NOW)

    @pytest.mark.parametrize("left", [["node.key"], ["node.crt"], ["node.key", "node.crt"]])
    def test_where_its_record_was_lost_none_is_made_at_an_epoch_that_is_over(self, folder, left):
        Identity.create(folder, "desk", NOW).raise_epoch(3)
        for name in set(NAMES) - set(left):
            (folder / name).unlink()
        before = kept(folder)
        for call in (
            lambda: Identity.load(folder, NOW),
            lambda: Identity.create(folder, "desk", NOW),
        ):
            assert complaint(call).startswith(f"{folder / 'identity.json'}: it is missing")
        assert kept(folder) == before

    @pytest.mark.parametrize("name", ["node.key", "node.crt"])
    def test_without_another_file_it_is_broken_and_none_is_made_anew(self, folder, identity, name):
        (folder / name).unlink()
        before = kept(folder)
        for call in (
            lambda: Identity.load(folder, NOW),
            lambda: Identity.create(folder, "desk", NOW),
        ):
            assert complaint(call).startswith(f"{folder / name}: it is missing")
        assert kept(folder) == before


def certificate_of(node="desk", **changes):
    return mint.certificate(Ed25519PrivateKey.generate(), node, NOW)


FOREIGN = key_pem(Ed25519PrivateKey.generate())
RECORD = {"node": "desk", "epoch": 1, "created_at": NOW}
#: File -> what it holds instead, and which file is named.
BROKEN = {
    "an empty key": ("node.key", b"", "node.key"),
    "garbage for a key": ("node.key", b"\0\xff" * 100, "node.key"),
    "half a key": ("node.key", FOREIGN[: len(FOREIGN) // 2], "node.key"),
    "another key": ("node.key", FOREIGN, "node.key"),
    "a key of another kind": (
        "node.key",
        key_pem(ec.generate_private_key(ec.SECP256R1())),
        "node.key",
    ),
    "a key with a password": (
        "node.key",
        key_pem(Ed25519PrivateKey.generate(), serialization.BestAvailableEncryption(b"x")),
        "node.key",
    ),
    "a public key": (
        "node.key",
        Ed25519PrivateKey.generate().public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
        "node.key",
    ),
    "an endless key": ("node.key", b"-" * 2**20, "node.key"),
    "an empty certificate": ("node.crt", b"", "node.crt"),
    "garbage for a certificate": ("node.crt", b"\0\xff" * 100, "node.crt"),
    "the certificate of another node": ("node.crt", certificate_of("other"), "node.crt"),
    "the certificate of another key": ("node.crt", certificate_of(), "node.key"),
    "a key for a certificate": ("node.crt", FOREIGN, "node.crt"),
    "an endless certificate": ("node.crt", b"-" * 2**20, "node.crt"),
    "an empty record": ("identity.json", b"", "identity.json"),
    "no JSON": ("identity.json", b"\xff{}", "identity.json"),
    "half a record": ("identity.json", json.dumps(RECORD).encode()[:20], "identity.json"),
    "a field missing": ("identity.json", b'{"node":"desk","epoch":1}', "identity.json"),
    "a field too many": ("identity.json", RECORD | {"key": "x"}, "identity.json"),
    "epoch 0": ("identity.json", RECORD | {"epoch": 0}, "identity.json"),
    "epoch 2^53": ("identity.json", RECORD | {"epoch": 2**53}, "identity.json"),
    "an epoch that is none": ("identity.json", RECORD | {"epoch": 1.5}, "identity.json"),
    "an unsafe name": ("identity.json", RECORD | {"node": "../desk"}, "identity.json"),
    "the name of another node": ("identity.json", RECORD | {"node": "other"}, "node.crt"),
    "an endless record": ("identity.json", b" " * 2**20, "identity.json"),
}  # fmt: skip


class TestBroken:
    @pytest.mark.parametrize("name,holds,named", BROKEN.values(), ids=BROKEN)
    def test_it_says_which_file_and_mends_nothing(self, folder, identity, name, holds, named):
        (folder / name).write_bytes(
            holds if isinstance(holds, bytes) else json.dumps(holds).encode()
        )
        before = kept(folder)
        node = holds["node"] if named == "node.crt" and isinstance(holds, dict) else "desk"
        assert complaint(Identity.load, folder, NOW).startswith(f"{folder / named}: ")
        assert complaint(Identity.create, folder, node, NOW).startswith(f"{folder / named}: ")
        assert kept(folder) == before

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("kind", ["folder", "link", "dead link", "pipe"])
    def test_what_is_no_file_is_not_read(self, folder, identity, tmp_path, name, kind):
        path = folder / name
        path.rename(tmp_path / "away")
        {
            "folder": lambda: path.mkdir(mode=0o700),
            "link": lambda: path.symlink_to(tmp_path / "away"),
            "dead link": lambda: path.symlink_to(tmp_path / "nowhere"),
            "pipe": lambda: os.mkfifo(path, 0o600),
        }[kind]()
        assert complaint(Identity.load, folder, NOW).startswith(f"{path}: ")
        assert complaint(Identity.create, folder, "desk", NOW).startswith(f"{path}: ")

    @pytest.mark.parametrize("open_to", [0o640, 0o620, 0o604, 0o602, 0o610, 0o666])
    @pytest.mark.parametrize("name", [*NAMES, ""])
    def test_what_others_may_use_is_refused_until_somebody_has_looked(
        self, folder, identity, name, open_to
    ):
        path, wanted = (folder / name, 0o600) if name else (folder, 0o700)
        path.chmod(wanted | open_to)
        for call in (Identity.load, lambda *args: Identity.create(args[0], "desk", args[1])):
            said = complaint(call, folder, NOW)
            assert said.startswith(f"{path}: others may use it")
            assert f"chmod {wanted:o}" in said
        assert mode(path) == wanted | open_to
        path.chmod(wanted)
        assert Identity.load(folder, NOW) == identity

    def test_the_folder_may_stand_elsewhere_and_is_judged_there(self, folder, identity, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(folder)
        assert Identity.load(link, NOW) == replace(identity, folder=link)
        assert Identity.create(link, "desk", NOW) == Identity.load(link, NOW)
        folder.chmod(0o755)
        assert complaint(Identity.load, link, NOW).startswith(f"{link}: others may use it")

    def test_no_key_is_put_where_others_may_look(self, folder):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        assert complaint(Identity.create, folder, "desk", NOW).startswith(f"{folder}: others may")
        assert files(folder) == {}

    @pytest.mark.parametrize("name", ["node.key", "node.crt"])
    def test_what_no_crash_of_ours_leaves_is_not_made_an_identity(self, folder, identity, name):
        """While it is being made, what lies there is completed; what does not fit is somebody's, and is kept."""
        (folder / "identity.json").unlink()
        (folder / "making").touch()
        (folder / name).write_bytes(FOREIGN if name == "node.key" else certificate_of("other"))
        before = kept(folder)
        assert complaint(Identity.create, folder, "desk", NOW).startswith(f"{folder / name}: ")
        assert kept(folder) == before

    def test_a_folder_that_cannot_be_made_is_told(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")
        for folder in (tmp_path / "file", tmp_path / "file" / "trust"):
            with pytest.raises((Unwritable, Misconfigured), match=str(tmp_path / "file")) as told:
                Identity.create(folder, "desk", NOW)
            assert str(told.value).count("file") == 1, "the one that is in the way is named"


class TestEpoch:
    def test_it_is_raised_for_good_and_the_key_stays(self, folder, identity):
        raised = identity.raise_epoch(7)
        assert raised.epoch == raised.anchor.epoch == raised.card.epoch == 7
        assert Identity.load(folder, NOW) == raised
        assert raised.certificate == identity.certificate
        assert raised.sign("t", {}) == identity.sign("t", {})

    def test_the_same_again_writes_nothing(self, folder, identity):
        steps = steps_of(lambda: identity.raise_epoch(1))
        assert not [step for step in steps if step.startswith(("write", "replace"))]

    def test_it_never_sinks_whoever_raised_it(self, folder, identity):
        Identity.load(folder, NOW).raise_epoch(5)
        before = kept(folder)
        with pytest.raises(Refused) as found:
            identity.raise_epoch(4)
        assert found.value.rule == "lower_epoch"
        assert kept(folder) == before

    @pytest.mark.parametrize("epoch", [0, -1, EPOCH_MAX + 1, 2**64 - 1])
    def test_what_is_no_epoch_is_refused(self, folder, identity, epoch):
        before = kept(folder)
        with pytest.raises(Invalid):
            identity.raise_epoch(epoch)
        assert kept(folder) == before

    def test_the_last_epoch_is_one(self, folder, identity):
        assert identity.raise_epoch(EPOCH_MAX) == Identity.load(folder, NOW)


class TestCrash:
    def test_it_is_written_in_the_order_in_which_it_is_safe_to_stop(self, folder):
        steps = steps_of(lambda: Identity.create(folder, "desk", NOW))
        replaced = [
            step.split()[1].removesuffix(".tmp") for step in steps if step.startswith("replace")
        ]
        assert replaced == ["making", "node.key", "node.crt", "identity.json"]
        assert steps.index("unlink making") > steps.index("replace identity.json.tmp")
        for earlier, later in pairwise(replaced):
            between = steps[
                steps.index(f"replace {earlier}.tmp") : steps.index(f"open {later}.tmp")
            ]
            assert "fsync trust" in between, "the folder's entry is durable first"
            assert f"fsync {earlier}.tmp" in steps[: steps.index(f"replace {earlier}.tmp")]

    def test_killed_at_any_step_it_is_none_or_whole_and_the_next_start_completes_it(self, tmp_path):
        at, killed, ends = 0, True, set()
        while killed:
            at += 1
            folder = tmp_path / str(at) / "trust"
            killed = is_killed(partial(Identity.create, folder, "desk", NOW), at)
            left = kept(folder) if folder.exists() else {}
            ends.add(self.check_what_is_left(folder, left))
        assert ends == {"nothing", "a key", "a key and a certificate", "whole"}
        assert at > 15

    def test_killed_again_and_again_it_keeps_its_first_key(self, tmp_path):
        chance = random.Random(3)
        for number in range(20):
            folder, first = tmp_path / str(number), None
            while is_killed(partial(Identity.create, folder, "desk", NOW), chance.randint(1, 30)):
                key = kept(folder).get("node.key") if folder.exists() else None
                assert first in (None, key)
                first = key
            self.check_what_is_left(folder, kept(folder))
            assert first in (None, (folder / "node.key").read_bytes())

    @staticmethod
    def check_what_is_left(folder, left):
        """What a start finds and makes of it; says how far the killed one had come."""
        names = [name for name in NAMES if name in left]
        if "identity.json" in left:
            found = Identity.load(folder, NOW)
            assert found == Identity.create(folder, "desk", NOW)
            return "whole"
        with pytest.raises(NotFound):
            Identity.load(folder, NOW)
        made = Identity.create(folder, "desk", NOW + DAY)
        assert made == Identity.load(folder, NOW + DAY)
        assert not unfinished(folder)
        for name in names:
            assert kept(folder)[name] == left[name], "what stood was completed, not replaced"
        return {0: "nothing", 1: "a key", 2: "a key and a certificate"}[len(names)]

    def test_where_a_step_fails_it_is_told_and_tried_again(self, tmp_path):
        steps = steps_of(lambda: Identity.create(tmp_path / "ok", "desk", NOW))
        assert steps.pop() == "close lock", "by then all is done"
        for at in range(1, len(steps) + 1):
            folder = tmp_path / str(at)
            with failing(lambda count, _, at=at: count == at):  # noqa: SIM117 - one disk, one call
                with pytest.raises((Unwritable, Misconfigured), match=str(folder)):
                    Identity.create(folder, "desk", NOW)
            assert not unfinished(tmp_path)
            assert Identity.create(folder, "desk", NOW) == Identity.load(folder, NOW)

    def test_killed_while_it_is_raised_the_epoch_is_the_old_or_the_new_one(self, folder, identity):
        at, found = 0, {}
        while is_killed(lambda: Identity.load(folder, NOW).raise_epoch(2), at := at + 1):
            found[at] = Identity.load(folder, NOW).epoch
            Identity.load(folder, NOW).raise_epoch(2)
            (folder / "identity.json").write_text(json.dumps(RECORD))
        assert set(found.values()) == {1, 2}
        assert sorted(found.values()) == list(found.values())


class TestTogether:
    @pytest.mark.parametrize("round_", range(5))
    def test_processes_that_create_at_once_end_on_one_identity(self, folder, round_):
        """Released together by a pipe that closes; each says what it ended on."""
        gate, answers = os.pipe(), os.pipe()
        children = []
        for _ in range(6):
            child = os.fork()
            if child == 0:
                try:
                    os.close(gate[1])
                    os.read(gate[0], 1)
                    made = Identity.create(folder, "desk", NOW)
                    os.write(answers[1], f"{made.certificate.fingerprint}\n".encode())
                finally:
                    os._exit(0)
            children.append(child)
        os.close(gate[0])
        os.close(gate[1])
        os.close(answers[1])
        for child in children:
            os.waitpid(child, 0)
        with os.fdopen(answers[0]) as read:
            said = read.read().split()
        assert said == [Identity.load(folder, NOW).certificate.fingerprint] * 6

    def test_threads_that_create_at_once_end_on_one_identity(self, folder):
        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(lambda _: Identity.create(folder, "desk", NOW), range(16)))
        assert set(map(repr, made)) == {repr(Identity.load(folder, NOW))}

    def test_threads_that_raise_at_once_end_on_the_highest(self, folder, identity):
        def raised(epoch):
            try:
                return identity.raise_epoch(epoch).epoch
            except Refused:
                return 0

        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(raised, range(2, 34)))
        assert Identity.load(folder, NOW).epoch == max(made) == 33
