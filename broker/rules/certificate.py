"""A node's certificate: what must be true of it before anything else is asked.

It is a self-signed Ed25519 leaf that names its node twice (CN and URI SAN). `CA:FALSE` must stand in it, marked
critical: whoever puts a pinned certificate into a bundle of trusted ones would otherwise let that node mint
certificates that are accepted as well. It may not know who is trusted.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, SignatureAlgorithmOID

from broker.errors import Invalid, Untrusted
from broker.rules.key import check_name

#: A certificate of ours has about 700 bytes of PEM.
PEM_BYTES_MAX = 4096

_PEM = re.compile(
    r"\s*-----BEGIN CERTIFICATE-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END CERTIFICATE-----\s*\Z"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: How a version 3 certificate with a positive serial number begins: of others the parser only complains on stderr.
_HEAD = re.compile(
    rb"\x30(?:\x81.|\x82..)\x30(?:\x81.|\x82..)\xa0\x03\x02\x01\x02"
    rb"\x02(?:[\x01-\x14][\x01-\x7f]|[\x02-\x14]\x00)",
    re.DOTALL,
)
#: What stands between what is signed and the signature: Ed25519, and a bit string without unused bits.
_SIGNED_WITH = bytes.fromhex("300506032b6570034100")

#: What the parser raises for bytes that look like a certificate and are none.
_UNREADABLE = (
    ValueError,
    TypeError,
    UserWarning,  # where warnings are errors
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)

#: The points of small order, without their sign: under such a key one signature fits every message.
_P = 2**255 - 19
_Y8 = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
_WEAK = {0, 1, _P - 1, _P, _P + 1, _Y8, _P - _Y8}


@dataclass(frozen=True)
class Certificate:
    """A certificate that was read and holds together. `pem` is its one form, whatever was read.

    `public_key` has 32 bytes; the times are epoch ms, both inclusive.
    """

    node: str
    fingerprint: str
    pem: str = field(repr=False)
    der: bytes = field(repr=False)
    public_key: bytes = field(repr=False)
    not_before_ms: int
    not_after_ms: int


def urn(node: str) -> str:
    """The URI SAN that names a node."""
    return f"urn:fleet-broker:node:{node}"


# Pure and asked again for every decision about a peer; what is refused is not remembered.
@lru_cache(maxsize=2048)
def read_certificate(pem: str) -> Certificate:
    """Read the one certificate that a PEM text holds; raise Untrusted, naming the first thing that is wrong.

    Rules: `too_large`, `malformed_certificate`, `not_ed25519`, `weak_key`, `is_ca`, `name_mismatch`, `bad_signature`.
    Whether it is valid today is another question: `check_valid`.
    """
    if len(pem) > PEM_BYTES_MAX:
        raise Untrusted(
            "too_large", f"a certificate of {len(pem)} characters where {PEM_BYTES_MAX} are allowed"
        )
    found = _PEM.match(pem)
    if not found:
        raise _malformed("this is not the PEM text of one certificate")
    try:
        der = b64decode(re.sub(r"[\r\n]", "", found[1]), validate=True)
        if not _HEAD.match(der):
            raise _malformed("this is no X.509 certificate of version 3 with a serial number")
        certificate = x509.load_der_x509_certificate(der)
        return _checked(certificate, der)
    except _UNREADABLE as wrong:
        raise _malformed(f"this certificate cannot be read: {type(wrong).__name__}") from None


def check_valid(certificate: Certificate, now_ms: int) -> None:
    """Raise Untrusted(`not_yet_valid` or `expired`) where `now_ms` lies outside the certificate's time."""
    if now_ms < certificate.not_before_ms:
        raise Untrusted(
            "not_yet_valid",
            f"the certificate of {certificate.node} is not valid yet: see the clocks",
        )
    if now_ms > certificate.not_after_ms:
        raise Untrusted("expired", f"the certificate of {certificate.node} has expired")


def _checked(certificate: x509.Certificate, der: bytes) -> Certificate:
    key = certificate.public_key()
    if (
        not isinstance(key, Ed25519PublicKey)
        or certificate.signature_algorithm_oid != SignatureAlgorithmOID.ED25519
    ):
        raise Untrusted("not_ed25519", "only Ed25519 certificates are taken")
    public_key = key.public_bytes_raw()
    if int.from_bytes(public_key, "little") % 2**255 in _WEAK:
        raise Untrusted("weak_key", "anybody can sign under this public key")
    _check_leaf(certificate)
    node = _name(certificate)
    if certificate.issuer != certificate.subject:
        raise Untrusted("bad_signature", "the certificate is not self-signed")
    signed = certificate.tbs_certificate_bytes
    if not der.endswith(signed + _SIGNED_WITH + certificate.signature):
        # Else anybody could write the same certificate with another fingerprint.
        raise _malformed("the certificate is not in its one encoding")
    try:
        key.verify(certificate.signature, signed)
    except InvalidSignature:
        raise Untrusted("bad_signature", "the certificate is not signed by its own key") from None
    return Certificate(
        node=node,
        fingerprint="sha256:" + hashlib.sha256(der).hexdigest(),
        pem=certificate.public_bytes(Encoding.PEM).decode(),
        der=der,
        public_key=public_key,
        not_before_ms=_ms(certificate.not_valid_before_utc),
        not_after_ms=_ms(certificate.not_valid_after_utc),
    )


def _check_leaf(certificate: x509.Certificate) -> None:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        raise Untrusted("is_ca", "the certificate does not say CA:FALSE") from None
    if constraints.value.ca or not constraints.critical:
        raise Untrusted("is_ca", "the certificate does not say CA:FALSE, marked critical")


def _name(certificate: x509.Certificate) -> str:
    """The node that CN and URI SAN name alike; any second name could be what somebody else looks at."""
    common = [attribute.value for attribute in certificate.subject]
    kinds = [attribute.oid for attribute in certificate.subject]
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = list(extension.value)
    except x509.ExtensionNotFound:
        names = []
    if kinds != [NameOID.COMMON_NAME]:
        raise Untrusted("name_mismatch", "the certificate must name its subject by one CN alone")
    try:
        node = check_name("the CN", str(common[0]))
    except Invalid as wrong:
        raise Untrusted("name_mismatch", str(wrong)) from None
    if names != [x509.UniformResourceIdentifier(urn(node))]:
        raise Untrusted("name_mismatch", f"the certificate must have one SAN, the URI {urn(node)}")
    return node


def _malformed(why: str) -> Untrusted:
    return Untrusted("malformed_certificate", why)


def _ms(moment: datetime) -> int:
    return int((moment - _EPOCH).total_seconds()) * 1000
