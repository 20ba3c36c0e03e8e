"""A source that does what a test tells it: counts what it is asked, fails, and spoils bytes on the way out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError, RepositoryNotFoundError, RevisionNotFoundError
from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.selection import Accepted
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob, Pin, PublisherStanding, Refs
from kernel_hub.select import variants_of

REPO = RepoId("acme", "axpy")
PIECE_BYTES = 1 << 16


def entry_of(path: str, content: bytes, *, lfs: bool = False) -> FileEntry:
    """The listing's row for a file."""
    blob = StoredBlob.of(content)
    return FileEntry(path, len(content), LfsBlob(blob.digest) if lfs else GitBlob(blob.git_id))


def commit_id(text: str) -> str:
    """A commit id that is the same for the same text."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@dataclass
class ScriptedSource:
    """One repository, `acme/axpy`.

    Attributes:
        commits: By id, files by path.
        branches: By name, the commit.
        trusted: What it says of the publisher.
        calls: What it was asked, in order.
        before: Called first in every method, and before every piece of a file; raises to make it fail.
        spoil: What becomes of a file's bytes on the way out.
        lfs: Whether files are listed as large-file storage.
    """

    commits: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    trusted: bool | None = True
    calls: list[str] = field(default_factory=list)
    before: Callable[[str], None] = lambda call: None
    spoil: Callable[[str, bytes], bytes] = lambda path, content: content
    lfs: bool = False

    name = "scripted:"

    def put(self, files: Mapping[str, bytes], *, branch: str = "v1") -> Pin:
        """Make a commit the head of a branch."""
        commit = commit_id(repr(sorted(files.items())))
        self.commits[commit] = files
        self.branches[branch] = commit
        return Pin(REPO, commit, ref=branch)

    def refs(self, repo: RepoId) -> Refs:
        self._called("refs")
        if repo != REPO:
            raise RepositoryNotFoundError(f"{repo} does not exist")
        return Refs(dict(self.branches))

    def commit_of(self, repo: RepoId, revision: str) -> str:
        self._called("commit_of")
        if revision in self.commits:
            return revision
        if revision not in self.branches:
            raise RevisionNotFoundError(f"no {revision}")
        return self.branches[revision]

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        self._called("files")
        return tuple(
            entry_of(path, content, lfs=self.lfs)
            for path, content in sorted(self.commits[commit].items())
            if not prefix or path.startswith(f"{prefix}/")
        )

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        self._called(f"read {path}")
        if path not in self.commits[commit]:
            raise EntryNotFoundError(f"no {path}")
        content = self.commits[commit][path]
        if len(content) > limit_bytes:
            raise InvalidDocumentError(path, "is too long")
        return content

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        self._called(f"chunks {entry.path} from {start_bytes}")
        content = self.spoil(entry.path, self.commits[commit][entry.path])
        for start in range(start_bytes, len(content), PIECE_BYTES):
            self.before(f"piece {entry.path}")
            yield content[start : start + PIECE_BYTES]

    def publisher(self, namespace: str) -> PublisherStanding:
        self._called("publisher")
        return PublisherStanding(self.trusted, "the test says so")

    def downloads(self) -> list[str]:
        """The files whose bytes were asked for, in order of their names."""
        return sorted(call.split()[1] for call in self.calls if call.startswith("chunks "))

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self.before(call)


def accepted_of(source: ScriptedSource, pin: Pin, label: str = "torch-cpu") -> Accepted:
    """The build of that name, as selection would accept it."""
    listed = variants_of(
        entry_of(path, content, lfs=source.lfs) for path, content in source.commits[pin.commit].items()
    )
    (variant,) = [found for found in listed if found.name == label]
    return Accepted(variant, ())
