"""Reading and replacing a project's own files: bounded, whole or unchanged, with errors that name the file."""

from __future__ import annotations

import contextlib
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kernel_hub.errors import CacheError, InvalidDocumentError
from kernel_hub.sources.durable import flush, write_whole


def read_bounded(path: Path, limit_bytes: int, *, hint: str = "") -> bytes:
    """A file's bytes.

    Raises:
        InvalidDocumentError: If it cannot be read, or is longer than `limit_bytes`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limit_bytes + 1)
    except OSError as error:
        raise InvalidDocumentError(str(path), f"cannot be read: {error.strerror}", hint=hint) from error
    if len(content) > limit_bytes:
        raise InvalidDocumentError(str(path), f"is longer than {limit_bytes} bytes")
    return content


def replace_whole(path: Path, content: bytes) -> None:
    """Put `content` at `path`, through a link if it is one and with the mode it had; unchanged if that fails.

    Raises:
        CacheError: If it cannot be written.
    """
    try:
        place = path.resolve()
        mode = None
        with contextlib.suppress(FileNotFoundError):
            mode = stat.S_IMODE(place.stat().st_mode)
        write_whole(place, content, scratch=place.parent)
        if mode is not None:
            place.chmod(mode)
    except OSError as error:
        raise CacheError(
            f"{path} cannot be written: {error.strerror}", hint="nothing was changed; check the folder and your rights"
        ) from error


@contextlib.contextmanager
def writing_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that comes to be at `path` when the block ends well, and leaves nothing behind otherwise.

    Raises:
        CacheError: If it cannot be written.
    """
    growing = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with growing.open("xb") as file:
            yield file
            file.flush()
            flush(file.fileno())
        growing.replace(path)
    except OSError as error:
        raise CacheError(
            f"{path} cannot be written: {error.strerror or error}", hint="check the folder, your rights and the disk"
        ) from error
    finally:
        growing.unlink(missing_ok=True)
