"""A node's certificate: what an honest one says, and that every other kind is refused by its name, in one line."""

from __future__ import annotations

import hashlib
import warnings
from base64 import encodebytes
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Untrusted
from broker.rules.certificate import PEM_BYTES_MAX, check_valid, read_certificate, urn

KEY = Ed25519PrivateKey.generate()
STRANGER = Ed25519PrivateKey.generate()
BEGIN, END = datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
UNCRITICAL = object()


def uri(node):
    return x509.UniformResourceIdentifier(urn(node))


def common(*names):
    return [x509.NameAttribute(NameOID.COMMON_NAME, name, _validate=False) for name in names]


def forged(
    *,
    key=KEY,
    signer=None,
    subject=None,
    issuer=None,
    node="desk",
    san=None,
    ca=False,
    extra=(),
    digest=None,
):
    """PEM of a certificate that is honest but for what is asked for."""
    subject = x509.Name(common(node) if subject is None else subject)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else x509.Name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(BEGIN)
        .not_valid_after(END)
    )
    if ca is not None:
        constraints = x509.BasicConstraints(ca=ca is True, path_length=None)
        builder = builder.add_extension(constraints, critical=ca is not UNCRITICAL)
    san = [uri(node)] if san is None else san
    if san:
        builder = builder.add_extension(x509.SubjectAlternativeName(san), critical=False)
    for extension in extra:
        builder = builder.add_extension(extension, critical=False)
    return pem_of(builder.sign(signer or key, digest).public_bytes(Encoding.DER))


def pem_of(der):
    return f"-----BEGIN CERTIFICATE-----\n{encodebytes(der).decode()}-----END CERTIFICATE-----\n"


HONEST = forged()
DER = read_certificate(HONEST).der
TBS = x509.load_der_x509_certificate(DER).tbs_certificate_bytes


def sequence(body):
    size = len(body).to_bytes(1 + (len(body) > 255), "big")
    assert len(body) > 127
    return b"\x30" + bytes([0x80 + len(size)]) + size + body


def signed(tbs):
    """PEM of a certificate of our own making, whatever it says."""
    return pem_of(sequence(tbs + bytes.fromhex("300506032b6570034100") + KEY.sign(tbs)))


def edited(old, new):
    """The honest certificate with other bytes in it."""
    assert DER.count(old) == 1
    return pem_of(DER.replace(old, new))


def refused(pem):
    """The rule by which it is refused: always Untrusted, in one line that a terminal can bear."""
    with pytest.raises(Untrusted) as found:
        read_certificate(pem)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 200
    return found.value.rule


class TestHonest:
    def test_it_names_its_node_twice_and_shows_its_key(self):
        found = read_certificate(HONEST)
        assert found.node == "desk"
        assert found.public_key == KEY.public_key().public_bytes_raw()
        assert found.fingerprint == "sha256:" + hashlib.sha256(found.der).hexdigest()
        assert found.not_before_ms == BEGIN.timestamp() * 1000
        assert found.not_after_ms == END.timestamp() * 1000

    @pytest.mark.parametrize(
        "pem",
        [
            HONEST.replace("\n", "\r\n"),
            HONEST.strip(),
            f"\n  {HONEST}\n\n",
            HONEST.replace("\n", "", 5).replace("CERTIFICATE-----", "CERTIFICATE-----\n", 1),
        ],
        ids=["crlf", "stripped", "surrounded", "one line"],
    )
    def test_however_its_text_was_laid_out_it_is_the_same_certificate(self, pem):
        assert pem != HONEST
        assert read_certificate(pem) == read_certificate(HONEST)

    def test_the_longest_name_is_a_name(self):
        assert read_certificate(forged(node="a" * 63)).node == "a" * 63

    def test_other_extensions_are_none_of_our_business(self):
        known = x509.SubjectKeyIdentifier.from_public_key(KEY.public_key())
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"anything")
        assert read_certificate(forged(extra=[known, unknown])).node == "desk"

    @pytest.mark.parametrize(
        "moment,rule",
        [
            (BEGIN - timedelta(milliseconds=1), "not_yet_valid"),
            (BEGIN, None),
            (END, None),
            (END + timedelta(milliseconds=1), "expired"),
        ],
    )
    def test_it_is_valid_from_its_first_moment_to_its_last(self, moment, rule):
        now_ms = round(moment.timestamp() * 1000)
        if rule is None:
            check_valid(read_certificate(HONEST), now_ms)
        else:
            with pytest.raises(Untrusted) as found:
                check_valid(read_certificate(HONEST), now_ms)
            assert found.value.rule == rule


AUTHORITIES = {
    "says CA:TRUE": {"ca": True},
    "says nothing of CA": {"ca": None},
    "says CA:FALSE, but not critical": {"ca": UNCRITICAL},
}
NAMELESS = {
    "SAN of another node": {"san": [uri("other")]},
    "no SAN": {"san": ()},
    "only a DNS name": {"san": [x509.DNSName("desk")]},
    "URI of another scheme": {"san": [x509.UniformResourceIdentifier("urn:other:node:desk")]},
    "two URIs": {"san": [uri("desk"), uri("other")]},
    "the same URI twice": {"san": [uri("desk"), uri("desk")]},
    "a DNS name beside it": {"san": [uri("desk"), x509.DNSName("other")]},
    "no CN": {"subject": [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "desk")]},
    "no subject": {"subject": []},
    "two CNs": {"subject": common("desk", "other")},
    "an organization beside it": {
        "subject": [*common("desk"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "other")]
    },
}
UNSAFE = {
    "glob": "de*k", "question": "de?k", "bracket": "de[s]k", "slash": "a/b", "backslash": "a\\b",
    "above": "../identity", "hidden": ".desk", "dots": "..", "newline": "desk\n", "NUL": "desk\0",
    "NUL inside": "de\0sk", "colon": "a:b", "brace": "{desk}", "space": "de sk", "upper case": "Desk",
    "dash first": "-desk", "too long": "a" * 64, "escape": "\x1b[31mdesk", "percent": "de%2Fsk",
}  # fmt: skip


class TestHostile:
    @pytest.mark.parametrize("twist", AUTHORITIES.values(), ids=AUTHORITIES)
    def test_one_that_could_sign_others(self, twist):
        assert refused(forged(**twist)) == "is_ca"

    @pytest.mark.parametrize("twist", NAMELESS.values(), ids=NAMELESS)
    def test_one_that_does_not_name_exactly_one_node(self, twist):
        assert refused(forged(**twist)) == "name_mismatch"

    @pytest.mark.parametrize("name", UNSAFE.values(), ids=UNSAFE)
    def test_one_whose_name_is_none(self, name):
        assert refused(forged(node=name)) == "name_mismatch"

    @pytest.mark.parametrize("foreign", ["rsa", "p-256", "ed448"])
    def test_another_kind_of_key(self, foreign):
        key, digest = {
            "rsa": lambda: (rsa.generate_private_key(65537, 2048), hashes.SHA256()),
            "p-256": lambda: (ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()),
            "ed448": lambda: (ed448.Ed448PrivateKey.generate(), None),
        }[foreign]()
        assert refused(forged(key=key, digest=digest)) == "not_ed25519"
        assert refused(forged(signer=key, digest=digest)) == "not_ed25519"

    def test_one_that_another_key_signed(self):
        assert refused(forged(signer=STRANGER)) == "bad_signature"

    def test_one_that_another_name_issued(self):
        assert refused(forged(issuer=common("other"))) == "bad_signature"

    def test_one_of_another_time_than_was_signed(self):
        year = BEGIN.strftime("%y%m%d%H%M%SZ").encode()
        assert refused(edited(year, b"26" + year[2:])) == "bad_signature"

    def test_a_key_under_which_anybody_can_sign(self):
        """A point of small order: one signature fits every message, so that it would prove nothing."""
        weak = b"\1" + bytes(31)
        anything = weak + bytes(32)
        Ed25519PublicKey.from_public_bytes(weak).verify(anything, b"whatever is said")
        raw = KEY.public_key().public_bytes_raw()
        assert refused(pem_of(DER[:-64].replace(raw, weak) + anything)) == "weak_key"

    @pytest.mark.parametrize(
        "pem",
        [
            edited(b"\x03\x41\x00", b"\x03\x41\x01"),
            edited(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x00"),
            pem_of(DER + b"\0"),
            pem_of(DER[:-1]),
            pem_of(b""),
            pem_of(b"\x30\x80"),
        ],
        ids=["slack bits", "version 1", "trailing byte", "cut", "nothing", "endless"],
    )
    def test_one_whose_bytes_are_not_quite_right(self, pem):
        assert refused(pem) == "malformed_certificate"

    @pytest.mark.parametrize("serial,rule", [(1, None), (0, "malformed"), (0x80, "malformed")])
    def test_a_serial_number_that_is_none(self, serial, rule):
        """Also where warnings are not errors, and the parser itself only complains on stderr."""
        at = TBS.index(b"\xa0\x03\x02\x01\x02") + 5
        body = TBS[at - 5 : at] + bytes([2, 1, serial]) + TBS[at + 2 + TBS[at + 1] :]
        pem = signed(sequence(body))
        if rule is None:
            assert read_certificate(pem).node == "desk"
        else:
            with warnings.catch_warnings(action="ignore"):
                assert refused(pem) == f"{rule}_certificate"

    def test_a_subject_of_which_the_parser_complains(self):
        """It must not matter to who calls whether warnings are errors."""
        with warnings.catch_warnings(action="ignore"):
            country = x509.NameAttribute(NameOID.COUNTRY_NAME, "DEU", _validate=False)
            pem = forged(subject=[*common("desk"), country])
            assert refused(pem) == "name_mismatch"
        assert refused(pem) == "malformed_certificate"

    @pytest.mark.parametrize(
        "pem",
        [
            "",
            "hello",
            HONEST + "trailing",
            "leading\n" + HONEST,
            HONEST + HONEST,
            HONEST + forged(node="other"),
            HONEST.replace("CERTIFICATE", "TRUSTED CERTIFICATE"),
            HONEST.replace("-----\n", "-----\nProc-Type: 4,ENCRYPTED\n\n", 1),
            HONEST.replace("M", "!", 1),
            HONEST.replace("\n", " \n", 2),
            KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            HONEST.replace("M", "\ud800", 1),
        ],
        ids=[
            "nothing", "no PEM", "text after it", "text before it", "twice", "two of them", "another label",
            "a header", "no base64", "spaces", "a private key", "half a character",
        ],
    )  # fmt: skip
    def test_a_text_that_is_not_one_certificate(self, pem):
        assert refused(pem) == "malformed_certificate"

    def test_one_that_is_too_large(self):
        assert refused(HONEST + "\n" * PEM_BYTES_MAX) == "too_large"
        assert refused("-----BEGIN CERTIFICATE-----\n" + "A" * 2**20) == "too_large"
        bulky = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x" * PEM_BYTES_MAX)
        assert refused(forged(extra=[bulky])) == "too_large"


class TestFuzzed:
    @given(st.text(max_size=200))
    def test_no_text_is_more_than_one_complaint(self, text):
        assert refused(text) == "malformed_certificate"

    @given(st.binary(max_size=300))
    def test_no_bytes_are_more_than_one_complaint(self, der):
        assert refused(pem_of(der)) == "malformed_certificate"

    @given(st.integers(0, len(DER) - 1), st.binary(max_size=2), st.integers(0, 2))
    def test_whoever_has_no_key_cannot_write_a_certificate_anew(self, at, put, cut):
        changed = DER[:at] + put + DER[at + cut :]
        if changed != DER:
            assert refused(pem_of(changed))

    @given(st.binary(min_size=1, max_size=3), st.data())
    def test_whatever_a_key_signs_is_read_or_refused_by_name(self, put, data):
        """With the key in hand a peer can sign any nonsense: it may be refused, it may not break us."""
        at = data.draw(st.integers(4, len(TBS) - len(put)))
        with suppress(Untrusted):
            found = read_certificate(signed(TBS[:at] + put + TBS[at + len(put) :]))
            assert found.node == "desk"
            assert found.fingerprint == "sha256:" + hashlib.sha256(found.der).hexdigest()
