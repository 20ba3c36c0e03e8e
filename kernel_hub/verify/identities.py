"""The identities of an artifact's files: the digest that a manifest lists, and the id that a source's listing announces.

A source names a blob as git does (SHA-1 over `blob <size>\\0` and the bytes) or, in large-file storage, by the SHA-256 of
its bytes. Each file is read once for all of them, through a descriptor that follows no unexpected link, and large trees
are read by several threads.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from functools import partial
from io import FileIO

from kernel_hub.model.digest import Digest, DigestAlgorithm
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob
from kernel_hub.model.value import dataclass
from kernel_hub.verify.artifact_tree import TreeFile

_CHUNK_BYTES = 1 << 18
# Such files are read in one go.
_SMALL_BYTES = 1 << 18
# Below this, starting threads costs more than they save.
_PARALLEL_FROM_BYTES = 8 << 20
_MAX_THREADS = 8


@dataclass(frozen=True, slots=True)
class IdentifiedFile:
    """A file and what its bytes are.

    Attributes:
        file: Which one.
        digest: Under the manifest's algorithm.
        blob: As the source would name it; None if the source says nothing of this file.
    """

    file: TreeFile
    digest: Digest
    blob: BlobId | None


def identify(
    files: Iterable[TreeFile], algorithm: DigestAlgorithm, announced: Mapping[str, BlobId]
) -> dict[str, IdentifiedFile]:
    """Read every file and name its bytes.

    Args:
        files: What to read.
        algorithm: Which digest to make of each.
        announced: The files whose blob id is needed, with an id of the kind that is needed.

    Returns:
        The identified files, by path.

    Raises:
        UnsafePathError: If a file was replaced since it was surveyed.
        OSError: If one cannot be read.
    """
    wanted = list(files)
    of_one = partial(_identify, algorithm=algorithm, announced=announced)
    if len(wanted) > 1 and sum(file.status.st_size for file in wanted) >= _PARALLEL_FROM_BYTES:
        # Imported here because most loads never come this way.
        from concurrent.futures import ThreadPoolExecutor

        # The largest first, so that no thread is left alone with it at the end.
        wanted.sort(key=lambda file: -file.status.st_size)
        with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1, len(wanted))) as pool:
            found = list(pool.map(of_one, wanted))
    else:
        found = [of_one(file) for file in wanted]
    return {item.file.path: item for item in found}


def blob_of(content: bytes, kind: BlobId) -> BlobId:
    """The id of these bytes, of the same kind as `kind`."""
    match kind:
        case GitBlob():
            prefix = b"blob %d\0" % len(content)
            return GitBlob(hashlib.sha1(prefix + content, usedforsecurity=False).hexdigest())
        case LfsBlob():
            return LfsBlob(hashlib.sha256(content).hexdigest())


def blob_text(blob: BlobId) -> str:
    """A blob id as messages write it, with its algorithm."""
    match blob:
        case GitBlob(id):
            return f"git blob {id}"
        case LfsBlob(id):
            return f"sha256:{id}"


def _identify(file: TreeFile, algorithm: DigestAlgorithm, announced: Mapping[str, BlobId]) -> IdentifiedFile:
    kind = announced.get(file.path)
    if file.status.st_size <= _SMALL_BYTES:
        content = file.whole()
        return IdentifiedFile(file, Digest.of(content, algorithm), None if kind is None else blob_of(content, kind))
    with file.open() as stream:
        match kind:
            case None:
                return IdentifiedFile(file, _digest(stream, algorithm), None)
            case GitBlob():
                return _with_git_blob(file, stream, algorithm)
            case LfsBlob():
                digest = _digest(stream, algorithm)
                if algorithm is not DigestAlgorithm.SHA256:
                    stream.seek(0)
                    return IdentifiedFile(file, digest, LfsBlob(_digest(stream, DigestAlgorithm.SHA256).hex))
                return IdentifiedFile(file, digest, LfsBlob(digest.hex))


def _digest(stream: FileIO, algorithm: DigestAlgorithm) -> Digest:
    return Digest(algorithm, hashlib.file_digest(stream, algorithm.value).digest())


def _with_git_blob(file: TreeFile, stream: FileIO, algorithm: DigestAlgorithm) -> IdentifiedFile:
    hasher = hashlib.new(algorithm.value)
    git = hashlib.sha1(b"blob %d\0" % file.status.st_size, usedforsecurity=False)
    while chunk := stream.read(_CHUNK_BYTES):
        hasher.update(chunk)
        git.update(chunk)
    return IdentifiedFile(file, Digest(algorithm, hasher.digest()), GitBlob(git.hexdigest()))
