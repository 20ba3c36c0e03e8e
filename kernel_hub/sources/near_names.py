"""What a name that names nothing was probably meant to be: a kernel of the same owner that is known here already.

Nobody is asked for it. What is known are the kernels that were looked up or loaded before, and all of a registry in a folder.
Leaves out versions and revisions (see `kernel_hub.resolve`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from kernel_hub.cache import Cache
from kernel_hub.cache.survey import repos_of
from kernel_hub.errors import FetchError, InvalidDocumentError, OfflineError, RepositoryNotFoundError
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Source


@runtime_checkable
class ListsRepos(Protocol):
    """A source that can tell what it has without being asked over a network."""

    def repos(self) -> tuple[RepoId, ...]:
        """Every repository."""


def with_meant(
    error: RepositoryNotFoundError | OfflineError,
    repo: RepoId,
    source: Source | None,
    cache: Cache,
    index: Index,
    key: str,
) -> RepositoryNotFoundError | OfflineError:
    """The error with what was probably meant in its hint; as it is if nothing near is known.

    Args:
        error: That the repository is not there, or that nothing is remembered of it.
        repo: What was asked for.
        source: Where it was looked for; None if nobody may be asked.
        cache, index, key: Where kernels of that source are kept and remembered.
    """
    # Imported here, because a name that is right needs none of it.
    import difflib

    names = {known.name for known in _known(repo, source, cache, index, key) if known.namespace == repo.namespace}
    by_small = {name.lower(): name for name in sorted(names - {repo.name})}
    close = difflib.get_close_matches(repo.name.lower(), by_small, n=3)
    if not close:
        return error
    meant = " or ".join(f"{repo.namespace}/{by_small[name]}" for name in close)
    otherwise = f" Else {error.hint()}" if error.hint() else ""
    return type(error)(error.message, hint=f"did you mean {meant}?{otherwise}")


def _known(repo: RepoId, source: Source | ListsRepos | None, cache: Cache, index: Index, key: str) -> Iterator[RepoId]:
    yield from index.repos(key, repo.namespace)
    yield from repos_of(cache)
    if isinstance(source, ListsRepos):
        try:
            yield from source.repos()
        except (FetchError, InvalidDocumentError):
            # What cannot be listed now was not needed for the answer either.
            return
