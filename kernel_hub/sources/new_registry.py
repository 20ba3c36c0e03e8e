"""A registry folder that is not there yet: it comes about with its first repository.

So a publication that is refused, or only planned, leaves no trace where it would have gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_hub.errors import RepositoryNotFoundError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, FileEntry, Proposal, Refs
from kernel_hub.sources.directory import DirectoryRegistry


class NewRegistry:
    """A `Sink` over an absent or empty folder.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: DirectoryRegistry | None = None

    @property
    def name(self) -> str:
        """The folder."""
        return str(self._root)

    def create_repo(self, repo: RepoId, *, private: bool = False) -> None:
        """See `Sink.create_repo`; the first one makes the registry."""
        self.make().create_repo(repo, private=private)

    def make(self) -> DirectoryRegistry:
        """The registry, made if it is not there yet."""
        self._made = self._made or DirectoryRegistry.create(self._root)
        return self._made

    def refs(self, repo: RepoId) -> Refs:
        """See `Sink.refs`."""
        return self._registry(repo).refs(repo)

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """See `Sink.files`."""
        return self._registry(repo).files(repo, commit, prefix)

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """See `Sink.read`."""
        return self._registry(repo).read(repo, commit, path, limit_bytes=limit_bytes)

    def create_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> str:
        """See `Sink.create_branch`."""
        return self._registry(repo).create_branch(repo, branch, start=start)

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
        """See `Sink.commit`."""
        made = self._registry(repo)
        return made.commit(repo, branch, parent=parent, additions=additions, deletions=deletions, message=message)

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
        """See `Sink.propose`."""
        made = self._registry(repo)
        return made.propose(repo, branch, parent=parent, additions=additions, deletions=deletions, message=message)

    def _registry(self, repo: RepoId) -> DirectoryRegistry:
        if self._made is None:
            raise RepositoryNotFoundError(f"{self._root} has no repository {repo}: it is no registry yet")
        return self._made
