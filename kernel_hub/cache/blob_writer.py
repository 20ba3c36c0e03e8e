"""Writing one blob into a cache: checked while it streams in, whole or absent, taken up again after a break.

The bytes go into a file of this process alone, are counted and digested on the way, and get the blob's name only if both
are what the source announced. What a broken or killed download left behind is copied, never continued in place: its
writer may still be there, and would write into what has become the blob.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from kernel_hub.cache.worklock import is_dead
from kernel_hub.errors import BlobMismatchError, CacheError, LengthMismatchError
from kernel_hub.model.digest import Hasher
from kernel_hub.model.source import BlobId, FileEntry, GitBlob

Chunks = Callable[[int], Iterable[bytes]]
"""The bytes of a file from an offset on."""

Whole = Callable[[Path, Callable[[int], None]], bool]
"""Writes a file as a whole, telling about its pieces; False if it cannot."""

SUFFIX = ".incomplete"
# Less is fetched again sooner than a leftover is looked for.
_KEEP_FROM_BYTES = 1 << 20
_ABANDONED_AFTER_S = 3600.0
_COPY_BYTES = 1 << 20
_VARIABLES = "HF_HUB_CACHE (for kernels of a bound registry: KERNEL_HUB_HOME)"
_HOST = re.sub(r"[^A-Za-z0-9]", "_", platform.node())[:40]


def hasher_of(blob: BlobId, size_bytes: int) -> Hasher:
    """A hasher whose hexadecimal digest over a file's bytes is the blob's id."""
    if isinstance(blob, GitBlob):
        return hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)
    return hashlib.sha256()


def is_intact(path: Path, entry: FileEntry) -> bool:
    """Whether a file holds exactly the bytes that the source announced."""
    hasher = hasher_of(entry.blob, entry.size_bytes)
    try:
        # A pipe in the place of a file would be waited for.
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        with path.open("rb") as file:
            while chunk := file.read(_COPY_BYTES):
                hasher.update(chunk)
            return file.tell() == entry.size_bytes and hasher.hexdigest() == entry.blob.id
    except OSError:
        return False


def write_blob(
    folder: Path,
    entry: FileEntry,
    chunks: Chunks,
    *,
    whole: Whole | None = None,
    told: Callable[[int], None] | None = None,
    replace: bool = False,
) -> None:
    """Put a file's bytes at `folder/<blob id>`.

    Args:
        folder: The cache's folder of blobs; made if need be.
        entry: What the source announced.
        chunks: Where the bytes come from.
        whole: A quicker way to them; what it brings is checked like everything else.
        told: Told about every piece: its length, negative if pieces turned out not to count.
        replace: Whether to replace a blob of the right length that is there, or appears meanwhile. Otherwise it stays,
            because another process may be verifying it, and must not find another file in its place.

    Raises:
        LengthMismatchError, BlobMismatchError: If the bytes are not what was announced; nothing of them stays.
        CacheError: If they cannot be written.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # What a broken download left is taken up again, which the quicker way cannot.
        is_new = whole is not None and next(_abandoned(folder, entry), None) is None
        if whole is not None and is_new and _write_whole(folder, entry, whole, told or _ignore, replace=replace):
            return
        for from_leftover in (entry.size_bytes >= _KEEP_FROM_BYTES, False):
            try:
                _write_once(folder, entry, chunks, told or _ignore, from_leftover=from_leftover, replace=replace)
                return
            except (LengthMismatchError, BlobMismatchError, FileNotFoundError):
                # The leftover was damaged, or another process took this one's file for abandoned.
                if not from_leftover:
                    raise


def _ignore(length_bytes: int) -> None:
    del length_bytes


def _write_whole(folder: Path, entry: FileEntry, whole: Whole, told: Callable[[int], None], *, replace: bool) -> bool:
    growing = _growing(folder, entry)
    try:
        if not whole(growing, told):
            return False
        if not is_intact(growing, entry):
            told(-entry.size_bytes)
            return False
        with growing.open("rb+") as file:
            os.fsync(file.fileno())
        _name(growing, folder / entry.blob.id, entry, replace=replace)
        return True
    finally:
        with contextlib.suppress(OSError):
            growing.unlink(missing_ok=True)


def _growing(folder: Path, entry: FileEntry) -> Path:
    """A name for a file of this process alone."""
    return folder / f"{entry.blob.id}.{_HOST}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"


def _write_once(
    folder: Path,
    entry: FileEntry,
    chunks: Chunks,
    told: Callable[[int], None],
    *,
    from_leftover: bool,
    replace: bool,
) -> None:
    growing = _growing(folder, entry)
    hasher = hasher_of(entry.blob, entry.size_bytes)
    length_bytes = 0
    try:
        with growing.open("xb") as file:
            try:
                if from_leftover:
                    length_bytes = _adopt(folder, entry, file, hasher)
                    told(length_bytes)
                for chunk in chunks(length_bytes) if length_bytes < entry.size_bytes else ():
                    length_bytes += len(chunk)
                    if length_bytes > entry.size_bytes:
                        raise _wrong_length(entry, f"more than {entry.size_bytes}")
                    file.write(chunk)
                    hasher.update(chunk)
                    told(len(chunk))
                _check(entry, length_bytes, hasher)
            except (LengthMismatchError, BlobMismatchError):
                told(-min(length_bytes, entry.size_bytes))
                raise
            except BaseException:
                file.flush()
                if length_bytes >= _KEEP_FROM_BYTES:
                    _leave(growing, entry)
                raise
            file.flush()
            os.fsync(file.fileno())
        _name(growing, folder / entry.blob.id, entry, replace=replace)
    finally:
        with contextlib.suppress(OSError):
            growing.unlink(missing_ok=True)


def _check(entry: FileEntry, length_bytes: int, hasher: Hasher) -> None:
    if length_bytes != entry.size_bytes:
        raise _wrong_length(entry, str(length_bytes))
    if hasher.hexdigest() != entry.blob.id:
        raise BlobMismatchError(
            f"{entry.path} arrived with other bytes than the source lists (expected {entry.blob.id}, found "
            f"{hasher.hexdigest()}); nothing of it was kept",
            hint="try again; if it stays so, the source or something on the way to it is broken",
        )


def _wrong_length(entry: FileEntry, found: str) -> LengthMismatchError:
    return LengthMismatchError(
        f"{entry.path} arrived with {found} bytes instead of {entry.size_bytes}; nothing of it was kept",
        hint="try again; if it stays so, the source or something on the way to it is broken",
    )


def _name(growing: Path, blob: Path, entry: FileEntry, *, replace: bool) -> None:
    if not replace:
        try:
            # Fails if the name is taken, which a rename would not tell.
            blob.hardlink_to(growing)
        except FileExistsError:
            if blob.is_file() and not blob.is_symlink() and blob.stat().st_size == entry.size_bytes:
                return
        except FileNotFoundError:
            raise
        except OSError:
            # This file system has no hard links.
            pass
        else:
            return
    try:
        growing.replace(blob)
    except PermissionError:
        # Windows does not replace a file that somebody has open; if that is the same blob, all is well.
        if not is_intact(blob, entry):
            raise


def _leave(growing: Path, entry: FileEntry) -> None:
    with contextlib.suppress(OSError):
        growing.replace(growing.with_name(f"{entry.blob.id}.left-{secrets.token_hex(4)}{SUFFIX}"))


def _adopt(folder: Path, entry: FileEntry, file: IO[bytes], hasher: Hasher) -> int:
    """Copy what the longest abandoned download of this blob left, and remove it; how many bytes that were."""
    left = sorted(_abandoned(folder, entry), key=lambda path: path.stat().st_size)
    if not left:
        return 0
    length_bytes = 0
    with left[-1].open("rb") as old:
        while length_bytes < entry.size_bytes and (
            chunk := old.read(min(_COPY_BYTES, entry.size_bytes - length_bytes))
        ):
            file.write(chunk)
            hasher.update(chunk)
            length_bytes += len(chunk)
    for path in left:
        path.unlink(missing_ok=True)
    return length_bytes


def _abandoned(folder: Path, entry: FileEntry) -> Iterator[Path]:
    for path in folder.glob(f"{entry.blob.id}.*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if is_abandoned(path):
                yield path


def is_abandoned(path: Path) -> bool:
    """Whether nobody seems to be writing an incomplete file any more.

    Raises:
        OSError: If it is gone.
    """
    owner = path.name.removesuffix(SUFFIX).partition(".")[2]
    if owner.startswith("left-"):
        return True
    host, _, rest = owner.partition("-")
    pid = rest.partition("-")[0]
    if host == _HOST and pid.isdecimal():
        return is_dead(int(pid))
    return time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S


@contextlib.contextmanager
def storing(folder: Path) -> Iterator[None]:
    """Turn a failure of the file system into an error that names the cache."""
    try:
        yield
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                way_out = f"make room (`kernel-hub cache prune`), or set {_VARIABLES} to a folder on another disk"
            case errno.EROFS | errno.EACCES | errno.EPERM:
                way_out = f"set {_VARIABLES} to a folder that you may write to"
            case _:
                way_out = "check the disk; the cache may be removed at any time"
        raise CacheError(f"the cache at {folder} cannot be used: {error.strerror or error}", hint=way_out) from error
