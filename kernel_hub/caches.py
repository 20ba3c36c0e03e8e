"""The caches that the settings lead to, looked after together: the Hugging Face cache and those of bound registries.

What is done to one cache is in `kernel_hub.cache.survey`; here is which caches there are. A registry's cache stays after
its namespace is bound no longer, so the folders are taken from the disk and not from the bindings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_hub.cache import Cache
from kernel_hub.cache.survey import CachedBuild, DamagedBlob, Pruned, damaged_blobs, list_builds, prune
from kernel_hub.errors import CacheError
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.select import BUILD_FOLDER
from kernel_hub.settings import Settings

REGISTRIES = "registries"


@dataclass(frozen=True, slots=True)
class Found:
    """One build, with the cache that it lies in.

    Attributes:
        root: The cache's folder.
        build: The build.
    """

    root: Path
    build: CachedBuild

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "repo": str(self.build.repo),
            "commit": self.build.commit,
            "label": self.build.label,
            "refs": list(self.build.refs),
            "files": self.build.files,
            "size_bytes": self.build.size_bytes,
            "missing": list(self.build.missing),
            "last_used_s": int(self.build.last_used_s),
            "cache": str(self.root),
        }


def cache_folders(settings: Settings) -> tuple[Path, ...]:
    """The folder of every cache: the Hugging Face cache first, then those of registries, whether or not they are there."""
    below = settings.home / REGISTRIES
    own = sorted(path for path in below.iterdir() if path.is_dir()) if below.is_dir() else []
    return (settings.hub_cache, *own)


def builds_in_caches(settings: Settings, repo: RepoId | None = None) -> tuple[Found, ...]:
    """Every build in every cache, or those of one kernel."""
    index = Index(settings.home / "index")

    def listing(of: RepoId, commit: str) -> Any:
        return index.listing_of_any_source(of, commit, BUILD_FOLDER)

    return tuple(
        Found(root, build)
        for root in cache_folders(settings)
        for build in list_builds(Cache(root), listing)
        if repo in (None, build.repo)
    )


def damage_in_caches(settings: Settings, repo: RepoId | None = None) -> Iterator[DamagedBlob]:
    """Read every file of every cache, or those of one kernel, and tell which are damaged.

    Raises:
        CacheError: If one cannot be read.
    """
    for root in cache_folders(settings):
        try:
            yield from damaged_blobs(Cache(root), repo)
        except OSError as error:
            raise CacheError(f"{error.filename or root} cannot be read: {error.strerror or error}") from error


def prune_caches(
    settings: Settings,
    *,
    keep: Collection[tuple[RepoId, str]] = (),
    unused_for_s: float | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Prune every cache.

    Args:
        settings: Where the caches are.
        keep: Commits that stay whatever their age, by kernel.
        unused_for_s: Also remove commits that were not used for so long and that no reference names.
        dry_run: Remove nothing, only say what would be.

    Raises:
        CacheError: If something cannot be removed.
    """
    done = [
        prune(Cache(root), keep=keep, unused_for_s=unused_for_s, dry_run=dry_run)
        for root in cache_folders(settings)
        if root.is_dir()
    ]
    return Pruned(tuple(path for one in done for path in one.paths), sum(one.freed_bytes for one in done))
