"""The builds of one commit as a lock records them, without downloading native code.

What is read: the listing and each build's `metadata.json`. Its manifest stands for the files. A build without a manifest
(older kernels) is digested from the listing, where large files are named by their SHA-256; its small files, which git names
by SHA-1 only, are read, each content once.

Leaves out: which commits are locked (see `kernel_hub.locking.make`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kernel_hub.errors import BlobMismatchError, InvalidDocumentError, LengthMismatchError, OfflineError
from kernel_hub.fetch import read_metadata
from kernel_hub.model.digest import Digest, DigestAlgorithm, build_digest, covers
from kernel_hub.model.lock import LockedBuild
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.selection import Variant
from kernel_hub.model.source import BlobId, FileEntry, GitBlob, LfsBlob, Pin
from kernel_hub.model.target import Target
from kernel_hub.model.variant import UnknownLabel, parse_label
from kernel_hub.narrow import narrow
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE, select, variants_of, variants_of_names
from kernel_hub.sources.configured import Connection
from kernel_hub.verify.identities import blob_of, blob_text

_MAX_THREADS = 8
# Files that git keeps itself; the Hub moves larger ones to large-file storage.
_MAX_SMALL_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class FoundBuild:
    """A build that can be locked."""

    locked: LockedBuild
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A build that no lock can hold, and why."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommitBuilds:
    """The builds of a commit, sorted by label."""

    found: tuple[FoundBuild, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def version(self) -> int:
        """The kernel version that the builds state."""
        return self.found[0].metadata.version


def read_builds(connection: Connection, pin: Pin, targets: Iterable[Target]) -> CommitBuilds:
    """Read the builds of a commit.

    Args:
        connection: Where from.
        pin: The commit.
        targets: The machines to lock for; none means every build that exists.

    Raises:
        FetchError: If the source cannot be read, or what it sends is not what its listing announced.
    """
    machines = tuple(targets)
    listed = variants_of(connection.source.files(pin.repo, pin.commit, BUILD_FOLDER))
    left_out = [LeftOut(item.name, item.label.problem) for item in listed if isinstance(item.label, UnknownLabel)]
    wanted = [
        item
        for item in listed
        if not isinstance(item.label, UnknownLabel) and (not machines or serves(item.name, (), machines))
    ]
    contents = _metadata(connection, pin, wanted)
    read: list[tuple[Variant, bytes, Metadata]] = []
    for variant in wanted:
        content = contents.get(variant.name)
        try:
            if content is None:
                raise InvalidDocumentError(variant.name, f"has no {METADATA_FILE}")
            metadata = Metadata.parse(content, name=f"{BUILD_FOLDER}/{variant.name}/{METADATA_FILE}")
        except InvalidDocumentError as error:
            left_out.append(LeftOut(variant.name, f"{error.location}: {error.problem}".removeprefix(": ")))
            continue
        if not machines or serves(variant.name, metadata.archs, machines):
            read.append((variant, content, metadata))
    version = pin.version if pin.version is not None else max((item.version for _, _, item in read), default=0)
    stray = [(variant.name, item.version) for variant, _, item in read if item.version != version]
    left_out += [LeftOut(name, f"states version {number}, not {version}") for name, number in stray]
    kept = [item for item in read if item[2].version == version]
    small = _digests_of_small_files(connection, pin, [variant for variant, _, item in kept if item.manifest is None])
    found = tuple(
        FoundBuild(
            LockedBuild(
                variant.name,
                metadata.archs,
                variant.size_bytes,
                build_digest(content, metadata.manifest or _listed_digests(variant, small)),
            ),
            metadata,
        )
        for variant, content, metadata in kept
    )
    return CommitBuilds(found, tuple(sorted(left_out, key=lambda item: item.label)))


def serves(label: str, archs: tuple[str, ...], targets: Iterable[Target]) -> bool:
    """Whether a build could run on one of some machines.

    Args:
        label: The build's name.
        archs: Its GPU architectures; none if they are not known or there are none.
        targets: The machines.
    """
    parsed = parse_label(label)
    variants = variants_of_names([label])
    for target in targets:
        selection = select(variants, target.host_for(parsed))
        if narrow(selection, {label: archs} if archs else {}).accepted:
            return True
    return False


def _metadata(connection: Connection, pin: Pin, variants: Iterable[Variant]) -> dict[str, bytes]:
    entries = {variant.name: entry for variant in variants if (entry := _metadata_entry(variant)) is not None}
    found = read_metadata(connection.source, connection.cache, pin, entries)
    checked = {}
    for label, entry in entries.items():
        content = found.get(label)
        if content is None:
            raise OfflineError(
                f"{entry.path} of {pin} is not in the cache, and the network may not be used",
                hint="unset HF_HUB_OFFLINE to lock kernels that were not locked before",
            )
        if len(content) == entry.size_bytes:
            _require_blob(content, entry, pin)
        checked[label] = content
    return checked


def _metadata_entry(variant: Variant) -> FileEntry | None:
    path = f"{BUILD_FOLDER}/{variant.name}/{METADATA_FILE}"
    return next((entry for entry in variant.files if entry.path == path), None)


def _listed_digests(variant: Variant, small: Mapping[BlobId, Digest]) -> list[tuple[str, Digest]]:
    return [(_inside(variant, entry), _digest_of(entry.blob, small)) for entry in _covered(variant)]


def _digest_of(blob: BlobId, small: Mapping[BlobId, Digest]) -> Digest:
    match blob:
        case LfsBlob(id):
            return Digest(DigestAlgorithm.SHA256, bytes.fromhex(id))
        case GitBlob():
            return small[blob]


def _digests_of_small_files(connection: Connection, pin: Pin, variants: Iterable[Variant]) -> dict[BlobId, Digest]:
    wanted = {
        entry.blob: entry for variant in variants for entry in _covered(variant) if isinstance(entry.blob, GitBlob)
    }
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        contents = list(pool.map(lambda entry: _content(connection, pin, entry), wanted.values()))
    return {blob: Digest.of(content) for blob, content in zip(wanted, contents, strict=True)}


def _content(connection: Connection, pin: Pin, entry: FileEntry) -> bytes:
    kept = connection.cache.read(pin.repo, pin.commit, entry)
    if kept is not None and blob_of(kept, entry.blob) == entry.blob:
        return kept
    if entry.size_bytes > _MAX_SMALL_FILE_BYTES:
        raise InvalidDocumentError(
            f"{entry.path} of {pin}",
            f"is named by SHA-1 only and has {entry.size_bytes} bytes, more than is read for a lock",
            hint="ask the publisher to rebuild the kernel with a builder that writes digests",
        )
    parts, length_bytes = [], 0
    for chunk in connection.source.chunks(pin.repo, pin.commit, entry):
        parts.append(chunk)
        length_bytes += len(chunk)
        if length_bytes > entry.size_bytes:
            break
    if length_bytes != entry.size_bytes:
        raise LengthMismatchError(f"{entry.path} of {pin}: {entry.size_bytes} bytes were announced, others arrived")
    content = b"".join(parts)
    _require_blob(content, entry, pin)
    return content


def _require_blob(content: bytes, entry: FileEntry, pin: Pin) -> None:
    found = blob_of(content, entry.blob)
    if found != entry.blob:
        raise BlobMismatchError(
            f"{entry.path} of {pin} is {blob_text(found)}, but was announced as {blob_text(entry.blob)}",
            hint="nothing was locked; look for damage in the cache: kernel-hub cache verify",
        )


def _covered(variant: Variant) -> list[FileEntry]:
    return [entry for entry in variant.files if covers(_inside(variant, entry))]


def _inside(variant: Variant, entry: FileEntry) -> str:
    return entry.path.removeprefix(f"{BUILD_FOLDER}/{variant.name}/")
