"""Looking after a cache: what is in it, whether it is intact, and what can go.

Only folders of kernels are looked at and touched; models and whatever else shares the Hugging Face cache stay as they are.
Nothing here is needed for loading. What another process may be writing at this moment is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.cache.blob_writer import SUFFIX, hasher_of, is_abandoned, storing
from kernel_hub.cache.folder import STAGING, Cache
from kernel_hub.cache.foreign import listing_in_cache
from kernel_hub.cache.worklock import owner_is_dead
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob
from kernel_hub.select import BUILD_FOLDER, variants_of

Listings = Callable[[RepoId, str], tuple[FileEntry, ...] | None]
"""The files below `build/` of a commit, if a source ever listed them."""

_BLOB = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# A download that is under way has written blobs that nothing leads to yet.
_GRACE_S = 3600.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CachedBuild:
    """One build in a cache.

    Attributes:
        repo, commit, label: Which.
        refs: The branches and tags that were last seen at its commit.
        files: How many of its files are here.
        size_bytes: Their length together.
        missing: Its files that are not here, by path inside the build; empty if nothing is known of any.
        last_used_s: When one of its files was last read or written, in seconds of Unix time, as far as the file system says.
    """

    repo: RepoId
    commit: str
    label: str
    refs: tuple[str, ...]
    files: int
    size_bytes: int
    missing: tuple[str, ...]
    last_used_s: float


@dataclass(frozen=True, slots=True)
class DamagedBlob:
    """A file of the cache whose bytes are not those that its name stands for.

    Attributes:
        repo: Whose it is.
        path: Where it lies.
        expected: Its name.
        found: The name that its bytes have.
    """

    repo: RepoId
    path: Path
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, or would be.

    Attributes:
        paths: Files and folders.
        freed_bytes: Their length together.
    """

    paths: tuple[Path, ...]
    freed_bytes: int


def list_builds(cache: Cache, listings: Listings) -> tuple[CachedBuild, ...]:
    """Every build in a cache, by repository, commit and label."""
    found = []
    for repo in repos_of(cache):
        refs = cache.refs(repo)
        for commit in commits_of(cache, repo):
            names = tuple(sorted(name for name, head in refs.items() if head == commit))
            here = variants_of(listing_in_cache(cache, repo, commit, BUILD_FOLDER, folder_only=True) or ())
            listed = {variant.name: variant for variant in variants_of(listings(repo, commit) or ())}
            for variant in here:
                announced = listed.get(variant.name, variant).files
                missing = [entry for entry in announced if not cache.has(repo, commit, entry)]
                inside = f"{BUILD_FOLDER}/{variant.name}/"
                found.append(
                    CachedBuild(
                        repo,
                        commit,
                        variant.name,
                        names,
                        len(variant.files),
                        variant.size_bytes,
                        tuple(entry.path.removeprefix(inside) for entry in missing),
                        max(_last_used_s(cache.path(repo, commit, entry.path)) for entry in variant.files),
                    )
                )
    return tuple(found)


def damaged_blobs(cache: Cache, repo: RepoId | None = None) -> Iterator[DamagedBlob]:
    """Read every blob, and tell those whose bytes are others than their names say.

    Args:
        cache: The cache.
        repo: Only this repository.
    """
    for owner in repos_of(cache) if repo is None else (repo,):
        for path in _files(cache.blobs(owner)):
            if _BLOB.fullmatch(path.name):
                found = _name_of(path)
                if found != path.name:
                    yield DamagedBlob(owner, path, path.name, found)


def prune(
    cache: Cache,
    *,
    keep: Collection[tuple[RepoId, str]] = (),
    unused_for_s: float | None = None,
    dry_run: bool = False,
    now_s: float | None = None,
) -> Pruned:
    """Remove what nothing needs: leftovers of broken downloads, locks of dead processes, blobs that no commit leads to.

    Args:
        cache: The cache.
        keep: Commits that stay whatever their age, by repository, e.g. those of a lock.
        unused_for_s: Also remove commits of which no file was read or written for so long, and that no reference in the
            cache names; None removes no commit.
        dry_run: Remove nothing, only say what would be.
        now_s: The time, in seconds of Unix time; replaced in tests.

    Raises:
        CacheError: If something cannot be removed.
    """
    now = time.time() if now_s is None else now_s
    going: dict[Path, int] = {}
    for repo in repos_of(cache):
        commits = commits_of(cache, repo)
        if unused_for_s is not None:
            named = set(cache.refs(repo).values())
            for commit in commits:
                snapshot = cache.snapshot(repo, commit)
                is_old = now - max((_last_used_s(path) for path in _files(snapshot)), default=0.0) > unused_for_s
                if is_old and commit not in named and (repo, commit) not in keep:
                    going[snapshot] = 0
        staying = [cache.snapshot(repo, commit) for commit in commits if cache.snapshot(repo, commit) not in going]
        used = {os.path.realpath(path) for snapshot in staying for path in _files(snapshot)}
        going |= _blobs_going(cache.blobs(repo), used, now)
        going |= {path: 0 for path in _children(cache.repo_folder(repo) / STAGING) if now - _changed_s(path) > _GRACE_S}
    going |= {path: _length(path) for path in _dead_locks(cache.root / ".locks", now)}
    if not dry_run:
        with storing(cache.root):
            for path in going:
                _remove(path)
    return Pruned(tuple(going), sum(going.values()))


def repos_of(cache: Cache) -> tuple[RepoId, ...]:
    """The repositories of kernels in a cache."""
    found = []
    for path in _children(cache.root):
        kind, _, name = path.name.partition("--")
        if kind == "kernels" and path.is_dir():
            with contextlib.suppress(InvalidDocumentError):
                found.append(RepoId.parse(name.replace("--", "/", 1)))
    return tuple(sorted(found))


def commits_of(cache: Cache, repo: RepoId) -> tuple[str, ...]:
    """The commits of a repository that have a folder in a cache."""
    return tuple(path.name for path in _children(cache.repo_folder(repo) / "snapshots") if is_commit(path.name))


def _blobs_going(folder: Path, used: Collection[str], now_s: float) -> dict[Path, int]:
    going = {}
    for path in _files(folder):
        with contextlib.suppress(OSError):
            is_left = path.name.endswith(SUFFIX) and is_abandoned(path)
            is_unused = (
                _BLOB.fullmatch(path.name) is not None
                and os.path.realpath(path) not in used
                and now_s - _changed_s(path) > _GRACE_S
            )
            if is_left or is_unused:
                going[path] = _length(path)
    return going


def _dead_locks(folder: Path, now_s: float) -> Iterator[Path]:
    for path in _files(folder):
        # The locks of huggingface_hub lie in the same folders and are meant to stay.
        if ".kernel_hub.lock" in path.name:
            with contextlib.suppress(OSError):
                if owner_is_dead(path.read_bytes()) or now_s - _changed_s(path) > _GRACE_S:
                    yield path


def _name_of(path: Path) -> str:
    hasher = hasher_of(GitBlob("") if len(path.name) == 40 else LfsBlob(""), _length(path))
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if not path.is_dir()]


def _length(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _changed_s(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _last_used_s(path: Path) -> float:
    try:
        status = path.stat()
    except OSError:
        return 0.0
    return max(status.st_atime, status.st_mtime)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
