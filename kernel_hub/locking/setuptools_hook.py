"""What setuptools calls when it builds a project that declares kernels.

Found through entry points of this distribution, so a project needs no more than `requires = ["setuptools", "kernel-hub"]`:

    egg_info.writers          kernel-hub.lock: puts the lock into the metadata of wheels and of editable installs
    setuptools.file_finders   puts the lock into source distributions, so that a wheel can be built from one
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from kernel_hub.locking.shipping import lock_to_ship


class EggInfoCommand(Protocol):
    """What this needs of setuptools' `egg_info` command."""

    def write_or_delete_file(self, what: str, filename: str, data: str | None, force: bool = False) -> None: ...


def write_lock(command: EggInfoCommand, basename: str, filename: str) -> None:
    """Write the lock into the metadata, or remove one that an earlier build left there."""
    path = lock_to_ship(Path.cwd())
    text = None if path is None else path.read_text(encoding="utf-8")
    command.write_or_delete_file(basename, filename, text)


def find_lock(folder: str = "") -> Iterator[str]:
    """The lock, if it belongs into a source distribution."""
    if Path(folder or ".").resolve() == Path.cwd().resolve():
        path = lock_to_ship(Path.cwd())
        if path is not None:
            yield path.name
