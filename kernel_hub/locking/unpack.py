"""Reading the archives that `kernel_hub.locking.archive` describes, as if an enemy had made them.

Members are accepted in their order and by their names; lengths and digests are those that the manifests say; every build is
held to the lock before its commit can be seen in the registry. What was read before a refusal is bytes that nothing names,
which the registry's next sweep removes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from kernel_hub.errors import BlobMismatchError, DigestMismatchError, InvalidDocumentError, UnsafePathError
from kernel_hub.locking.archive import FORMAT_NAME, FORMAT_VERSION, HEAD
from kernel_hub.locking.mirror import MESSAGE, TIME_S
from kernel_hub.locking.tar import Member, TarReader
from kernel_hub.model import lock_text
from kernel_hub.model.artifact import Violation, ViolationKind
from kernel_hub.model.commit import MAX_MANIFEST_BYTES, Commit, StoredBlob
from kernel_hub.model.digest import Digest, DigestAlgorithm, build_digest, covers
from kernel_hub.model.document import load_json
from kernel_hub.model.lock import Lock
from kernel_hub.model.lock_names import OWN
from kernel_hub.model.metadata import MAX_BYTES as MAX_METADATA_BYTES
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.repo_path import attestation_path, check_ref_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE
from kernel_hub.sources.directory import DirectoryRegistry

DEFAULT_LIMIT_BYTES = 256 << 30
_MAX_HEAD_BYTES = 16 << 20
_MAX_MEMBERS = 1_000_000
_ANEW = "get the archive anew; if it is the same again, do not trust where it comes from"

_Members: TypeAlias = Iterator[tuple[Member, Callable[[], Iterator[bytes]]]]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came out of an archive.

    Attributes:
        lock: The lock in it.
        blobs: How many different files it held.
        size_bytes: Their length.
    """

    lock: Lock
    blobs: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Packed:
    """A commit that an archive says it holds."""

    repo: RepoId
    commit: Commit
    branches: tuple[str, ...]


def read_archive(
    file: BinaryIO,
    registry: DirectoryRegistry,
    *,
    name: str,
    expected: Lock | None = None,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Unpacked:
    """Put what an archive holds into a registry folder.

    Args:
        file: The archive.
        registry: Where to.
        name: What to call the archive in errors.
        expected: The lock that it must have been made from; None to take the one in it.
        limit_bytes: How much content is read at most.

    Raises:
        InvalidDocumentError: If it is no such archive, is cut off, too large, or made from another lock.
        UnsafePathError: If it holds anything else than files of such an archive.
        BlobMismatchError: If a file has other bytes than its name says.
        DigestMismatchError: If a build is not what the lock holds.
    """
    members = TarReader(file, name=name, limit_bytes=limit_bytes, limit_members=_MAX_MEMBERS).members()
    lock, packed = _read_head(members, name)
    if expected is not None and lock != expected:
        raise InvalidDocumentError(name, "was made from another lock", hint="bundle the lock anew: kernel-hub bundle")
    _require_the_locked_builds(lock, packed, name)
    wanted = {file.blob.digest: file.blob for item in packed for file in item.commit.files}
    for digest in sorted(wanted):
        _take(members, registry, wanted[digest], name)
    stray = next(members, None)
    if stray is not None:
        raise UnsafePathError(f"{name} holds {stray[0].name}, which no manifest names", hint=_ANEW)
    for item in packed:
        _require_digests(lock, item, registry, name)
    for item in packed:
        registry.create_repo(item.repo)
        registry.widen_commit(item.repo, item.commit.id, item.commit.files, message=MESSAGE, time_s=TIME_S)
        for branch in item.branches:
            registry.point_branch(item.repo, branch, item.commit.id)
    return Unpacked(lock, len(wanted), sum(blob.size_bytes for blob in wanted.values()))


def _read_head(members: _Members, name: str) -> tuple[Lock, list[_Packed]]:
    head_name = f"{HEAD} of {name}"
    head = load_json(_small(members, HEAD, _MAX_HEAD_BYTES, name), name=head_name, limit_bytes=_MAX_HEAD_BYTES)
    if head.text("format") != FORMAT_NAME:
        raise head.fault("format", f"is not {FORMAT_NAME!r}")
    if head.whole("version") != FORMAT_VERSION:
        raise InvalidDocumentError(
            head_name,
            f"{head.whole('version')} is not a version that this release reads (it reads {FORMAT_VERSION})",
            location="version",
            hint="use a newer kernel_hub",
        )
    content = _small(members, OWN, lock_text.MAX_BYTES, name)
    lock = lock_text.parse_lock(content, name=f"{OWN} of {name}")
    packed = []
    left_bytes = MAX_MANIFEST_BYTES
    for number, item in enumerate(head.objects("kernels")):
        item.only("repo", "commit", "branches")
        place = f"commits/{number}.json"
        manifest = _small(members, place, left_bytes, name)
        left_bytes -= len(manifest)
        commit = Commit.parse(manifest, id=item.text("commit"), name=f"{place} of {name}")
        if not commit.upstream:
            raise InvalidDocumentError(f"{place} of {name}", "is not a mirrored commit")
        branches = tuple(check_ref_name(branch, document=head_name) for branch in item.texts("branches"))
        packed.append(_Packed(RepoId.parse(item.text("repo")), commit, branches))
    return lock, packed


def _small(members: _Members, wanted: str, limit_bytes: int, name: str) -> bytes:
    member, content = _next(members, wanted, name)
    if member.size_bytes > limit_bytes:
        raise InvalidDocumentError(name, f"is longer than {limit_bytes} bytes", location=wanted)
    return b"".join(content())


def _next(members: _Members, wanted: str, name: str) -> tuple[Member, Callable[[], Iterator[bytes]]]:
    found = next(members, None)
    if found is None or found[0].name != wanted:
        there = f"{found[0].name} in its place" if found else "nothing more"
        raise InvalidDocumentError(name, f"is no archive of kernels: it lacks {wanted}, and has {there}", hint=_ANEW)
    return found


def _take(members: _Members, registry: DirectoryRegistry, blob: StoredBlob, name: str) -> None:
    member, content = _next(members, f"blobs/{blob.digest}", name)
    if member.size_bytes != blob.size_bytes:
        raise BlobMismatchError(
            f"{name}: {member.name} has {member.size_bytes} bytes, but its manifest says {blob.size_bytes}", hint=_ANEW
        )
    with registry.receive(blob.size_bytes) as incoming:
        for chunk in content():
            incoming.write(chunk)
        kept = incoming.finish(digest=blob.digest)
    if kept != blob:
        raise BlobMismatchError(f"{name}: the git id of {member.name} is not the one in its manifest", hint=_ANEW)


def _require_the_locked_builds(lock: Lock, packed: Sequence[_Packed], name: str) -> None:
    """The archive holds the locked commits and in each the locked builds: no other, and none missing."""
    found = {(item.repo, item.commit.id): item for item in packed}
    wanted = {(kernel.repo, kernel.commit): kernel for kernel in lock.kernels}
    if len(found) != len(packed) or found.keys() != wanted.keys():
        raise InvalidDocumentError(name, "does not hold the commits that its lock names", hint=_ANEW)
    for key, kernel in wanted.items():
        labels = {build.label for build in kernel.builds}
        attestations = {attestation_path(label) for label in labels}
        for file in found[key].commit.files:
            parts = file.path.split("/", 2)
            is_inside = len(parts) == 3 and parts[0] == BUILD_FOLDER and parts[1] in labels
            if not is_inside and file.path not in attestations:
                raise UnsafePathError(f"{name} holds {file.path} of {kernel}, which is not locked", hint=_ANEW)


def _require_digests(lock: Lock, item: _Packed, registry: DirectoryRegistry, name: str) -> None:
    kernel = next(kernel for kernel in lock.kernels if (kernel.repo, kernel.commit) == (item.repo, item.commit.id))
    for build in kernel.builds:
        inside = f"{BUILD_FOLDER}/{build.label}/"
        blobs = {
            file.path.removeprefix(inside): file.blob for file in item.commit.files if file.path.startswith(inside)
        }
        found = _digest(blobs, registry, f"{inside}{METADATA_FILE} of {kernel} in {name}")
        if found != build.digest:
            violation = Violation(ViolationKind.CHANGED, inside[:-1], str(build.digest), str(found))
            raise DigestMismatchError(
                f"{name}: {kernel} is not what the lock in it holds:\n  {violation}",
                violations=(violation,),
                hint=_ANEW,
            )


def _digest(blobs: dict[str, StoredBlob], registry: DirectoryRegistry, metadata_name: str) -> Digest:
    metadata = blobs.get(METADATA_FILE)
    if metadata is None or metadata.size_bytes > MAX_METADATA_BYTES:
        raise InvalidDocumentError(metadata_name, "is missing or too long", hint=_ANEW)
    content = b"".join(registry.stored_chunks(metadata))
    manifest = Metadata.parse(content, name=metadata_name).manifest
    algorithm = manifest.algorithm if manifest else DigestAlgorithm.SHA256
    return build_digest(
        content,
        [(path, _digest_of(blob, algorithm, registry)) for path, blob in blobs.items() if covers(path)],
    )


def _digest_of(blob: StoredBlob, algorithm: DigestAlgorithm, registry: DirectoryRegistry) -> Digest:
    if algorithm is DigestAlgorithm.SHA256:
        return Digest(algorithm, bytes.fromhex(blob.digest))
    hasher = hashlib.new(algorithm.value)
    for chunk in registry.stored_chunks(blob):
        hasher.update(chunk)
    return Digest(algorithm, hasher.digest())
