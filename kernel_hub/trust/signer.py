"""Who may sign builds: a named Ed25519 key, or an identity that Sigstore vouches for."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TypeAlias

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

_NAME = Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY_BYTES = 32
_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
_COMMUNITY = "https://github.com/huggingface/kernels-community"


@dataclass(frozen=True, slots=True)
class Ed25519Signer:
    """The holder of a private key.

    Attributes:
        name: What policies call it.
        key: The 32 bytes of the public key.
    """

    name: str
    key: bytes

    @property
    def key_id(self) -> str:
        """The first 32 hexadecimal digits of the SHA-256 digest of the public key."""
        return hashlib.sha256(self.key).hexdigest()[:32]

    @property
    def key_text(self) -> str:
        """The public key in base64, as trust files write it."""
        return base64.b64encode(self.key).decode("ascii")


@dataclass(frozen=True, slots=True)
class SigstoreSigner:
    """An identity that a certificate of Sigstore names.

    Attributes:
        name: What policies call it.
        issuer: The OpenID Connect issuer that vouched for it.
        identities: The certificate's subject must be one of these: a workflow's URI, or a mail address.
        source_repository: The URI of the repository whose workflow signed, if it was one.
    """

    name: str
    issuer: str
    identities: tuple[str, ...]
    source_repository: str | None = None


Signer: TypeAlias = Ed25519Signer | SigstoreSigner

BUILT_IN_SIGNERS: tuple[Signer, ...] = (
    SigstoreSigner(
        "kernels-community",
        _GITHUB_ISSUER,
        tuple(
            f"{_COMMUNITY}/.github/workflows/{workflow}.yaml@refs/heads/main"
            for workflow in ("build", "build-mac", "build-windows", "sign-old-builds")
        ),
        _COMMUNITY,
    ),
)
"""The identities that the ecosystem's own client accepts by default."""


def is_signer_name(text: str) -> bool:
    """Whether policies may call a signer so."""
    return _NAME.fullmatch(text) is not None


def parse_key(text: str) -> bytes:
    """Read a public key in base64.

    Raises:
        InvalidDocumentError: If it is not one of 32 bytes.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidDocumentError("public key", f"{text!r} is not base64") from error
    if len(key) != _KEY_BYTES:
        raise InvalidDocumentError("public key", f"has {len(key)} bytes, and an Ed25519 key has {_KEY_BYTES}")
    return key
