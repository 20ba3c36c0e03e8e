"""Taking turns with other processes: whoever comes second waits. A process that ends, however it ends, gives its turn away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def in_turn(lock: Path) -> Iterator[None]:
    """Be the only one who holds a lock file; it stays afterwards."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("wb") as file:
        try:
            import fcntl
        except ImportError:
            # Windows, where nothing is compiled.
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
