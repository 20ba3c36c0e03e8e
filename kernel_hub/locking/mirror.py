"""Copying exactly what a lock needs: to a registry folder, or to a server over one.

An archive (see `kernel_hub.locking.archive`) is made of the same.

Every build is fetched and verified against the lock before a byte of it is copied. Commits keep their ids, files their
identities, and a mirror that is filled from several locks holds what any of them needs; so the same lock is valid against
the upstream, the mirror, and what was made from the mirror.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernel_hub.errors import BlobMismatchError
from kernel_hub.fetch import is_bytecode
from kernel_hub.locking.make import Connect
from kernel_hub.locking.sync import Syncer
from kernel_hub.model.commit import StoredBlob, StoredFile
from kernel_hub.model.lock import Lock, LockedKernel
from kernel_hub.model.repo_path import ATTESTATION_FOLDER, attestation_path
from kernel_hub.model.requirement import AtRevision, is_commit
from kernel_hub.model.source import BlobId, FileEntry, GitBlob, LfsBlob
from kernel_hub.select import BUILD_FOLDER
from kernel_hub.settings import Settings
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.new_registry import NewRegistry
from kernel_hub.sources.target import open_sink

if TYPE_CHECKING:
    from kernel_hub.sources.hub_mirror import HubMirror

MESSAGE = "Mirrored from a lock"
# Mirrors made from one lock are the same bytes, whenever they are made.
TIME_S = 0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of a locked commit, on this disk.

    Attributes:
        path: In the repository.
        place: On this disk.
        size_bytes: Its length.
        blob: Its identity upstream, which the mirror must show too.
    """

    path: str
    place: Path
    size_bytes: int
    blob: BlobId

    def stored(self, blob: StoredBlob) -> StoredFile:
        """The file as a registry keeps it.

        Raises:
            BlobMismatchError: If the kept bytes are others than upstream announced.
        """
        is_same = blob.digest == self.blob.id if isinstance(self.blob, LfsBlob) else blob.git_id == self.blob.id
        if not is_same or blob.size_bytes != self.size_bytes:
            raise BlobMismatchError(
                f"{self.place} is not what upstream announced of {self.path}", hint="sync again: kernel-hub sync"
            )
        return StoredFile(self.path, blob, lfs=not isinstance(self.blob, GitBlob))


@dataclass(frozen=True, slots=True)
class LocalKernel:
    """A locked commit whose locked builds are on this disk, verified.

    Attributes:
        kernel: What the lock says of it.
        files: The files and attestations of its locked builds, sorted by path.
    """

    kernel: LockedKernel
    files: tuple[LocalFile, ...]

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches by which the lock asks for it, and its version branch."""
        named = [wish.revision for wish in self.kernel.wishes if isinstance(wish, AtRevision)]
        version = [] if named and len(named) == len(self.kernel.wishes) else [f"v{self.kernel.version}"]
        return tuple(sorted({*version, *(name for name in named if not is_commit(name))}))


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What a mirror got of one kernel.

    Attributes:
        kernel: The kernel.
        files: How many files its locked builds have.
        size_bytes: Their length.
        sent_bytes: How much of that was not there before.
    """

    kernel: LockedKernel
    files: int
    size_bytes: int
    sent_bytes: int

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kernel": str(self.kernel.repo),
            "version": self.kernel.version,
            "commit": self.kernel.commit,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "sent_bytes": self.sent_bytes,
        }


class Mirror(Protocol):
    """Where locked kernels are copied to."""

    @property
    def name(self) -> str:
        """A folder, or a URL without credentials."""

    def take(self, kernel: LocalKernel) -> int:
        """Take in one commit; how many bytes were not there before."""


def open_mirror(settings: Settings, target: str, *, token: str | None = None) -> Mirror:
    """The mirror that a text names: a folder, or the URL of a server over one.

    Raises:
        As `kernel_hub.sources.target.open_sink`.
    """
    sink = open_sink(settings, target, token=token)
    if isinstance(sink, NewRegistry):
        sink = sink.make()
    if isinstance(sink, DirectoryRegistry):
        return FolderMirror(sink)
    from kernel_hub.sources.hub import HubSink
    from kernel_hub.sources.hub_mirror import HubMirror

    assert isinstance(sink, HubSink)
    return ServerMirror(HubMirror(sink))


class ServerMirror:
    """A server over a registry folder as a mirror."""

    def __init__(self, hub: HubMirror) -> None:
        self._hub = hub

    @property
    def name(self) -> str:
        """The server's URL."""
        return self._hub.name

    def take(self, kernel: LocalKernel) -> int:
        """See `Mirror.take`."""
        files = [(file.stored(identify_file(file.place)), file.place) for file in kernel.files]
        return self._hub.take(kernel.kernel.repo, kernel.kernel.commit, files, kernel.branches)


class FolderMirror:
    """A registry folder as a mirror."""

    def __init__(self, registry: DirectoryRegistry) -> None:
        self._registry = registry

    @property
    def name(self) -> str:
        """The folder."""
        return self._registry.name

    def take(self, kernel: LocalKernel) -> int:
        """See `Mirror.take`."""
        repo = kernel.kernel.repo
        self._registry.create_repo(repo)
        sent_bytes = 0
        stored = []
        for file in kernel.files:
            is_here = (
                isinstance(file.blob, LfsBlob) and self._registry.stored(file.blob.id, file.size_bytes) is not None
            )
            sent_bytes += 0 if is_here else file.size_bytes
            stored.append(file.stored(self._registry.store(file.place)))
        is_wider = self._registry.widen_commit(repo, kernel.kernel.commit, stored, message=MESSAGE, time_s=TIME_S)
        for branch in kernel.branches:
            self._registry.point_branch(repo, branch, kernel.kernel.commit)
        return sent_bytes if is_wider else 0


def bring(lock: Lock, syncer: Syncer, connect: Connect) -> Iterator[LocalKernel]:
    """Bring every locked build onto this disk, verified, kernel by kernel.

    Raises:
        FetchError, VerificationError: As fetching and verifying raise.
    """
    for _ in syncer.every_build():
        # Everything is verified before the first kernel is handed out.
        pass
    for kernel in lock.kernels:
        connection = connect(kernel.repo)
        listed = connection.source.files(kernel.repo, kernel.commit, BUILD_FOLDER)
        files = [entry for entry in listed if _is_of(kernel, entry) and not is_bytecode(entry.path)]
        attestations = {attestation_path(build.label) for build in kernel.builds}
        beside = connection.source.files(kernel.repo, kernel.commit, ATTESTATION_FOLDER)
        files += [entry for entry in beside if entry.path in attestations]
        yield LocalKernel(
            kernel,
            tuple(
                LocalFile(
                    entry.path,
                    connection.cache.path(kernel.repo, kernel.commit, entry.path),
                    entry.size_bytes,
                    entry.blob,
                )
                for entry in sorted(files, key=lambda entry: entry.path.encode())
            ),
        )


def copy_lock(lock: Lock, syncer: Syncer, connect: Connect, mirror: Mirror) -> Iterator[Mirrored]:
    """Copy what a lock needs into a mirror.

    Raises:
        ConflictError: If the mirror holds something else under a locked commit.
        FetchError, VerificationError: As fetching and verifying raise.
    """
    for local in bring(lock, syncer, connect):
        sent_bytes = mirror.take(local)
        size_bytes = sum(file.size_bytes for file in local.files)
        yield Mirrored(local.kernel, len(local.files), size_bytes, sent_bytes)


def identify_file(place: Path) -> StoredBlob:
    """What the bytes of a file are, as a registry would name them."""
    size_bytes = place.stat().st_size
    digest, git = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)
    for chunk in chunks_of(place):
        digest.update(chunk)
        git.update(chunk)
    return StoredBlob(digest.hexdigest(), git.hexdigest(), size_bytes)


def chunks_of(place: Path) -> Iterator[bytes]:
    """The bytes of a file, in pieces."""
    with place.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _is_of(kernel: LockedKernel, entry: FileEntry) -> bool:
    parts = entry.path.split("/", 2)
    return len(parts) == 3 and kernel.build(parts[1]) is not None
