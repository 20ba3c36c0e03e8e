"""Stage 3, fetch: a pin and an accepted build become an artifact, a folder on this disk that nobody trusts yet.

Every file of the source's listing is there with its announced length, or the stage raises. Bytes come in parallel, are
checked against the source's own identities while they stream in, and become visible whole. If everything is there already,
nothing is written and nobody is asked.

Leaves out: whether the bytes are what the publisher made (see `kernel_hub.verify`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from kernel_hub.cache import Cache
from kernel_hub.cache.blob_writer import is_intact
from kernel_hub.cache.download import Progress, store_all
from kernel_hub.errors import IncompleteArtifactError, OfflineError
from kernel_hub.model.artifact import Artifact, FromSource
from kernel_hub.model.metadata import MAX_BYTES
from kernel_hub.model.repo_path import attestation_path
from kernel_hub.model.selection import Accepted, Variant
from kernel_hub.model.source import FileEntry, Pin, Source
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE, variants_of

_SMALL_BYTES = 1 << 20


def fetch(
    source: Source,
    cache: Cache,
    pin: Pin,
    accepted: Accepted,
    *,
    progress: Progress | None = None,
    recheck: bool = False,
) -> Artifact:
    """Bring a build into the cache.

    Args:
        source: Where its files come from.
        cache: Where they go.
        pin: The commit.
        accepted: The build, with its files.
        progress: Told about downloads.
        recheck: Whether files that are here are digested too, and replaced if they are damaged. What cannot be replaced
            stays as it is.

    Raises:
        IncompleteArtifactError: If files are missing and the network may not be used.
        FetchError: If they cannot be obtained or stored.
    """
    variant = accepted.variant
    entries = tuple(entry for entry in accepted.files if not is_bytecode(entry.path))
    folder = f"{BUILD_FOLDER}/{variant.name}"
    if recheck:
        _replace_damaged(source, cache, pin, entries, progress)
    if _missing(cache, pin, entries):
        lock = cache.lock(pin.repo, f"{pin.commit}.{variant.name}", f"fetching {folder} of {pin}")
        with lock.held(lambda: not _missing(cache, pin, entries)):
            missing = _missing(cache, pin, entries)
            try:
                store_all(source, cache, pin, missing, progress=progress, lock=lock)
            except OfflineError as error:
                raise _incomplete(cache, pin, variant, entries, error) from error
            cache.place(pin.repo, pin.commit, folder, entries)
            if pin.ref is not None:
                cache.remember_ref(pin.repo, pin.ref, pin.commit)
    inside = f"{folder}/"
    return Artifact(
        origin=FromSource(pin, source.name),
        label=variant.name,
        root=cache.path(pin.repo, pin.commit, folder),
        announced={
            entry.path.removeprefix(inside): entry.blob for entry in variant.files if not is_bytecode(entry.path)
        },
        archs=accepted.archs,
        blobs=cache.blobs(pin.repo),
        left_out=accepted.left_out,
    )


def read_metadata(
    source: Source, cache: Cache, pin: Pin, labels: Iterable[str], *, ahead: Accepted | None = None
) -> Mapping[str, bytes]:
    """The metadata of builds, kept in the cache so that fetching a build later does not ask for it again.

    Args:
        source: Where it comes from.
        cache: Where it goes.
        pin: The commit.
        labels: The builds' names.
        ahead: A build whose other small files are brought in the same round, because it will probably be fetched next.

    Returns:
        The bytes by label. A build without metadata is not in it, nor one whose metadata is neither here nor to be had
        offline; one that is too long to be metadata is there cut, but still too long.

    Raises:
        FetchError: If the source cannot be read.
    """
    wanted = set(labels)
    builds = {variant.name: variant for variant in variants_of(source.files(pin.repo, pin.commit, BUILD_FOLDER))}
    entries = {
        label: entry
        for label, variant in builds.items()
        if label in wanted and (entry := _metadata_of(variant)) is not None
    }
    found: dict[str, bytes] = {}
    for label, entry in entries.items():
        if entry.size_bytes > MAX_BYTES:
            found[label] = _beginning(source, pin, entry)
    wanted_here = {label: entry for label, entry in entries.items() if label not in found}
    if not _read_here(cache, pin, wanted_here, found):
        name = ahead.variant.name if ahead is not None else "metadata"
        lock = cache.lock(pin.repo, f"{pin.commit}.{name}", f"fetching metadata of {pin}")
        with lock.held(lambda: False):
            if not _read_here(cache, pin, wanted_here, found):
                missing = [entry for label, entry in wanted_here.items() if label not in found]
                more = _small_and_absent(cache, pin, ahead)
                try:
                    wrong = [entry for entry in missing if cache.has_blob(pin.repo, entry)]
                    store_all(source, cache, pin, list(dict.fromkeys([*missing, *more])), lock=lock, replace=wrong)
                except OfflineError:
                    return found
                _read_here(cache, pin, wanted_here, found)
    return found


def _read_here(cache: Cache, pin: Pin, entries: Mapping[str, FileEntry], found: dict[str, bytes]) -> bool:
    """Add to `found` what is in the cache intact; whether that is all."""
    for label, entry in entries.items():
        if label not in found and (content := cache.read(pin.repo, pin.commit, entry)) is not None:
            found[label] = content
    return all(label in found for label in entries)


def fetch_document(source: Source, cache: Cache, pin: Pin, path: str) -> bytes | None:
    """One small file of a commit that belongs to no build, kept in the cache; None if the commit has no such file.

    Args:
        source: Where it comes from.
        cache: Where it goes.
        pin: The commit.
        path: Relative to the repository's root.

    Raises:
        FetchError: If the source cannot be read, or the file not be stored.
    """
    entries = [entry for entry in source.files(pin.repo, pin.commit) if entry.path == path]
    if not entries:
        return None
    if _missing(cache, pin, entries):
        store_all(source, cache, pin, entries)
        cache.place(pin.repo, pin.commit, path.rpartition("/")[0], entries)
    return cache.read(pin.repo, pin.commit, entries[0])


def fetch_attestation(source: Source, cache: Cache, pin: Pin, label: str) -> None:
    """Bring the attestation of a build into the cache, if the commit has one; arguments as for `fetch_document`."""
    fetch_document(source, cache, pin, attestation_path(label))


def damaged(cache: Cache, pin: Pin, entries: Sequence[FileEntry]) -> list[FileEntry]:
    """Those of a build's files that are in the cache with the announced length, but with other bytes."""
    return [
        entry
        for entry in entries
        if cache.has(pin.repo, pin.commit, entry) and not is_intact(cache.path(pin.repo, pin.commit, entry.path), entry)
    ]


def is_bytecode(path: str) -> bool:
    """Whether a path is one that the ecosystem never downloads."""
    parts = PurePosixPath(path)
    return "__pycache__" in parts.parts or parts.suffix == ".pyc"


def _metadata_of(variant: Variant) -> FileEntry | None:
    path = f"{BUILD_FOLDER}/{variant.name}/{METADATA_FILE}"
    return next((entry for entry in variant.files if entry.path == path), None)


def _beginning(source: Source, pin: Pin, entry: FileEntry) -> bytes:
    parts, length_bytes = [], 0
    for chunk in source.chunks(pin.repo, pin.commit, entry):
        parts.append(chunk)
        length_bytes += len(chunk)
        if length_bytes > MAX_BYTES:
            break
    return b"".join(parts)


def _missing(cache: Cache, pin: Pin, entries: Sequence[FileEntry]) -> list[FileEntry]:
    return cache.missing(pin.repo, pin.commit, entries)


def _small_and_absent(cache: Cache, pin: Pin, accepted: Accepted | None) -> list[FileEntry]:
    entries = accepted.files if accepted is not None else ()
    return [
        entry
        for entry in entries
        if entry.size_bytes <= _SMALL_BYTES
        and not is_bytecode(entry.path)
        and not cache.has(pin.repo, pin.commit, entry)
        and not cache.has_blob(pin.repo, entry)
    ]


def _replace_damaged(
    source: Source, cache: Cache, pin: Pin, entries: Sequence[FileEntry], progress: Progress | None
) -> None:
    found = damaged(cache, pin, entries)
    store_all(source, cache, pin, found, progress=progress, replace=found)
    cache.replace(pin.repo, pin.commit, found)


def _incomplete(
    cache: Cache, pin: Pin, variant: Variant, entries: Sequence[FileEntry], error: OfflineError
) -> IncompleteArtifactError | OfflineError:
    missing = _missing(cache, pin, entries)
    command = f"with network access, run: kernel-hub download {pin.repo}@{pin.ref or pin.commit}"
    inside = f"{BUILD_FOLDER}/{variant.name}/"
    if len(missing) == len(entries):
        return OfflineError(f"build {variant.name} of {pin} is not in the cache: {error.message}", hint=command)
    paths = [entry.path.removeprefix(inside) for entry in missing]
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return IncompleteArtifactError(
        f"build {variant.name} of {pin} is incomplete in the cache: {paths[0]}{more} is missing, and {error.message}",
        missing=paths,
        hint=command,
    )
