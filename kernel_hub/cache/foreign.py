"""What other programs left in the Hugging Face cache: listings of commits whose files we were never told of.

huggingface_hub keeps the listing of a commit in `trees/<commit>.json` when it downloads a snapshot. Without one, the
commit's own folder is the listing, as far as it goes: the identity of a file is the name of the blob that it links to.
Such a listing says what is there, not what belongs there; the digest in a build's metadata still tells what is missing.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from kernel_hub.cache.blob_writer import hasher_of
from kernel_hub.cache.folder import Cache
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.repo_path import check_file_path
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import BlobId, FileEntry, GitBlob, LfsBlob

_MAX_TREE_BYTES = 128 << 20
_FORMAT = 1
_COPY_BYTES = 1 << 20
_GIT_ID = Pattern(r"[0-9a-f]{40}")
_LFS_ID = Pattern(r"[0-9a-f]{64}")


def listing_in_cache(
    cache: Cache, repo: RepoId, commit: str, prefix: str, *, folder_only: bool = False
) -> tuple[FileEntry, ...] | None:
    """The files below `prefix` of a commit, as the cache itself knows them; None if it knows nothing of the commit.

    Args:
        cache, repo, commit, prefix: What to look at.
        folder_only: Whether only the commit's folder counts, i.e. what is here and not what was once listed.
    """
    entries = None if folder_only else _tree(cache.repo_folder(repo) / "trees" / f"{commit}.json")
    if entries is None:
        folder = cache.snapshot(repo, commit)
        if not folder.is_dir():
            return None
        entries = tuple(_walk(folder))
    found = (entry for entry in entries if not prefix or entry.path.startswith(f"{prefix}/"))
    return tuple(sorted(found, key=lambda entry: entry.path))


def _tree(path: Path) -> tuple[FileEntry, ...] | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_TREE_BYTES + 1)
        top = load_json(content, name=str(path), limit_bytes=_MAX_TREE_BYTES)
        if top.whole("format_version") != _FORMAT:
            return None
        files = top.object("files")
        return tuple(_entry(name, files.object(name)) for name in files.names())
    except (OSError, InvalidDocumentError):
        return None


def _entry(path: str, item: JsonObject) -> FileEntry:
    check_file_path(path)
    id, size_bytes = item.text("blob_id"), item.size("size")
    if item.has("lfs_sha256"):
        id, size_bytes = item.text("lfs_sha256"), item.size("lfs_size")
    blob = _blob(id)
    if blob is None:
        raise item.fault("", "has no file identity")
    return FileEntry(path, size_bytes, blob, item.optional_text("xet_hash"))


def _walk(folder: Path) -> Iterator[FileEntry]:
    for path in sorted(folder.rglob("*")):
        try:
            status = path.stat()
            name = check_file_path(path.relative_to(folder).as_posix())
            if stat.S_ISREG(status.st_mode):
                linked = _blob(path.readlink().name) if path.is_symlink() else None
                yield FileEntry(name, status.st_size, linked or _identify(path, status.st_size))
        except (OSError, InvalidDocumentError):
            continue


def _blob(id: str) -> BlobId | None:
    if _GIT_ID.fullmatch(id):
        return GitBlob(id)
    return LfsBlob(id) if _LFS_ID.fullmatch(id) else None


def _identify(path: Path, size_bytes: int) -> BlobId:
    hasher = hasher_of(GitBlob(""), size_bytes)
    with path.open("rb") as file:
        while chunk := file.read(_COPY_BYTES):
            hasher.update(chunk)
    return GitBlob(hasher.hexdigest())
