"""The cache of kernel files: the Hugging Face cache, laid out exactly as huggingface_hub does.

    <root>/kernels--<namespace>--<name>/blobs/<blob id>
                                        snapshots/<commit>/<path>  ->  ../../blobs/<blob id>
                                        refs/<branch or tag>       holding the commit
                                        trees/<commit>.json        huggingface_hub's own listing of a commit
    <root>/.locks/kernels--<namespace>--<name>/

So `hf cache` lists and frees what is here, and files that huggingface_hub or another loader fetched are used. A blob that
is present is trusted for its length only; its bytes are checked when written (see `kernel_hub.cache.blob_writer`) and before
import (see `kernel_hub.verify`). A build appears under its name with all of its files or, if the folder was
there before, file by file; who asks whether it is complete asks by the source's listing.

Leaves out what was learned from sources (see `kernel_hub.index`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kernel_hub.cache.blob_writer import Chunks, Whole, is_intact, storing, write_blob
from kernel_hub.cache.worklock import WorkLock
from kernel_hub.model.repo_path import check_file_path, check_ref_name
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.source import FileEntry

STAGING = ".kernel_hub"
"""The folder of a repository in which builds are put together before they appear."""


class Cache:
    """One Hugging Face cache folder.

    Args:
        root: The folder (`HF_HUB_CACHE`); made when the first file is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def repo_folder(self, repo: RepoId) -> Path:
        """The folder of a repository."""
        return self.root / f"kernels--{repo.namespace}--{repo.name}"

    def blobs(self, repo: RepoId) -> Path:
        """The folder that holds a repository's bytes."""
        return self.repo_folder(repo) / "blobs"

    def snapshot(self, repo: RepoId, commit: str) -> Path:
        """The folder of a commit."""
        if not is_commit(commit):
            raise ValueError(f"{commit!r} is not a commit id")
        return self.repo_folder(repo) / "snapshots" / commit

    def path(self, repo: RepoId, commit: str, path: str) -> Path:
        """Where a file of a commit lies, or would."""
        return self.snapshot(repo, commit).joinpath(*check_file_path(path).split("/"))

    def has(self, repo: RepoId, commit: str, entry: FileEntry) -> bool:
        """Whether a file lies in its commit's folder with the announced length."""
        return not self.missing(repo, commit, (entry,))

    def missing(self, repo: RepoId, commit: str, entries: Iterable[FileEntry]) -> list[FileEntry]:
        """Those of some files that do not lie in their commit's folder with the announced length."""
        # Paths are text here: a warm load asks about hundreds of files, and path objects would cost more than the asking.
        snapshot = str(self.snapshot(repo, commit))
        return [
            entry
            for entry in entries
            if not _is_file_of(os.path.join(snapshot, *check_file_path(entry.path).split("/")), entry.size_bytes)  # noqa: PTH118
        ]

    def has_blob(self, repo: RepoId, entry: FileEntry) -> bool:
        """Whether the blob is there with the announced length."""
        try:
            status = (self.blobs(repo) / entry.blob.id).lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == entry.size_bytes

    def read(self, repo: RepoId, commit: str, entry: FileEntry) -> bytes | None:
        """The bytes of a small file if they are here and intact."""
        for path in (self.blobs(repo) / entry.blob.id, self.path(repo, commit, entry.path)):
            if is_intact(path, entry):
                with contextlib.suppress(OSError):
                    return path.read_bytes()
        return None

    def store(
        self,
        repo: RepoId,
        entry: FileEntry,
        chunks: Chunks,
        *,
        whole: Whole | None = None,
        told: Callable[[int], None] | None = None,
        replace: bool = False,
    ) -> None:
        """Write a blob, unless it is there.

        Args:
            repo, entry: Which.
            chunks: Where its bytes come from.
            whole: A quicker way to them, which may be closed.
            told: Told about every piece.
            replace: Whether to write it although it is there, because its bytes are not the right ones.

        Raises:
            LengthMismatchError, BlobMismatchError: If the bytes are not the announced ones; nothing of them stays.
            CacheError: If they cannot be written.
        """
        if not replace and self.has_blob(repo, entry):
            return
        blob = self.blobs(repo) / entry.blob.id
        if blob.is_symlink() and is_intact(blob, entry):
            # huggingface_hub keeps some blobs in a store that repositories share and links to it; a build may hold
            # only links to files of its own repository.
            with storing(self.root):
                self._materialize(blob, blob)
            return
        write_blob(self.blobs(repo), entry, chunks, whole=whole, told=told, replace=replace)

    def place(self, repo: RepoId, commit: str, folder: str, entries: Sequence[FileEntry]) -> None:
        """Make files of a commit appear; their blobs are there, or they themselves are.

        Args:
            repo, commit: Where they belong.
            folder: The folder that they all are below; "" for the root. If it is new, it appears with all of them.
            entries: The files.

        Raises:
            CacheError: If they cannot be written.
        """
        missing = [entry for entry in entries if not self.has(repo, commit, entry)]
        if not missing:
            return
        with storing(self.root):
            if folder and len(missing) == len(entries) and self._place_at_once(repo, commit, folder, entries):
                return
            for entry in missing:
                self._link(self.blobs(repo) / entry.blob.id, self.path(repo, commit, entry.path))

    def discard(self, repo: RepoId, commit: str, folder: str) -> None:
        """Take a folder of a commit away, whatever it holds; the blobs stay.

        Raises:
            CacheError: If that cannot be done.
        """
        # Renamed first, so that nobody finds it half empty.
        aside = self.repo_folder(repo) / f"{STAGING}-{secrets.token_hex(4)}"
        with storing(self.root), contextlib.suppress(FileNotFoundError):
            self.path(repo, commit, folder).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def replace(self, repo: RepoId, commit: str, entries: Sequence[FileEntry]) -> None:
        """Make files that are there lead to their blobs, which have just been written anew."""
        with storing(self.root):
            for entry in entries:
                place = self.path(repo, commit, entry.path)
                if not place.is_symlink():
                    self._link(self.blobs(repo) / entry.blob.id, place)

    def remember_ref(self, repo: RepoId, name: str, commit: str) -> None:
        """Say as huggingface_hub does which commit a branch or tag had; a cache that cannot be written stays as it is.

        The commit must have a folder: huggingface_hub takes a cache with a reference to nothing for damaged.
        """
        path = self.repo_folder(repo).joinpath("refs", *check_ref_name(name).split("/"))
        if self.refs(repo).get(name) == commit or not self.snapshot(repo, commit).is_dir():
            return
        growing = self.repo_folder(repo) / f"{STAGING}-{secrets.token_hex(4)}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            growing.write_text(commit, encoding="ascii")
            growing.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                growing.unlink(missing_ok=True)

    def refs(self, repo: RepoId) -> dict[str, str]:
        """The branches and tags that huggingface_hub, or this cache, last saw; without those that hold no commit."""
        folder = self.repo_folder(repo) / "refs"
        found = {}
        for path in sorted(folder.rglob("*")):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                commit = path.read_text(encoding="ascii").strip() if path.is_file() else ""
                if is_commit(commit):
                    found[path.relative_to(folder).as_posix()] = commit
        return found

    def lock(self, repo: RepoId, name: str, work: str) -> WorkLock:
        """A lock over some work on a repository."""
        return WorkLock(self.root / ".locks" / self.repo_folder(repo).name / f"{name}.kernel_hub.lock", work)

    def _place_at_once(self, repo: RepoId, commit: str, folder: str, entries: Sequence[FileEntry]) -> bool:
        """Build the folder beside and rename it; False if one of that name is there, or appears meanwhile."""
        target = self.path(repo, commit, folder)
        if target.exists():
            return False
        # As deep as the commit's folder, so that the links are right before and after the rename.
        staging = self.repo_folder(repo) / STAGING / secrets.token_hex(8)
        built = staging.joinpath(*folder.split("/"))
        try:
            for entry in entries:
                inside = entry.path.removeprefix(f"{folder}/").split("/")
                self._link(self.blobs(repo) / entry.blob.id, built.joinpath(*inside))
            target.parent.mkdir(parents=True, exist_ok=True)
            built.rename(target)
        except OSError:
            if not target.exists():
                raise
            return False
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            with contextlib.suppress(OSError):
                staging.parent.rmdir()
        return True

    def _link(self, blob: Path, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        growing = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        try:
            try:
                growing.symlink_to(os.path.relpath(blob, place.parent))
            except OSError:
                self._copy(blob, growing)
            growing.replace(place)
        finally:
            with contextlib.suppress(OSError):
                growing.unlink(missing_ok=True)

    def _materialize(self, blob: Path, place: Path) -> None:
        growing = place.with_name(f"{place.name}.left-{secrets.token_hex(4)}.incomplete")
        try:
            self._copy(Path(os.path.realpath(blob)), growing)
            growing.replace(place)
        finally:
            growing.unlink(missing_ok=True)

    def _copy(self, original: Path, place: Path) -> None:
        try:
            os.link(original, place)
        except OSError:
            shutil.copyfile(original, place)


def _is_file_of(place: str, size_bytes: int) -> bool:
    try:
        status = os.lstat(place)
        if stat.S_ISLNK(status.st_mode):
            # The blob itself, and nothing that it might be a link to in turn.
            status = os.lstat(os.path.join(os.path.dirname(place), os.readlink(place)))  # noqa: PTH115, PTH118, PTH120
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size_bytes
