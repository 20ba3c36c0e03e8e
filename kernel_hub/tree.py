"""The manifest of a folder on disk: the ecosystem's digest walk over one build (repository format, section c).

Regular files are listed, symbolic links to files by the content they lead to. Linked folders are not entered and empty
folders say nothing. What the walk cannot digest honestly (a broken link, a pipe, a name that is not UTF-8) is an error,
because leaving it out would let it ride along unlisted.

Leaves out: comparing with the manifest that metadata carries, and whether a link may leave the build (see
`kernel_hub.verify`).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from kernel_hub.errors import UnsafePathError
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest, covers


def manifest_of(root: Path, algorithm: DigestAlgorithm = DigestAlgorithm.SHA256) -> Manifest:
    """The digests of every file of the build in `root` that a manifest lists.

    Args:
        root: The build's folder.
        algorithm: Which digests to make.

    Raises:
        UnsafePathError: If an entry is no regular file, leads nowhere, or has a name that is not UTF-8.
        OSError: If a file or folder cannot be read.
    """
    return Manifest(
        algorithm, {path: digest_of_file(root / path, algorithm) for path in paths_of(root) if covers(path)}
    )


def digest_of_file(path: Path, algorithm: DigestAlgorithm = DigestAlgorithm.SHA256) -> Digest:
    """The digest of one file's bytes, read in pieces."""
    with path.open("rb") as file:
        return Digest(algorithm, hashlib.file_digest(file, algorithm.value).digest())


def paths_of(root: Path) -> Iterator[str]:
    """Every file below `root`, relative to it and '/' separated, in no particular order; excluded names included.

    Raises:
        UnsafePathError: As `manifest_of`.
    """
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                _require_utf8(path, root)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                elif _leads_to_file(entry, path, root):
                    yield path


def _require_utf8(path: str, root: Path) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise UnsafePathError(f"{root}: the name of {path!a} is not UTF-8") from None


def _leads_to_file(entry: os.DirEntry[str], path: str, root: Path) -> bool:
    """True for a file, False for a link to a folder."""
    try:
        mode = entry.stat().st_mode
    except OSError as error:
        # A link to nothing, or one that runs in a circle.
        raise UnsafePathError(f"{root}: {path} is a link that leads to no file") from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UnsafePathError(f"{root}: {path} is not a regular file")
    return stat.S_ISREG(mode)
