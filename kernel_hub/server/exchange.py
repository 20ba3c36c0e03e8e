"""Requests and replies as values, and what a registry server is set to. Leaves out sockets (see `kernel_hub.server.http`)."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from kernel_hub.model.commit import Commit, StoredBlob, StoredFile
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import PublisherStanding, Refs
from kernel_hub.model.visibility import Visibility

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Site:
    """How a registry is served.

    Attributes:
        token: The bearer token that writing needs; None lets everybody write.
        private: Whether reading needs the token too.
        user: The name that `whoami` gives, and the namespace of repositories created without one.
        inline_limit_bytes: The largest file that clients are told to send inside the commit. Clients with hf_xet installed
            send every other file by Xet, which this server does not offer, so ordinary kernels must stay below it.
        native_by_lfs: Whether files of native code are to be sent by the LFS protocol whatever their size.
        page_rows: Rows of one page of a listing.
        max_small_body_bytes, max_commit_bytes, max_file_bytes: The largest bodies that are read.
        upload_lifetime_s: How long an upload URL is good for.
        secret: Signs upload URLs, because clients send no token with them.
    """

    token: str | None = field(default=None, repr=False)
    private: bool = False
    user: str = "local"
    inline_limit_bytes: int = 64 * MIB
    native_by_lfs: bool = False
    page_rows: int = 1000
    max_small_body_bytes: int = 16 * MIB
    max_commit_bytes: int = 4096 * MIB
    max_file_bytes: int = 50 * 1024 * MIB
    upload_lifetime_s: int = 3600
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def signature(self, text: str) -> str:
        """What shows that this server issued `text`."""
        return hmac.new(self.secret, text.encode(), "sha256").hexdigest()


class BodyKind(Enum):
    """How a request's body is taken in."""

    NONE = auto()
    SMALL = auto()
    SPOOLED = auto()
    BLOB = auto()


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose path was matched.

    Attributes:
        method: As sent; HEAD is answered like GET, without the body.
        origin: Scheme and authority under which the client reached the server, without a final '/'.
        path: The path as it was sent, still quoted.
        names: The decoded variable parts of the path.
        query: The last value of each query parameter.
        headers: By lower-case name.
        now_s: When it arrived, in seconds of Unix time.
        body: A small body.
        spool: Where a large body lies.
        blob: A body that went into the registry's blobs.
    """

    method: str
    origin: str
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    now_s: int
    body: bytes = b""
    spool: Path | None = None
    blob: StoredBlob | None = None

    @property
    def repo(self) -> RepoId:
        """The repository in the path."""
        return RepoId.parse(f"{self.names['namespace']}/{self.names['name']}")


@dataclass(frozen=True, slots=True)
class JsonReply:
    """A JSON document; None is an empty body."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileReply:
    """Bytes of a blob, from `start_bytes` on."""

    blob: StoredBlob
    start_bytes: int
    length_bytes: int
    status: int
    headers: Mapping[str, str]


Reply: TypeAlias = JsonReply | FileReply


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault of this program
    """An answer that is not the one asked for.

    Attributes:
        status: The HTTP status.
        code: The value of `X-Error-Code` by which clients choose their exception; empty for none.
        message: For people.
        extra: Further members of the JSON body.
        headers: Further headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str = "",
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})


class Store(Protocol):
    """What the server needs of a registry."""

    def repos(self) -> tuple[RepoId, ...]: ...

    def visibility(self, repo: RepoId) -> Visibility: ...

    def refs(self, repo: RepoId) -> Refs: ...

    def pulls(self, repo: RepoId) -> Mapping[int, str]: ...

    def commit_of(self, repo: RepoId, revision: str) -> str: ...

    def load(self, repo: RepoId, commit: str) -> Commit: ...

    def history(self, repo: RepoId, commit: str) -> Iterator[Commit]: ...

    def publisher(self, namespace: str) -> PublisherStanding: ...

    def add_repo(self, repo: RepoId, visibility: Visibility) -> bool: ...

    def delete_repo(self, repo: RepoId) -> None: ...

    def add_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> bool: ...

    def delete_branch(self, repo: RepoId, branch: str) -> None: ...

    def create_tag(self, repo: RepoId, tag: str, *, revision: str = "main") -> str: ...

    def delete_tag(self, repo: RepoId, tag: str) -> None: ...

    def widen_commit(
        self, repo: RepoId, commit_id: str, files: Sequence[StoredFile], *, message: str, time_s: int
    ) -> bool: ...

    def point_branch(self, repo: RepoId, branch: str, commit: str) -> None: ...

    def store(self, content: bytes) -> StoredBlob: ...

    def stored(self, digest: str, size_bytes: int | None = None) -> StoredBlob | None: ...

    def commit_files(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str | None,
        files: Sequence[StoredFile],
        deletions: Sequence[str],
        message: str,
        description: str = "",
    ) -> str: ...

    def propose_files(
        self,
        repo: RepoId,
        revision: str,
        *,
        files: Sequence[StoredFile],
        deletions: Sequence[str],
        message: str,
        description: str = "",
    ) -> tuple[int, str]: ...


@dataclass(frozen=True, slots=True)
class Call:
    """An admitted request with what it is about."""

    store: Store
    site: Site
    request: Request

    @property
    def repo(self) -> RepoId:
        """The repository in the path."""
        return self.request.repo

    @property
    def names(self) -> Mapping[str, str]:
        """The variable parts of the path."""
        return self.request.names
