"""Files that are whole or absent: replaced atomically, named alike on every system, with locks that die with their owner.

Leaves out what the files mean (see `kernel_hub.sources.registry_store`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from kernel_hub.errors import SourceUnavailableError
from kernel_hub.model.repo_path import is_device_name

LOCK_TIMEOUT_S = 60.0
_FIRST_WAIT_S = 0.002
_LONGEST_WAIT_S = 0.1
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-+")


def file_name(text: str) -> str:
    """A file name for a name, different from that of any other name even where file names ignore case."""
    plain = "".join(char if char in _PLAIN else "".join(f"%{byte:02x}" for byte in char.encode()) for char in text)
    return f"%{ord(plain[0]):02x}{plain[1:]}" if plain.startswith(".") or is_device_name(plain) else plain


def name_of_file(text: str) -> str:
    """The inverse of `file_name`."""
    return unquote(text)


def new_name() -> str:
    """A file name that nothing has."""
    return os.urandom(16).hex()


def write_whole(path: Path, content: bytes, *, scratch: Path) -> None:
    """Put `content` at `path` so that a reader, or a crash, sees the old file or the new one.

    Args:
        path: Where to.
        content: The whole file.
        scratch: A folder on the same file system for the file while it grows.
    """
    growing = scratch / new_name()
    try:
        with growing.open("xb") as file:
            file.write(content)
            flush(file.fileno())
        growing.replace(path)
    finally:
        growing.unlink(missing_ok=True)


def flush(descriptor: int) -> None:
    """Ask the system to put a file's bytes on the disk before its name."""
    os.fsync(descriptor)


@contextlib.contextmanager
def reaching(root: Path) -> Iterator[None]:
    """Turn a failure of the file system into an error that names the registry."""
    try:
        yield
    except OSError as error:
        raise SourceUnavailableError(
            f"the registry folder {root} cannot be used: {error.strerror or error}",
            url=str(root),
            hint="check that it is there, that you may write to it, and that its disk is not full",
        ) from error


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold the lock file at `path`; the system frees it when the process ends, however it ends.

    Args:
        path: The lock file; it is made if absent and never removed, because removing it would split the lock in two.
        shared: Whether others may hold it as shared too. Windows has no such lock, there it is exclusive.
        timeout_s: How long to wait.

    Raises:
        SourceUnavailableError: If another process holds it for that long.
    """
    deadline_s = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    with path.open("ab") as file:
        while not _try_lock(file.fileno(), shared):
            if time.monotonic() >= deadline_s:
                raise SourceUnavailableError(
                    f"another process has held {path} for more than {timeout_s:g} s",
                    url=str(path),
                    hint="end that process, or wait for it",
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        try:
            yield
        finally:
            _unlock(file.fileno())


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, shared: bool) -> bool:
        del shared
        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int, shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
