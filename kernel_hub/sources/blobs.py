"""Bytes kept by their digest: each blob is one file, whole or absent, and equal bytes are kept once.

Leaves out which blobs are in use (see `kernel_hub.sources.registry_store`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kernel_hub.errors import BlobMismatchError, LengthMismatchError
from kernel_hub.model.commit import StoredBlob
from kernel_hub.sources.durable import flush, new_name

CHUNK_BYTES = 1 << 20
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep removed.

    Attributes:
        commits: Manifests that no reference led to.
        blobs: Blobs that no manifest named.
        scratch: Files and folders that crashed writers left.
        freed_bytes: Length of the removed blobs.
    """

    commits: int
    blobs: int
    scratch: int
    freed_bytes: int


class _Identity:
    """The identity of bytes that are seen piece by piece; git's covers their length first, so that must be known."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._digest = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)

    def update(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._git.update(chunk)

    def blob(self) -> StoredBlob:
        return StoredBlob(self._digest.hexdigest(), self._git.hexdigest(), self._size_bytes)


class Incoming:
    """A blob on its way in: written piece by piece, kept only after `finish`."""

    def __init__(self, blobs: Blobs, size_bytes: int) -> None:
        self._blobs = blobs
        self._size_bytes = size_bytes
        self._seen_bytes = 0
        self._path = blobs.scratch / new_name()
        self._file = self._path.open("xb")
        self._identity = _Identity(size_bytes)

    def write(self, chunk: bytes) -> None:
        """Append bytes.

        Raises:
            LengthMismatchError: If there are more than were announced.
        """
        self._seen_bytes += len(chunk)
        if self._seen_bytes > self._size_bytes:
            raise LengthMismatchError(f"more than the announced {self._size_bytes} bytes arrived")
        self._identity.update(chunk)
        self._file.write(chunk)

    def finish(self, *, digest: str | None = None) -> StoredBlob:
        """Keep the bytes.

        Args:
            digest: The SHA-256 that they must have, in hexadecimal.

        Raises:
            LengthMismatchError: If there are fewer than were announced.
            BlobMismatchError: If they have another digest.
        """
        if self._seen_bytes != self._size_bytes:
            raise LengthMismatchError(f"{self._seen_bytes} of the announced {self._size_bytes} bytes arrived")
        blob = self._identity.blob()
        if digest is not None and blob.digest != digest:
            raise BlobMismatchError(f"bytes announced as {digest} have the SHA-256 digest {blob.digest}")
        self._file.flush()
        flush(self._file.fileno())
        self._file.close()
        self._blobs.keep(self._path, blob)
        return blob

    def close(self) -> None:
        """Drop what arrived, unless it was kept."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Blobs:
    """The blobs below one folder.

    Args:
        folder: Where they are kept.
        scratch: A folder on the same file system for those that are still growing.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self.scratch = scratch
        self._remembered: dict[str, StoredBlob] = {}

    def path(self, digest: str) -> Path:
        """Where the blob with this digest is, or would be."""
        return self.folder / digest[:2] / digest[2:]

    def has(self, digest: str, size_bytes: int | None = None) -> bool:
        """Whether the blob is here whole; if so it counts as new again for `sweep`."""
        path = self.path(digest)
        try:
            found_bytes = path.stat().st_size
            os.utime(path)
        except FileNotFoundError:
            return False
        return size_bytes is None or found_bytes == size_bytes

    def find(self, digest: str, size_bytes: int | None = None) -> StoredBlob | None:
        """The whole identity of a blob that is here; one that another process brought is read, and so checked.

        Raises:
            BlobMismatchError: If its bytes are not those of its digest any more.
        """
        if not self.has(digest, size_bytes):
            return None
        found = self._remembered.get(digest)
        if found is None:
            found = _identity(self.path(digest))
            if found.digest != digest:
                raise BlobMismatchError(f"the bytes kept as {digest} have the SHA-256 digest {found.digest}")
            self._remember(found)
        return found

    def receive(self, size_bytes: int) -> Incoming:
        """Start a blob of this length; the caller closes it."""
        return Incoming(self, size_bytes)

    def put(self, content: bytes | Path) -> StoredBlob:
        """Keep bytes, or the bytes of a file on disk."""
        if isinstance(content, bytes):
            blob = StoredBlob.of(content)
            if self.has(blob.digest, blob.size_bytes):
                return blob
            with self.receive(len(content)) as incoming:
                incoming.write(content)
                return incoming.finish(digest=blob.digest)
        with content.open("rb") as file, self.receive(os.fstat(file.fileno()).st_size) as incoming:
            while chunk := file.read(CHUNK_BYTES):
                incoming.write(chunk)
            return incoming.finish()

    def keep(self, path: Path, blob: StoredBlob) -> None:
        """Move a finished file to its place, over a damaged one if there is one."""
        place = self.path(blob.digest)
        self._remember(blob)
        if self.has(blob.digest, blob.size_bytes):
            return
        place.parent.mkdir(exist_ok=True)
        path.replace(place)

    def sweep(self, in_use: AbstractSet[str], *, grace_s: float) -> tuple[int, int]:
        """Remove blobs that nothing uses and nothing touched for `grace_s`; how many, and their length."""
        removed = freed_bytes = 0
        for path in self._all():
            digest = path.parent.name + path.name
            found = path.stat()
            if digest not in in_use and is_older(found.st_mtime, grace_s):
                path.unlink()
                removed += 1
                freed_bytes += found.st_size
        return removed, freed_bytes

    def _remember(self, blob: StoredBlob) -> None:
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[blob.digest] = blob

    def _all(self) -> Iterator[Path]:
        for folder in sorted(self.folder.iterdir()):
            yield from sorted(folder.iterdir())


def _identity(path: Path) -> StoredBlob:
    with path.open("rb") as file:
        found = _Identity(os.fstat(file.fileno()).st_size)
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
        return found.blob()


def is_older(time_s: float, grace_s: float) -> bool:
    """Whether a file's time lies at least `grace_s` in the past."""
    return time.time() - time_s >= grace_s
