"""Digests of bytes and manifests of trees.

The metadata digest of the ecosystem (repository format, section c) lists, for one build, every file's digest as standard
base64 with padding, keys sorted by UTF-8 bytes. Excluded: the top-level `metadata.json` and `metadata.json.sigstore`, any
path with a `__pycache__` component, and the extension `.pyc` exactly (a file named `.pyc`, or ending `.PYC`, is listed).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Protocol

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.value import dataclass


class DigestAlgorithm(StrEnum):
    """The algorithms that metadata may name."""

    SHA256 = "sha256"
    SHA512 = "sha512"


_SIZES_BYTES = {DigestAlgorithm.SHA256: 32, DigestAlgorithm.SHA512: 64}
_CONSTRUCTORS = {DigestAlgorithm.SHA256: hashlib.sha256, DigestAlgorithm.SHA512: hashlib.sha512}


class Hasher(Protocol):
    """What `hashlib` objects offer and this package uses."""

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """The digest of some bytes under one algorithm."""

    algorithm: DigestAlgorithm
    value: bytes

    def __post_init__(self) -> None:
        expected_bytes = _SIZES_BYTES[self.algorithm]
        if len(self.value) != expected_bytes:
            raise InvalidDocumentError(
                "digest", f"{self.algorithm.value} has {expected_bytes} bytes, this one {len(self.value)}"
            )

    @classmethod
    def of(cls, content: bytes, algorithm: DigestAlgorithm = DigestAlgorithm.SHA256) -> Digest:
        """The digest of `content`."""
        return cls(algorithm, _CONSTRUCTORS[algorithm](content).digest())

    @classmethod
    def from_base64(cls, algorithm: DigestAlgorithm, text: str) -> Digest:
        """Read the form that metadata uses: standard base64 with padding.

        Raises:
            InvalidDocumentError: If the text is not that, or of the wrong length.
        """
        try:
            value = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidDocumentError("digest", f"{text!r} is not base64") from error
        return cls(algorithm, value)

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read `sha256:<hex>`, the inverse of `str`.

        Raises:
            InvalidDocumentError: If the text is not that.
        """
        name, _, digits = text.partition(":")
        try:
            return cls(DigestAlgorithm(name), bytes.fromhex(digits))
        except ValueError as error:
            if isinstance(error, InvalidDocumentError):
                raise
            raise InvalidDocumentError("digest", f"{text!r} is not of the form 'sha256:<hex>'") from error

    @property
    def base64(self) -> str:
        """The form that metadata uses."""
        return base64.b64encode(self.value).decode("ascii")

    @property
    def hex(self) -> str:
        """Lower-case hexadecimal digits, without the algorithm."""
        return self.value.hex()

    def __str__(self) -> str:
        return f"{self.algorithm.value}:{self.hex}"


_LENGTH = struct.Struct(">Q").pack
# The algorithm as a part of its own, and the length of what follows.
_NAMED = {
    algorithm: _LENGTH(len(algorithm.value)) + algorithm.value.encode("ascii") + _LENGTH(size_bytes)
    for algorithm, size_bytes in _SIZES_BYTES.items()
}


def covers(path: str) -> bool:
    """Whether a manifest lists the file at `path` (inside the build, '/' separated)."""
    return path not in ("metadata.json", "metadata.json.sigstore") and not is_bytecode(path)


def is_bytecode(path: str) -> bool:
    """Whether a file is bytecode by its path, which no manifest lists and no client fetches or imports."""
    # Almost no path is; taking one apart is what costs.
    if "__pycache__" not in path and not path.endswith(".pyc"):
        return False
    parts = PurePosixPath(path)
    return "__pycache__" in parts.parts or parts.suffix == ".pyc"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The digests of a tree's files, by path inside the tree ('/' separators), in order of their UTF-8 bytes."""

    algorithm: DigestAlgorithm
    files: Mapping[str, Digest]

    def __post_init__(self) -> None:
        ordered = dict(sorted(self.files.items(), key=lambda item: item[0].encode("utf-8")))
        object.__setattr__(self, "files", MappingProxyType(ordered))

    def tree_digest(self) -> Digest:
        """One digest for the whole tree, over length-prefixed paths and digests, so that no two trees run together."""
        return tree_digest(self.files.items())


def tree_digest(files: Iterable[tuple[str, Digest]]) -> Digest:
    """SHA-256 over `path length, path, digest length, digest` of each file, in order of the paths' UTF-8 bytes.

    Lengths are 8-byte big-endian, so (`a`, `bc`) and (`ab`, `c`) differ.
    """
    lines = sorted([(path.encode("utf-8"), digest) for path, digest in files])
    parts: list[bytes] = []
    for path, digest in lines:
        parts += (_LENGTH(len(path)), path, _NAMED[digest.algorithm], digest.value)
    return Digest.of(b"".join(parts))


def build_digest(metadata: bytes, files: Manifest | Iterable[tuple[str, Digest]]) -> Digest:
    """The digest of a whole build, which locks hold: over each file's path and digest, `metadata.json` included.

    With a manifest, `files` is the manifest: its own digests then stand for the files, so that a lock can be made from
    metadata alone. Without, it is the SHA-256 digest of every file that a manifest would list.

    Args:
        metadata: The bytes of `metadata.json`.
        files: The manifest in it, or digests by path.
    """
    listed = files.files.items() if isinstance(files, Manifest) else files
    return tree_digest([("metadata.json", Digest.of(metadata)), *listed])
