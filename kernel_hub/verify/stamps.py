"""Stamps: what the files of a verified artifact were, so that the next process need not read them to know it again.

A stamp keeps the size, times and inode of every file beside the identities that its bytes had. As long as all of them are
unchanged, verification takes the identities from the stamp and goes through every other step as ever: the stamp saves
reading, it decides nothing. One file that differs in anything, and all are read.

A change that keeps size, inode and both times of a file is not seen. The time of the last change of the inode is among
them, and no program can set it, so this takes a write within one tick of the filesystem's clock, or a clock set back.

A stamp that another user could have written is not believed. Writing one may fail without harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import Digest, DigestAlgorithm
from kernel_hub.model.document import load_json_value
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob
from kernel_hub.verify.artifact_tree import TreeFile
from kernel_hub.verify.identities import IdentifiedFile
from kernel_hub.writable import is_writable, tell_unwritable

_LOG = logging.getLogger("kernel_hub")
_FORMAT = 1
_READ = "every file of a kernel is read"
_MAX_BYTES = 64 << 20
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Stamps:
    """The stamps of one user.

    Args:
        folder: Where they lie; it is made when the first one is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(
        self, root: Path, files: Iterable[TreeFile], algorithm: DigestAlgorithm, announced: Mapping[str, BlobId]
    ) -> dict[str, IdentifiedFile] | None:
        """The identities of all `files`, or None if any of them must be read.

        Args:
            root: The artifact's folder.
            files: As they are now.
            algorithm: Which digest is needed of each.
            announced: The files whose blob id is needed, with an id of the kind that is needed.
        """
        try:
            stamped = self._read(root, algorithm)
            found = {}
            for file in files:
                item = _recalled(file, stamped.get(file.path), algorithm, announced.get(file.path))
                if item is None:
                    return None
                found[file.path] = item
        except (OSError, InvalidDocumentError) as error:
            _LOG.debug("the stamp of %s is not used: %s", root, error)
            return None
        return found

    def remember(self, root: Path, found: Mapping[str, IdentifiedFile]) -> None:
        """Keep what the files were found to be; a folder that cannot be written is only told of."""
        files = {path: [*_status(item.file), item.digest.base64, _blob_text(item.blob)] for path, item in found.items()}
        algorithms = {item.digest.algorithm.value for item in found.values()}
        if len(algorithms) != 1:
            return
        document = {"format": _FORMAT, "root": ascii(root), "algorithm": algorithms.pop(), "files": files}
        path = self._path(root)
        temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
        if not is_writable(self._folder):
            tell_unwritable(self._folder, _READ)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                json.dump(document, stream, separators=(",", ":"), ensure_ascii=False)
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            tell_unwritable(self._folder, _READ, error)

    def _path(self, root: Path) -> Path:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()
        return self._folder / f"{name[:40]}.json"

    def _read(self, root: Path, algorithm: DigestAlgorithm) -> Mapping[str, Any]:
        path = self._path(root)
        with path.open("rb") as stream:
            _require_own(os.fstat(stream.fileno()), path)
            content = stream.read(_MAX_BYTES + 1)
        document = load_json_value(content, name=str(path), limit_bytes=_MAX_BYTES)
        expected = {"format": _FORMAT, "root": ascii(root), "algorithm": algorithm.value}
        match document:
            case {"files": dict(files), **rest} if rest == expected:
                return files
        raise InvalidDocumentError(str(path), "is of another format, or of another artifact")


def _require_own(status: os.stat_result, path: Path) -> None:
    # Windows has neither owners nor these bits here.
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & _OTHERS_MAY_WRITE:
        raise InvalidDocumentError(str(path), "may have been written by another user")


def _status(file: TreeFile) -> tuple[int, int, int, int]:
    now = file.status
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)


def _recalled(file: TreeFile, stamped: Any, algorithm: DigestAlgorithm, needed: BlobId | None) -> IdentifiedFile | None:
    match stamped:
        case [int(size), int(mtime), int(ctime), int(inode), str(digest), str(blob)]:
            pass
        case _:
            return None
    if (size, mtime, ctime, inode) != _status(file):
        return None
    found = _blob(blob)
    if needed is not None and type(found) is not type(needed):
        return None
    return IdentifiedFile(file, Digest.from_base64(algorithm, digest), found)


def _blob_text(blob: BlobId | None) -> str:
    match blob:
        case None:
            return ""
        case GitBlob(id):
            return f"git:{id}"
        case LfsBlob(id):
            return f"lfs:{id}"


def _blob(text: str) -> BlobId | None:
    kind, _, value = text.partition(":")
    match kind:
        case "git":
            return GitBlob(value)
        case "lfs":
            return LfsBlob(value)
        case _:
            return None
