"""The protocols between the core and where kernels live: `Source` is read, `Sink` is published to.

Every implementation passes the one contract suite in tests/contract. Paths inside a repository are '/' separated and
relative. Commit ids are 40 or 64 lower-case hexadecimal digits. Implementations raise `ResolutionError` for what does not
exist, `FetchError` for what cannot be reached, and `InvalidDocumentError` for answers outside the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from kernel_hub.model.requirement import RepoId, version_of_branch
from kernel_hub.model.value import dataclass


@dataclass(frozen=True, slots=True)
class GitBlob:
    """A file's identity as git has it: SHA-1 over `blob <size>\\0` and the bytes, in hexadecimal."""

    id: str


@dataclass(frozen=True, slots=True)
class LfsBlob:
    """A file's identity in large-file storage: SHA-256 over its bytes, in hexadecimal."""

    id: str


BlobId: TypeAlias = GitBlob | LfsBlob


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a commit.

    Attributes:
        path: Relative to the repository's root.
        size_bytes: Its length.
        blob: The identity of its bytes, which also names it in the cache.
        xet: The storage id if the source offers the file through Xet, else None.
    """

    path: str
    size_bytes: int
    blob: BlobId
    xet: str | None = None


@dataclass(frozen=True, slots=True)
class Refs:
    """Branches and tags of a repository, each with the commit it points at."""

    branches: Mapping[str, str]
    tags: Mapping[str, str] = field(default_factory=dict)

    def versions(self) -> dict[int, str]:
        """Commits of the version branches `v<N>`, by version, ascending."""
        found = {version_of_branch(name): commit for name, commit in self.branches.items()}
        return dict(sorted((number, commit) for number, commit in found.items() if number is not None))


@dataclass(frozen=True, slots=True)
class Pin:
    """A requirement resolved: one immutable commit.

    Attributes:
        repo: The repository.
        commit: The commit id.
        version: The kernel version, if the commit was found through a version branch.
        ref: The branch or tag it was found through; None if a commit was asked for.
        newer: The newest version the repository has, if that is above `version`.
    """

    repo: RepoId
    commit: str
    version: int | None = None
    ref: str | None = None
    newer: int | None = None

    def __str__(self) -> str:
        name = f"{self.repo}@{self.ref}" if self.ref else str(self.repo)
        return f"{name} ({self.commit[:12]})"


@dataclass(frozen=True, slots=True)
class PublisherStanding:
    """What a source says of a namespace.

    Attributes:
        trusted: True or False as the source says; None if it could not be asked.
        reason: Why it is unknown, else how it was found.
    """

    trusted: bool | None
    reason: str


class Source(Protocol):
    """Where kernels are read from."""

    @property
    def name(self) -> str:
        """A URL without credentials, or a folder: for messages and records."""

    def refs(self, repo: RepoId) -> Refs:
        """Branches and tags of a repository."""

    def commit_of(self, repo: RepoId, revision: str) -> str:
        """The commit that a branch, tag or commit id names."""

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """Every file below the folder `prefix` ("" for the whole commit), sorted by path; empty if there is no such folder."""

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """One small file.

        Raises:
            RevisionNotFoundError: If the commit has no such file.
            InvalidDocumentError: If it is longer than `limit_bytes`.
        """

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        """The bytes of a file from `start_bytes` on. The caller checks length and identity."""

    def publisher(self, namespace: str) -> PublisherStanding:
        """What the source says of a namespace. Never raises for a source that cannot be reached: that is a standing too."""


@runtime_checkable
class History(Protocol):
    """A source that can tell which commits led to a revision."""

    def commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """The ids of a revision's commit and of those before it, newest first, as far as the source tells."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A file to write in a commit: `content` is its bytes, or a file on disk that holds them."""

    path: str
    content: bytes | Path


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit that was made on no branch, for somebody to look at and merge (a pull request).

    Attributes:
        number: The repository's number for it.
        commit: What it proposes.
        url: Where people look at it; None if the sink has no pages.
    """

    number: int
    commit: str
    url: str | None = None


class Sink(Protocol):
    """Where kernels are published to."""

    @property
    def name(self) -> str:
        """A URL without credentials, or a folder."""

    def create_repo(self, repo: RepoId, *, private: bool = False) -> None:
        """Create the repository with an empty branch `main`, if it is not there."""

    def refs(self, repo: RepoId) -> Refs:
        """Branches and tags of a repository."""

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """As `Source.files`."""

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """As `Source.read`."""

    def create_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> str:
        """Create a branch at commit `start` (default: `main`'s head) if it is not there; its head commit."""

    def commit(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> str:
        """Make one commit on a branch whose head is `parent`; readers see all of it or nothing. The new commit id.

        Raises:
            ConflictError: If the branch's head is not `parent` any more.
        """

    def propose(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> Proposal:
        """As `commit`, but the branch stays where it is. Every call makes a proposal of its own."""
