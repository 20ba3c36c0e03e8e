"""One file with everything that a lock needs, for a machine without network.

    archive.json           {"format": "kernel_hub archive", "version": 1, "kernels": [{"repo", "commit", "branches"}]}
    kernel-hub.lock        the lock
    commits/<n>.json       the manifest of the n-th kernel's commit, with the files and attestations of its locked builds
    blobs/<sha256>         the bytes of each file, once, in order of their names

in this order, as a plain tar (see `kernel_hub.locking.tar`). The same lock makes the same bytes. `kernel-hub bundle` makes
one. Leaves out reading it (see `kernel_hub.locking.unpack`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kernel_hub.locking.files import writing_whole
from kernel_hub.locking.mirror import MESSAGE, TIME_S, LocalKernel, chunks_of, identify_file
from kernel_hub.locking.tar import TarWriter
from kernel_hub.model.commit import Commit, canonical
from kernel_hub.model.lock import Lock
from kernel_hub.model.lock_names import OWN
from kernel_hub.model.lock_text import format_lock

HEAD = "archive.json"
FORMAT_NAME = "kernel_hub archive"
FORMAT_VERSION = 1


def write_archive(path: Path, lock: Lock, kernels: Iterable[LocalKernel]) -> int:
    """Make an archive; its length in bytes.

    Args:
        path: The archive; replaced whole if it is there.
        lock: The lock.
        kernels: What it needs, on this disk (see `kernel_hub.locking.mirror.bring`).

    Raises:
        BlobMismatchError: If a file on this disk changed meanwhile.
        CacheError: If the archive cannot be written.
    """
    commits: list[tuple[LocalKernel, Commit]] = []
    places: dict[str, tuple[Path, int]] = {}
    for local in kernels:
        stored = []
        for file in local.files:
            blob = identify_file(file.place)
            stored.append(file.stored(blob))
            places[blob.digest] = (file.place, blob.size_bytes)
        commits.append(
            (local, Commit.make(stored, parents=(), message=MESSAGE, time_s=TIME_S, upstream_id=local.kernel.commit))
        )
    head = {
        "format": FORMAT_NAME,
        "version": FORMAT_VERSION,
        "kernels": [
            {"repo": str(local.kernel.repo), "commit": commit.id, "branches": list(local.branches)}
            for local, commit in commits
        ],
    }
    with writing_whole(path) as archive:
        tar = TarWriter(archive)
        _add(tar, HEAD, canonical(head))
        _add(tar, OWN, format_lock(lock))
        for number, (_, commit) in enumerate(commits):
            _add(tar, f"commits/{number}.json", commit.format())
        for digest in sorted(places):
            place, size_bytes = places[digest]
            tar.add(f"blobs/{digest}", size_bytes, chunks_of(place))
        tar.finish()
        return archive.tell()


def _add(tar: TarWriter, name: str, content: bytes) -> None:
    tar.add(name, len(content), iter((content,)))
