"""Which commits the cache can serve alone: those that a whole build of lies in it.

References name the newest commits. When those cannot be had, an older commit of the same branch that was loaded before is
what there is. Leaves out when to do without the network (see `kernel_hub.sources.wrappers`).
"""

from __future__ import annotations

from collections.abc import Callable

from kernel_hub.cache import Cache
from kernel_hub.cache.foreign import listing_in_cache
from kernel_hub.cache.whole import has_whole_build
from kernel_hub.errors import ResolutionError
from kernel_hub.index import KnownRefs
from kernel_hub.model.requirement import AnyVersion, RepoId, Requirement, VersionRange, version_of_branch
from kernel_hub.model.source import FileEntry, Refs
from kernel_hub.resolve import resolve
from kernel_hub.select import BUILD_FOLDER


class Loadable:
    """What one cache can serve.

    Args:
        cache: Where files are.
        listing: The listing of a commit's builds as it is remembered; None if it is not.
    """

    def __init__(self, cache: Cache, listing: Callable[[RepoId, str], tuple[FileEntry, ...] | None]) -> None:
        self._cache = cache
        self._listing = listing
        self._found: set[tuple[RepoId, str]] = set()

    def has_build(self, repo: RepoId, commit: str) -> bool:
        """Whether any build of a commit is in the cache whole."""
        # What is whole stays so for as long as anybody asks; what is not may become so.
        if (repo, commit) not in self._found and self._is_whole(repo, commit):
            self._found.add((repo, commit))
        return (repo, commit) in self._found

    def _is_whole(self, repo: RepoId, commit: str) -> bool:
        listing = self._listing(repo, commit)
        if listing is None:
            listing = listing_in_cache(self._cache, repo, commit, BUILD_FOLDER) or ()
        return has_whole_build(self._cache, repo, commit, listing)

    def refs(self, repo: RepoId, known: KnownRefs | None) -> Refs:
        """The remembered references, each at the newest of its commits that can be served, if there is one."""
        foreign = self._cache.refs(repo)
        branches = dict(known.refs.branches) if known is not None else {}
        earlier = known.earlier if known is not None else {}
        for name in sorted({*branches, *foreign}):
            own = (branches[name],) if name in branches else ()
            commits = (*own, *earlier.get(name, ()), *((foreign[name],) if name in foreign else ()))
            branches[name] = next((commit for commit in commits if self.has_build(repo, commit)), commits[0])
        return Refs(branches, known.refs.tags if known is not None else {})

    def refs_for(self, requirement: Requirement, known: KnownRefs | None) -> Refs:
        """As `refs`; a requirement that leaves the version open sees only versions that can be served, if any can."""
        repo, refs = requirement.repo, self.refs(requirement.repo, known)
        if not isinstance(requirement.wish, AnyVersion | VersionRange):
            return refs
        kept = {
            name: commit
            for name, commit in refs.branches.items()
            if version_of_branch(name) is None or self.has_build(repo, commit)
        }
        found = Refs(kept, refs.tags)
        return found if found.versions() else refs

    def has_other(self, requirement: Requirement, known: KnownRefs) -> bool:
        """Whether the cache can serve a requirement by another commit than the references lead to now."""
        try:
            now = resolve(requirement, known.refs).commit
            other = resolve(requirement, self.refs_for(requirement, known)).commit
        except ResolutionError:
            return False
        return other != now and self.has_build(requirement.repo, other)
