"""Attestations: a signed statement that some bytes are the metadata of one build.

The envelope is DSSE (Dead Simple Signing Envelope, protocol version 1): signatures are over `DSSEv1 <length> <type> <length>
<payload>`, so that the payload is never parsed before it is verified. The payload is an in-toto statement, version 1, with
one subject: the build's `metadata.json` with its SHA-256 digest.

One envelope may carry several signatures. It lies at `attestations/<label>.json` beside `build/`.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import Digest, DigestAlgorithm
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.repo_path import attestation_path

BUILD_FOLDER = "build"
MAX_BYTES = 1 << 18
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "urn:kernel-hub:attestation:build:1"


@dataclass(frozen=True, slots=True)
class Statement:
    """What is attested.

    Attributes:
        label: The build's name.
        metadata: The digest of its `metadata.json`, by SHA-256.
        repository: The repository it was signed for; None if it may be published anywhere.
    """

    label: str
    metadata: Digest
    repository: str | None = None

    @classmethod
    def of(cls, label: str, metadata: bytes, repository: str | None = None) -> Statement:
        """The statement about these bytes of metadata."""
        return cls(label, Digest.of(metadata), repository)

    def format(self) -> bytes:
        """The payload."""
        document = {
            "_type": _STATEMENT_TYPE,
            "subject": [
                {"name": f"{BUILD_FOLDER}/{self.label}/metadata.json", "digest": {"sha256": self.metadata.hex}}
            ],
            "predicateType": _PREDICATE_TYPE,
            "predicate": {"label": self.label} | ({"repository": self.repository} if self.repository else {}),
        }
        return json.dumps(document, separators=(",", ":"), sort_keys=True).encode("utf-8")

    @classmethod
    def parse(cls, payload: bytes, *, name: str) -> Statement:
        """Read a payload; only one whose signature was verified should be.

        Raises:
            InvalidDocumentError: If it is not a statement about one build's metadata.
        """
        top = load_json(payload, name=name, limit_bytes=MAX_BYTES)
        for key, expected in (("_type", _STATEMENT_TYPE), ("predicateType", _PREDICATE_TYPE)):
            if top.text(key) != expected:
                raise top.fault(key, f"is not {expected!r}")
        subjects = top.objects("subject")
        if len(subjects) != 1:
            raise top.fault("subject", "must be exactly one")
        predicate = top.object("predicate")
        label = predicate.text("label")
        if subjects[0].text("name") != f"{BUILD_FOLDER}/{label}/metadata.json":
            raise subjects[0].fault("name", "is not the metadata of the build that the predicate names")
        digest = subjects[0].object("digest")
        try:
            metadata = Digest(DigestAlgorithm.SHA256, bytes.fromhex(digest.text("sha256")))
        except ValueError as error:
            raise digest.fault("sha256", "is not 64 hexadecimal digits") from error
        return cls(label, metadata, predicate.optional_text("repository"))


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of an envelope.

    Attributes:
        key_id: A hint which key made it; not itself signed.
        value: Its bytes.
    """

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload with signatures.

    Attributes:
        payload: The bytes that were attested.
        signatures: Of whoever attests them.
    """

    payload: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def signed_bytes(self) -> bytes:
        """What signatures are over."""
        kind = _PAYLOAD_TYPE.encode()
        return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(self.payload), self.payload)

    @classmethod
    def parse(cls, content: bytes, *, name: str) -> Envelope:
        """Read an envelope.

        Raises:
            InvalidDocumentError: If it is not one.
        """
        top = load_json(content, name=name, limit_bytes=MAX_BYTES)
        if top.text("payloadType") != _PAYLOAD_TYPE:
            raise top.fault("payloadType", f"is not {_PAYLOAD_TYPE!r}")
        return cls(
            payload=_base64(top, "payload"),
            signatures=tuple(
                Signature(item.line("keyid") if item.has("keyid") else "", _base64(item, "sig"))
                for item in top.objects("signatures")
            ),
        )

    def format(self) -> bytes:
        """The inverse of `parse`."""
        document = {
            "payloadType": _PAYLOAD_TYPE,
            "payload": base64.b64encode(self.payload).decode("ascii"),
            "signatures": [
                {"keyid": signature.key_id, "sig": base64.b64encode(signature.value).decode("ascii")}
                for signature in self.signatures
            ],
        }
        return json.dumps(document, indent=2).encode("utf-8") + b"\n"

    def with_signature(self, signature: Signature) -> Envelope:
        """This envelope with one more signature, which replaces an earlier one of the same key."""
        others = tuple(other for other in self.signatures if other.key_id != signature.key_id)
        return Envelope(self.payload, (*others, signature))


def attestation_beside(root: Path, label: str) -> Path | None:
    """The file that holds the attestation of the build in `root`, if the folder is laid out as a repository."""
    if root.parent.name != BUILD_FOLDER:
        return None
    path = root.parent.parent / attestation_path(label)
    return path if path.is_file() else None


def _base64(item: JsonObject, key: str) -> bytes:
    try:
        return base64.b64decode(item.text(key), validate=True)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, InvalidDocumentError):
            raise
        raise item.fault(key, "is not base64") from error
