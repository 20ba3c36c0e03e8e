"""The files of an artifact that nobody trusts yet: which paths there are, and opening them without being led astray.

A path is a regular file, or a relative link of one step to a regular file inside the artifact or inside the cache's own
blob folder. Anything else (links to folders, absolute, broken, circular or leaving links, pipes, devices, names that are
not UTF-8) is refused, whatever its name, because the import system would follow it all the same.

Leaves out: what the bytes must be (see `kernel_hub.verify`), and the ecosystem's more lenient digest walk over a builder's
own output (see `kernel_hub.tree`).
"""

# Paths are text here: a warm load asks for the status of hundreds of files and does little else.
# ruff: noqa: PTH115, PTH117, PTH118, PTH119, PTH120

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from kernel_hub.errors import UnsafePathError
from kernel_hub.model.value import dataclass

# Flags that a platform lacks do not weaken the check: the opened file is compared with what the survey saw.
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of an artifact.

    Attributes:
        path: Inside the artifact, '/' separated.
        location: Where its bytes lie: the file itself, or what its link leads to.
        linked: Whether it is a link.
        status: What `lstat` said of `location`.
    """

    path: str
    location: str
    linked: bool
    status: os.stat_result

    def open(self) -> FileIO:
        """The bytes, from exactly the file that was surveyed.

        Raises:
            UnsafePathError: If another file has taken its place.
            OSError: If it cannot be read.
        """
        descriptor = self._descriptor()
        try:
            return FileIO(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def whole(self) -> bytes:
        """All of the bytes of a small file, without the costs of a stream.

        Raises:
            UnsafePathError, OSError: As `open`.
        """
        descriptor = self._descriptor()
        try:
            # One byte more than there should be, so that one call also sees the end.
            content = os.read(descriptor, self.status.st_size + 1)
            while len(content) < self.status.st_size and (part := os.read(descriptor, self.status.st_size)):
                content += part
        finally:
            os.close(descriptor)
        return content

    def _descriptor(self) -> int:
        descriptor = os.open(self.location, _OPEN_FLAGS)
        try:
            if not _is_same(os.fstat(descriptor), self.status):
                raise UnsafePathError(f"{self.location} was replaced by another file while it was being verified")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def content(self, limit_bytes: int) -> bytes:
        """All of the bytes; of a file that is longer than allowed, one more, so that its reader sees that it is.

        Raises:
            UnsafePathError, OSError: As `open`.
        """
        parts = []
        left_bytes = limit_bytes + 1
        with self.open() as stream:
            while left_bytes > 0 and (part := stream.read(left_bytes)):
                parts.append(part)
                left_bytes -= len(part)
        return b"".join(parts)


class ArtifactTree:
    """One artifact's folder.

    Args:
        root: The artifact's folder; it may itself be reached through links, because the caller named it.
        blobs: The folder that links may lead into beside the artifact itself; None for no other.
        subject: What to call the artifact in errors.
    """

    def __init__(self, root: Path, blobs: Path | None, *, subject: str) -> None:
        self._root = os.path.realpath(root)
        self._blobs = None if blobs is None else os.path.realpath(blobs)
        self._subject = subject
        self._real_folders: dict[str, str] = {}

    def files(self) -> Iterator[TreeFile]:
        """Every file, in no particular order.

        Raises:
            UnsafePathError: At the first path that is not allowed.
            OSError: If a folder cannot be read.
        """
        pending = [""]
        while pending:
            prefix = pending.pop()
            with os.scandir(os.path.join(self._root, *prefix.split("/"))) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    self._require_utf8(path)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{path}/")
                    else:
                        yield self._file(path, entry.path, entry.stat(follow_symlinks=False))

    def file(self, name: str) -> TreeFile | None:
        """The file `name` directly in the artifact's folder, or None if there is nothing of that name.

        Raises:
            UnsafePathError: If it is there and not allowed.
        """
        location = os.path.join(self._root, name)
        try:
            status = os.lstat(location)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return self._file(name, location, status)

    def _file(self, path: str, location: str, status: os.stat_result) -> TreeFile:
        if stat.S_ISREG(status.st_mode):
            # `scandir` on Windows leaves the inode out, which the later comparison needs.
            return TreeFile(path, location, False, status if status.st_ino else os.lstat(location))
        if stat.S_ISLNK(status.st_mode):
            return self._linked(path, location)
        raise self._unsafe(path, f"is {_kind(status.st_mode)}, not a regular file")

    def _linked(self, path: str, location: str) -> TreeFile:
        target = os.readlink(location)
        if os.path.isabs(target):
            raise self._unsafe(path, f"is a link to the absolute path {target}")
        folder = self._real(os.path.join(os.path.dirname(location), os.path.dirname(target)))
        name = os.path.basename(target)
        if not self._contains(folder) or name in ("", ".", ".."):
            raise self._unsafe(path, f"is a link that leaves the artifact ({target})")
        found = os.path.join(folder, name)
        try:
            status = os.lstat(found)
        except OSError as error:
            raise self._unsafe(path, f"is a link to nothing ({target})") from error
        if not stat.S_ISREG(status.st_mode):
            raise self._unsafe(path, f"is a link to {_kind(status.st_mode)} ({target})")
        return TreeFile(path, found, True, status)

    def _real(self, folder: str) -> str:
        # A cache's links all lead to one folder, and resolving a path asks for the status of each of its parts.
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        return self._real_folders[folder]

    def _contains(self, folder: str) -> bool:
        return folder in (self._root, self._blobs) or folder.startswith(self._root.rstrip(os.sep) + os.sep)

    def _require_utf8(self, path: str) -> None:
        try:
            path.encode("utf-8")
        except UnicodeEncodeError:
            raise self._unsafe(ascii(path), "has a name that is not UTF-8") from None

    def _unsafe(self, path: str, problem: str) -> UnsafePathError:
        return UnsafePathError(
            f"{self._subject}: {path} {problem}",
            hint=f"nothing was imported; look at {self._root} before you remove it",
        )


def _is_same(left: os.stat_result, right: os.stat_result) -> bool:
    # The inode alone is not enough: the next file that is made often gets the number of the last one removed.
    return (
        left.st_ino == right.st_ino
        and left.st_dev == right.st_dev
        and left.st_size == right.st_size
        and left.st_mtime_ns == right.st_mtime_ns
        and stat.S_IFMT(left.st_mode) == stat.S_IFMT(right.st_mode)
    )


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "another link"
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"
