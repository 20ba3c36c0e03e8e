"""Whether a commit has a build in the cache that could be loaded: all of its files, or all that some machine needed."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_hub.cache.folder import Cache
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.selection import Variant
from kernel_hub.model.source import FileEntry
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE, variants_of


def has_whole_build(cache: Cache, repo: RepoId, commit: str, listing: Iterable[FileEntry]) -> bool:
    """Whether any build of a commit is in the cache whole.

    Args:
        cache: Where files are.
        repo, commit: The commit.
        listing: What the commit has, as far as it is known.
    """
    return any(_is_whole(cache, repo, commit, variant) for variant in variants_of(listing))


def _is_whole(cache: Cache, repo: RepoId, commit: str, variant: Variant) -> bool:
    absent = [entry for entry in variant.files if not cache.has(repo, commit, entry)]
    if not absent:
        return True
    # Of a build that is split by architecture, only what the devices of some process needed may be here.
    inside = f"{BUILD_FOLDER}/{variant.name}/"
    described = next((entry for entry in variant.files if entry.path == f"{inside}{METADATA_FILE}"), None)
    content = cache.read(repo, commit, described) if described is not None else None
    if content is None:
        return False
    try:
        split = Metadata.parse(content).file_archs
    except InvalidDocumentError:
        return False
    return all(entry.path.removeprefix(inside) in split for entry in absent)
