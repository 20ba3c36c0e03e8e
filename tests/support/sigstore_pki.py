"""A Sigstore of one's own for tests: certificate authority, certificate log, transparency log, and bundles signed with them.

Everything is made from new keys and nothing is asked of any network; the certificates name the identities that a test gives.
Formats: RFC 5280 (certificates), RFC 6962 (certificate timestamps, Merkle leaf), the transparency log's entry
`hashedrekord` 0.0.1 with a signed checkpoint, and bundle version 0.3.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

SIGNED_AT = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
_FULCIO = "1.3.6.1.4.1.57264.1."
_SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_LOG_NAME = "log.test"


@dataclass(frozen=True)
class Identity:
    """What a certificate says of its holder: a workflow's URIs."""

    issuer: str = "https://token.actions.githubusercontent.com"
    workflow: str = "https://github.com/huggingface/kernels-community/.github/workflows/build.yaml@refs/heads/main"
    repository: str = "https://github.com/huggingface/kernels-community"


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_der(key)).digest()


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _signed(key: ec.EllipticCurvePrivateKey, message: bytes) -> bytes:
    return key.sign(message, ec.ECDSA(SHA256()))


def _der_length(length: int) -> bytes:
    if length < 128:
        return bytes([length])
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


def _der_text(text: str) -> bytes:
    content = text.encode()
    return b"\x0c" + _der_length(len(content)) + content


@dataclass
class FakeSigstore:
    """The authorities, with their keys."""

    ca_key: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)
    ct_key: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)
    log_key: ec.EllipticCurvePrivateKey = field(default_factory=_new_key)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca.test")])
        self._ca = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.ca_key.public_key())
            .serial_number(1)
            .not_valid_before(SIGNED_AT - timedelta(days=365))
            .not_valid_after(SIGNED_AT + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.ca_key.public_key()), critical=False)
            .sign(self.ca_key, SHA256())
        )

    def write_trusted_root(self, path: Path) -> Path:
        """The trust root, as clients of this Sigstore are given it."""

        def log(key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
            return {
                "baseUrl": f"https://{_LOG_NAME}",
                "hashAlgorithm": "SHA2_256",
                "publicKey": {
                    "rawBytes": _b64(_der(key)),
                    "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                    "validFor": {"start": "2020-01-01T00:00:00Z"},
                },
                "logId": {"keyId": _b64(_key_id(key))},
            }

        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log(self.log_key)],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "test", "commonName": "ca.test"},
                    "uri": "https://ca.test",
                    "certChain": {"certificates": [{"rawBytes": _b64(self._ca.public_bytes(Encoding.DER))}]},
                    "validFor": {"start": "2020-01-01T00:00:00Z"},
                }
            ],
            "ctlogs": [log(self.ct_key)],
            "timestampAuthorities": [],
        }
        path.write_text(json.dumps(document))
        return path

    def bundle(self, message: bytes, identity: Identity, *, logged_at: datetime = SIGNED_AT) -> bytes:
        """A bundle that signs a message as somebody."""
        key = _new_key()
        certificate = self._certificate(key, identity)
        signature = _signed(key, message)
        body = self._entry_body(certificate, signature, message)
        leaf = hashlib.sha256(b"\0" + body).digest()
        note = f"{_LOG_NAME}\n1\n{_b64(leaf)}\n"
        note_signature = _key_id(self.log_key)[:4] + _signed(self.log_key, note.encode())
        log_id = _key_id(self.log_key)
        integrated = int(logged_at.timestamp())
        promise = json.dumps(
            {"body": _b64(body), "integratedTime": integrated, "logID": log_id.hex(), "logIndex": 0},
            separators=(",", ":"),
            sort_keys=True,
        )
        document = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _b64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [
                    {
                        "logIndex": "0",
                        "logId": {"keyId": _b64(log_id)},
                        "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
                        "integratedTime": str(integrated),
                        "inclusionPromise": {"signedEntryTimestamp": _b64(_signed(self.log_key, promise.encode()))},
                        "inclusionProof": {
                            "logIndex": "0",
                            "rootHash": _b64(leaf),
                            "treeSize": "1",
                            "hashes": [],
                            "checkpoint": {"envelope": f"{note}\n\u2014 {_LOG_NAME} {_b64(note_signature)}\n"},
                        },
                        "canonicalizedBody": _b64(body),
                    }
                ],
            },
            "messageSignature": {
                "messageDigest": {"algorithm": "SHA2_256", "digest": _b64(hashlib.sha256(message).digest())},
                "signature": _b64(signature),
            },
        }
        return json.dumps(document).encode()

    def _certificate(self, key: ec.EllipticCurvePrivateKey, identity: Identity) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self._ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(SIGNED_AT - timedelta(minutes=5))
            .not_valid_after(SIGNED_AT + timedelta(minutes=5))
            .add_extension(_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca_key.public_key()), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.workflow)]), critical=True
            )
        )
        values = {
            "1": identity.issuer.encode(),
            "8": _der_text(identity.issuer),
            "9": _der_text(identity.workflow),
            "12": _der_text(identity.repository),
        }
        for number, value in values.items():
            extension = x509.UnrecognizedExtension(x509.ObjectIdentifier(_FULCIO + number), value)
            builder = builder.add_extension(extension, critical=False)
        unlogged = builder.sign(self.ca_key, SHA256()).tbs_certificate_bytes
        timestamps = x509.UnrecognizedExtension(_SCT_LIST, self._timestamp_list(unlogged))
        return builder.add_extension(timestamps, critical=False).sign(self.ca_key, SHA256())

    def _timestamp_list(self, certificate: bytes) -> bytes:
        logged_ms = int(SIGNED_AT.timestamp() * 1000)
        entry = _key_id(self.ca_key) + len(certificate).to_bytes(3, "big") + certificate
        signature = _signed(self.ct_key, struct.pack(">BBQH", 0, 0, logged_ms, 1) + entry + b"\0\0")
        timestamp = b"\0" + _key_id(self.ct_key) + struct.pack(">QH", logged_ms, 0) + b"\4\3"
        timestamp += struct.pack(">H", len(signature)) + signature
        listed = struct.pack(">HH", len(timestamp) + 2, len(timestamp)) + timestamp
        return b"\x04" + _der_length(len(listed)) + listed

    def _entry_body(self, certificate: x509.Certificate, signature: bytes, message: bytes) -> bytes:
        document = {
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": hashlib.sha256(message).hexdigest()}},
                "signature": {
                    "content": _b64(signature),
                    "publicKey": {"content": _b64(certificate.public_bytes(Encoding.PEM))},
                },
            },
        }
        return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )
