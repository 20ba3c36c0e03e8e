"""Signing a build with an Ed25519 key."""

from __future__ import annotations

from kernel_hub.model.repo_path import attestation_path
from kernel_hub.signatures.attestation import Envelope, Signature, Statement
from kernel_hub.signatures.ed25519 import PrivateKey
from kernel_hub.trust.signer import Ed25519Signer


def sign_build(
    metadata: bytes, label: str, key: PrivateKey, *, repository: str | None = None, earlier: bytes | None = None
) -> bytes:
    """The attestation of a build.

    Args:
        metadata: The exact bytes of its `metadata.json`; the caller has verified the files against it.
        label: The build's name.
        key: The signer's.
        repository: The repository it is for; None if it may be published anywhere.
        earlier: An attestation that is there already. Signatures over the same statement are kept.

    Raises:
        InvalidDocumentError: If `earlier` is no attestation.
    """
    payload = Statement.of(label, metadata, repository).format()
    envelope = Envelope(payload)
    if earlier is not None:
        found = Envelope.parse(earlier, name=attestation_path(label))
        envelope = found if found.payload == payload else envelope
    key_id = Ed25519Signer("", key.public).key_id
    return envelope.with_signature(Signature(key_id, key.sign(envelope.signed_bytes))).format()
