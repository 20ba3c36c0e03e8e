"""Folders that can only be read: asked about without trying, and told of once.

What is kept beside the cache saves work and nothing else, so a folder that cannot be written is no error; but a machine that
does all of that work again for every process should not do so in silence.

Leaves out files whose writing matters, whose failure is an error (see `kernel_hub.cache`).
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

_LOG = logging.getLogger("kernel_hub")
_told: set[str] = set()


def is_writable(folder: Path) -> bool:
    """Whether files could be made in a folder, which need not be there yet. Nothing is tried.

    Where a system does not tell, the answer is yes, and writing may still fail.
    """
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), None)
    return nearest is not None and os.access(nearest, os.W_OK | os.X_OK)


def tell_unwritable(folder: Path, what: str, reason: OSError | None = None) -> None:
    """Say that a folder cannot be written; once for each folder and process.

    Args:
        folder: The folder.
        what: What is not kept there.
        reason: How writing failed, if it was tried.
    """
    if str(folder) not in _told:
        _told.add(str(folder))
        how = f": {reason.strerror}" if reason is not None and reason.strerror else ""
        _LOG.warning(
            "%s cannot be written%s, so %s again in every process; set KERNEL_HUB_HOME to a folder that can",
            folder,
            how,
            what,
        )
