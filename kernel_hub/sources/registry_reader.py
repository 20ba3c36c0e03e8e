"""The reading half of a registry folder: repositories, references, commits, files. It takes no lock and writes nothing.

Leaves out the layout of the folder (see `kernel_hub.sources.registry_store`) and every change (see
`kernel_hub.sources.directory`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager

from kernel_hub.errors import (
    BlobMismatchError,
    EntryNotFoundError,
    InvalidDocumentError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.model.commit import Commit, StoredBlob
from kernel_hub.model.repo_path import check_prefix
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import FileEntry, PublisherStanding, Refs
from kernel_hub.model.visibility import Visibility
from kernel_hub.sources.blobs import CHUNK_BYTES
from kernel_hub.sources.durable import reaching
from kernel_hub.sources.registry_store import RefKind, RegistryStore

_PREFIXES = {"refs/heads/": RefKind.HEAD, "refs/tags/": RefKind.TAG, "refs/pr/": RefKind.PULL}


class RegistryReader:
    """A registry folder as a `Source`, and what a server needs to read beyond that."""

    def __init__(self, store: RegistryStore) -> None:
        self._store = store

    @property
    def name(self) -> str:
        """The folder."""
        return str(self._store.root)

    def repos(self) -> tuple[RepoId, ...]:
        """Every repository, sorted by name."""
        with self._reaching():
            return self._store.repos()

    def visibility(self, repo: RepoId) -> Visibility:
        """Who may read a repository."""
        with self._reaching():
            return self._store.visibility(repo)

    def refs(self, repo: RepoId) -> Refs:
        with self._reaching():
            return Refs(self._store.references(repo, RefKind.HEAD), self._store.references(repo, RefKind.TAG))

    def pulls(self, repo: RepoId) -> Mapping[int, str]:
        """Proposed changes: the head commit of each, by number."""
        with self._reaching():
            found = self._store.references(repo, RefKind.PULL)
            return dict(sorted((int(number), commit) for number, commit in found.items()))

    def commit_of(self, repo: RepoId, revision: str) -> str:
        with self._reaching():
            for kind, name in _readings(revision):
                commit = self._store.reference(repo, kind, name)
                if commit is not None:
                    return commit
            if self._store.has_commit(repo, revision):
                return revision
        raise RevisionNotFoundError(f"{repo} has no branch, tag or commit {revision!r}")

    def load(self, repo: RepoId, commit: str) -> Commit:
        """A commit with everything in its manifest.

        Raises:
            RevisionNotFoundError: If the repository has no such commit.
        """
        with self._reaching():
            if not self._store.has_commit(repo, commit):
                raise RevisionNotFoundError(f"{repo} has no commit {commit!r}")
            return self._store.commit(repo, commit)

    def history(self, repo: RepoId, commit: str) -> Iterator[Commit]:
        """A commit and those before it along first parents, newest first, as far as they are here."""
        current: Commit | None = self.load(repo, commit)
        while current is not None:
            yield current
            parent = next(iter(current.parents), None)
            with self._reaching():
                known = parent is not None and self._store.has_commit(repo, parent)
            current = self.load(repo, parent) if known and parent is not None else None

    def commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """See `History.commits`."""
        return tuple(commit.id for commit in self.history(repo, self.commit_of(repo, revision)))

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        check_prefix(prefix)
        return tuple(file.entry for file in self.load(repo, commit).below(prefix))

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        file = self.load(repo, commit).file(path)
        if file is None:
            raise EntryNotFoundError(f"{repo} has no file {path!r} at commit {commit[:12]}")
        if file.blob.size_bytes > limit_bytes:
            raise InvalidDocumentError(f"{path} of {repo}", f"is longer than {limit_bytes} bytes")
        content = b"".join(self.stored_chunks(file.blob))
        if StoredBlob.of(content) != file.blob:
            raise BlobMismatchError(f"{path} of {repo} in {self.name} is damaged: its digest is not {file.blob.digest}")
        return content

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        file = self.load(repo, commit).file(entry.path)
        if file is None:
            raise EntryNotFoundError(f"{repo} has no file {entry.path!r} at commit {commit[:12]}")
        return self.stored_chunks(file.blob, start_bytes=start_bytes)

    def stored_chunks(
        self, blob: StoredBlob, *, start_bytes: int = 0, length_bytes: int | None = None
    ) -> Iterator[bytes]:
        """Bytes of a blob, at most `length_bytes` of them from `start_bytes` on.

        Raises:
            SourceUnavailableError: If the blob is missing.
            BlobMismatchError: If it is too short, once what is there was given.
        """
        left_bytes = max(0, blob.size_bytes - start_bytes) if length_bytes is None else length_bytes
        with self._reaching(), self._store.blobs.path(blob.digest).open("rb") as file:
            file.seek(start_bytes)
            while left_bytes > 0 and (chunk := file.read(min(CHUNK_BYTES, left_bytes))):
                left_bytes -= len(chunk)
                yield chunk
        if left_bytes > 0:
            raise BlobMismatchError(f"the blob {blob.digest} in {self.name} is damaged: {left_bytes} bytes are missing")

    def publisher(self, namespace: str) -> PublisherStanding:
        try:
            with self._reaching():
                trusted = self._store.publishers().get(namespace)
        except (SourceUnavailableError, InvalidDocumentError) as error:
            return PublisherStanding(None, str(error))
        if trusted is None:
            return PublisherStanding(None, f"the registry {self.name} says nothing of {namespace!r}")
        return PublisherStanding(trusted, f"the registry {self.name} says so")

    def _reaching(self) -> AbstractContextManager[None]:
        return reaching(self._store.root)


def _readings(revision: str) -> tuple[tuple[RefKind, str], ...]:
    """What a revision may name, in the order in which it is tried."""
    for prefix, kind in _PREFIXES.items():
        if revision.startswith(prefix):
            return ((kind, revision[len(prefix) :]),)
    return ((RefKind.HEAD, revision), (RefKind.TAG, revision))
