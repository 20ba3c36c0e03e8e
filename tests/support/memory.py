"""A source and sink in memory: the protocols at their simplest, for tests that need no disk."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernel_hub.errors import (
    ConflictError,
    EntryNotFoundError,
    InvalidDocumentError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from kernel_hub.model.commit import Commit, StoredBlob, StoredFile
from kernel_hub.model.repo_path import check_file_path, check_prefix, check_ref_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, FileEntry, Proposal, PublisherStanding, Refs


class MemoryRegistry:
    """Repositories in memory; both a `Source` and a `Sink`.

    Args:
        name: What it calls itself.
        trusted: What it says of namespaces.
    """

    def __init__(self, name: str = "memory", trusted: Mapping[str, bool] | None = None) -> None:
        self._name = name
        self._trusted = dict(trusted or {})
        self._lock = threading.Lock()
        self._contents: dict[str, bytes] = {}
        self._commits: dict[RepoId, dict[str, Commit]] = {}
        self._branches: dict[RepoId, dict[str, str]] = {}
        self._clock_s = 0
        self._proposed = 0

    @property
    def name(self) -> str:
        return self._name

    def refs(self, repo: RepoId) -> Refs:
        return Refs(dict(sorted(self._heads(repo).items())))

    def commit_of(self, repo: RepoId, revision: str) -> str:
        commit = self._heads(repo).get(revision, revision)
        return self._load(repo, commit).id

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        check_prefix(prefix)
        return tuple(file.entry for file in self._load(repo, commit).below(prefix))

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        content = self._content(repo, commit, path)
        if len(content) > limit_bytes:
            raise InvalidDocumentError(path, f"is longer than {limit_bytes} bytes")
        return content

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        content = self._content(repo, commit, entry.path)[start_bytes:]
        return iter([content] if content else [])

    def publisher(self, namespace: str) -> PublisherStanding:
        return PublisherStanding(self._trusted.get(namespace), "set in memory")

    def create_repo(self, repo: RepoId, *, private: bool = False) -> None:
        with self._lock:
            if repo not in self._branches:
                first = Commit.make((), parents=(), message="Create the repository", time_s=0)
                self._commits[repo] = {first.id: first}
                self._branches[repo] = {"main": first.id}

    def create_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> str:
        check_ref_name(branch)
        target = self.commit_of(repo, "main" if start is None else start)
        with self._lock:
            return self._heads(repo).setdefault(branch, target)

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
        with self._lock:
            heads = self._heads(repo)
            if branch in heads and heads[branch] != parent:
                raise ConflictError(f"branch {branch!r} of {repo} is not at {parent}")
            made = self._made(repo, branch, parent, additions, deletions, message)
            heads[branch] = made
            return made

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
        with self._lock:
            made = self._made(repo, branch, parent, additions, deletions, message)
            self._proposed += 1
            return Proposal(self._proposed, made)

    def _made(
        self,
        repo: RepoId,
        branch: str,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> str:
        files = []
        for addition in additions:
            check_file_path(addition.path)
            content = addition.content.read_bytes() if isinstance(addition.content, Path) else addition.content
            blob = StoredBlob.of(content)
            self._contents[blob.digest] = content
            files.append(StoredFile.of(addition.path, blob))
        if branch not in self._heads(repo):
            raise RevisionNotFoundError(f"{repo} has no branch {branch!r}")
        before = self._load(repo, parent)
        self._clock_s += 1
        made = Commit.make(before.changed(files, deletions), parents=(parent,), message=message, time_s=self._clock_s)
        if made.files == before.files:
            return parent
        self._commits[repo][made.id] = made
        return made.id

    def _heads(self, repo: RepoId) -> dict[str, str]:
        if repo not in self._branches:
            raise RepositoryNotFoundError(f"{self._name} has no repository {repo}")
        return self._branches[repo]

    def _load(self, repo: RepoId, commit: str) -> Commit:
        self._heads(repo)
        found = self._commits[repo].get(commit)
        if found is None:
            raise RevisionNotFoundError(f"{repo} has no revision {commit!r}")
        return found

    def _content(self, repo: RepoId, commit: str, path: str) -> bytes:
        file = self._load(repo, commit).file(path)
        if file is None:
            raise EntryNotFoundError(f"{repo} has no file {path!r}")
        return self._contents[file.blob.digest]
