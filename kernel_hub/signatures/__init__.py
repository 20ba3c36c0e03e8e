"""Signatures over a build's metadata, and through its digest over every file of the build.

Two kinds: `metadata.json.sigstore`, the ecosystem's Sigstore bundle beside the metadata, checked offline (`sigstore_bundle`);
and Ed25519 attestations for teams without Sigstore (`attestation`, `ed25519`), which lie outside `build/` because an extra
file there breaks the ecosystem's own verification. `check` decides whether those that were found suffice; it runs before the
metadata is parsed. Both need the extra `sign`.
"""

from __future__ import annotations

from kernel_hub.signatures.attestation import Envelope, Statement
from kernel_hub.signatures.check import Evidence, SignatureDemand, require_signature
from kernel_hub.signatures.ed25519 import PrivateKey
from kernel_hub.signatures.sign import sign_build

__all__ = [
    "Envelope",
    "Evidence",
    "PrivateKey",
    "SignatureDemand",
    "Statement",
    "require_signature",
    "sign_build",
]
