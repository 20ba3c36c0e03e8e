"""A source that is opened when it is first asked.

Most loads find everything in the cache. What only a question needs (the Hub's client with its HTTP library, a registry's
store) is then neither imported nor made. Leaves out remembering (see `kernel_hub.sources.wrappers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_hub.model.requirement import RepoId
    from kernel_hub.model.source import FileEntry, PublisherStanding, Refs, Source
    from kernel_hub.sources.hub_source import HubSource


class LateHub:
    """A Hub as a source (see `kernel_hub.sources.hub_source`), made at its first question.

    Args:
        name: Its URL.
        make: Makes it; what that raises, the first question raises.
    """

    def __init__(self, name: str, make: Callable[[], HubSource]) -> None:
        self._name = name
        self._make = make

    @property
    def name(self) -> str:
        """The Hub's URL; asking for it asks nobody."""
        return self._name

    def hurried(self, patience_s: float) -> Source:
        """See `HubSource.hurried`."""
        return self._hub.hurried(patience_s)

    def refs(self, repo: RepoId) -> Refs:
        """See `Source.refs`."""
        return self._hub.refs(repo)

    def commit_of(self, repo: RepoId, revision: str) -> str:
        """See `Source.commit_of`."""
        return self._hub.commit_of(repo, revision)

    def commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """See `History.commits`."""
        return self._hub.commits(repo, revision)

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """See `Source.files`."""
        return self._hub.files(repo, commit, prefix)

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """See `Source.read`."""
        return self._hub.read(repo, commit, path, limit_bytes=limit_bytes)

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        """See `Source.chunks`."""
        return self._hub.chunks(repo, commit, entry, start_bytes=start_bytes)

    def download(self, repo: RepoId, commit: str, entry: FileEntry, place: Path, told: Callable[[int], None]) -> bool:
        """See `HubSource.download`."""
        return self._hub.download(repo, commit, entry, place, told)

    def publisher(self, namespace: str) -> PublisherStanding:
        """See `Source.publisher`."""
        return self._hub.publisher(namespace)

    @cached_property
    def _hub(self) -> HubSource:
        return self._make()
