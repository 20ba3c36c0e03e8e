"""A build on disk on its way to being imported: artifact (fetched, not trusted), expectation, violation, verified artifact."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.source import BlobId, Pin
from kernel_hub.model.value import dataclass

LOCAL_PATH = "local path"
"""The reason of a folder that the caller asked for by its path, rather than an override."""


@dataclass(frozen=True, slots=True)
class FromSource:
    """The build came through resolution: from this commit of this source."""

    pin: Pin
    source: str

    def __str__(self) -> str:
        return f"{self.pin} from {self.source}"


@dataclass(frozen=True, slots=True)
class FromFolder:
    """The build lies in a folder that the caller named.

    Attributes:
        path: The folder as it was named, absolute.
        reason: Why a folder is used: "local path", or the override's variable and entry.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


Origin: TypeAlias = FromSource | FromFolder


@dataclass(frozen=True, slots=True)
class Artifact:
    """A build on this disk, not yet trusted.

    Attributes:
        origin: Where it came from.
        label: The build folder's name.
        root: The build's folder.
        announced: What the source's listing says of each file, by path inside the build; None for a folder of the caller's.
        archs: The architectures that selection took it for.
        blobs: The folder that the cache's own links may point into; None if links are not allowed to leave `root`.
        left_out: Files, by path inside the build, that may be absent because no device here can run them.
    """

    origin: Origin
    label: str
    root: Path
    announced: Mapping[str, BlobId] | None = None
    archs: tuple[str, ...] = ()
    blobs: Path | None = None
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must hold of an artifact before it may be imported. None means "no demand".

    Attributes:
        version: The kernel version that metadata must state.
        backend: The backend that metadata must state (from the label).
        build_digest: The locked digest of the build, metadata included (see `kernel_hub.model.digest.build_digest`).
        locked_by: The lock that says so, for messages.
        require_digest: Whether a build whose metadata has no digest is refused.
    """

    version: int | None = None
    backend: BackendKind | None = None
    build_digest: Digest | None = None
    locked_by: str = ""
    require_digest: bool = False


class ViolationKind(StrEnum):
    """How a tree departs from its manifest."""

    CHANGED = "changed"
    MISSING = "missing"
    EXTRA = "extra"


@dataclass(frozen=True, slots=True)
class Violation:
    """One file that is not as the manifest (or the source's listing) says."""

    kind: ViolationKind
    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        match self.kind:
            case ViolationKind.MISSING:
                return f"{self.path}: missing (expected {self.expected})"
            case ViolationKind.EXTRA:
                return f"{self.path}: not in the manifest"
            case _:
                return f"{self.path}: changed (expected {self.expected}, found {self.found})"


@dataclass(frozen=True, slots=True)
class VerifiedFile:
    """One file that may be imported, as it was when its bytes were checked.

    Attributes:
        digest: Of its bytes.
        size_bytes, mtime_ns, inode: What `stat` said of the open file before it was read.
    """

    digest: Digest
    size_bytes: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class VerifiedArtifact:
    """An artifact whose bytes were checked. Only `kernel_hub.verify.verify` makes one; the importer takes nothing else.

    Attributes:
        artifact: What was verified.
        metadata: Parsed from the verified bytes.
        tree_digest: Over every file that can be imported.
        has_manifest: Whether metadata carried a digest; if not, only the source's own file identities were checked.
        files: Every file that can be imported, by path inside the build. What is not here does not exist for the importer.
        signed_by: The signers whose signatures the policy waited for and found.
    """

    artifact: Artifact
    metadata: Metadata
    tree_digest: Digest
    has_manifest: bool
    files: Mapping[str, VerifiedFile]
    signed_by: tuple[str, ...] = ()
