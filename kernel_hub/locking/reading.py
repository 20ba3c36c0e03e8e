"""Reading a lock file of any of the formats, once for each state of the file."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.locking.files import read_bounded
from kernel_hub.model import lock_peer, lock_text
from kernel_hub.model.lock_names import PEER
from kernel_hub.model.lock_pin import AnyLock, FoundLock

_JSON_LIST = re.compile(rb"\s*\[\s*[{\]]")


def read_lock(path: Path, *, found_by: str = "") -> FoundLock:
    """Read a lock of any of the formats.

    Raises:
        InvalidDocumentError: If it cannot be read, with the line or key at fault.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidDocumentError(
            found_by or str(path), f"the lock {path} cannot be read: {error.strerror}", hint="make one: kernel-hub lock"
        ) from error
    lock = _read(path, (status.st_mtime_ns, status.st_size, status.st_ino))
    return FoundLock(lock, path, found_by or f"{path.parent}")


@lru_cache(maxsize=32)
def _read(path: Path, _state: tuple[int, int, int]) -> AnyLock:
    content = read_bounded(path, lock_text.MAX_BYTES)
    if path.name == PEER or _JSON_LIST.match(content):
        return lock_peer.parse_peer_lock(content, name=str(path))
    return lock_text.parse_lock(content, name=str(path))
