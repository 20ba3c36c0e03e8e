"""Ed25519 keys and signatures (RFC 8032), through the package `cryptography` of the extra `sign`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError, TrustUnknownError

_MAX_KEY_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private key; it does not show itself.

    Attributes:
        seed: Its 32 bytes.
    """

    seed: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> PrivateKey:
        """A new key."""
        return cls(os.urandom(32))

    @classmethod
    def read(cls, path: Path) -> PrivateKey:
        """Read an unencrypted PKCS #8 key in PEM.

        Raises:
            InvalidDocumentError: If the file is not one.
        """
        _require_cryptography()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            with path.open("rb") as stream:
                content = stream.read(_MAX_KEY_FILE_BYTES)
        except OSError as error:
            raise InvalidDocumentError("private key", f"{path} cannot be read: {error.strerror}") from error
        try:
            key = load_pem_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InvalidDocumentError("private key", f"{path} is not an unencrypted key in PEM") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise InvalidDocumentError("private key", f"{path} is a key of another kind than Ed25519")
        return cls(key.private_bytes_raw())

    def write(self, path: Path) -> None:
        """Write the key for its owner alone; a file that is there is not overwritten.

        Raises:
            FileExistsError: If there is one.
        """
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        content = Ed25519PrivateKey.from_private_bytes(self.seed).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """The signature over a message."""
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the holder of a key signed a message.

    Raises:
        TrustUnknownError: If the package that can tell is not installed.
    """
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _require_cryptography() -> None:
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
    except ImportError as error:
        raise TrustUnknownError(
            f"signatures could not be checked: the package 'cryptography' cannot be imported ({error})",
            hint="pip install 'kernel-hub[sign]'",
        ) from error
