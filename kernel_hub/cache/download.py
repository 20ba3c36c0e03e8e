"""Bringing blobs of a commit into the cache: in parallel, the largest first, many small ones by their build's bundle.

Every blob is checked against the commit's own identity of it, whichever way it came; a bundle that is missing, damaged or
out of date costs a request and changes nothing. Leaves out which files are wanted, and making them appear (see
`kernel_hub.fetch`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from kernel_hub import bundle
from kernel_hub.cache.folder import Cache
from kernel_hub.cache.worklock import WorkLock
from kernel_hub.errors import InvalidDocumentError, ResolutionError, SourceUnavailableError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import FileEntry, Pin, Source

_LOG = logging.getLogger("kernel_hub")
# Small files are waited for, large ones keep the line busy.
_MAX_THREADS = 16
_MAX_THREADS_FOR_LARGE = 8
_BUILDS = "build"

Progress = Callable[[str, int, int], None]
"""Told a file's path, the bytes that are here of all that were missing, and how many those are."""


@runtime_checkable
class WholeFiles(Protocol):
    """A source that knows a quicker way than `Source.chunks` for some files."""

    def download(self, repo: RepoId, commit: str, entry: FileEntry, place: Path, told: Callable[[int], None]) -> bool:
        """Write a file to `place`; False if there is no quicker way, or it is closed. The caller checks what was written.

        Args:
            repo, commit, entry: The file.
            place: Where to; nobody else's, and what is there afterwards counts only if the answer is True.
            told: Told about every piece; all of it is taken back if the answer is False.
        """


class _StoppedError(Exception):
    """Another file failed."""


class _Tally:
    """Adds up what several threads bring, and stops them when one fails."""

    def __init__(self, total_bytes: int, progress: Progress | None, lock: WorkLock | None) -> None:
        self._total_bytes = total_bytes
        self._progress = progress
        self._lock = lock
        self._done_bytes = 0
        self._guard = threading.Lock()
        self.stopped = False

    def told(self, path: str) -> Callable[[int], None]:
        """What to tell about the pieces of one file."""

        def told(length_bytes: int) -> None:
            with self._guard:
                if self.stopped:
                    raise _StoppedError
                self._done_bytes += length_bytes
                if self._lock is not None:
                    self._lock.beat()
                if self._progress is not None:
                    self._progress(path, self._done_bytes, self._total_bytes)

        return told


def store_all(
    source: Source,
    cache: Cache,
    pin: Pin,
    entries: Sequence[FileEntry],
    *,
    progress: Progress | None = None,
    lock: WorkLock | None = None,
    replace: Sequence[FileEntry] = (),
) -> None:
    """Write the blobs of some files, unless they are there.

    Args:
        source: Where they come from.
        cache: Where they go.
        pin: The commit that they are files of.
        entries: The files.
        progress: Told about every piece.
        lock: Shown that the work goes on.
        replace: Those of the files whose blobs are there but damaged.

    Raises:
        FetchError: If one cannot be obtained or stored. The others are stopped; what they have of large files is kept.
    """
    absent = [entry for entry in entries if entry in replace or not cache.has_blob(pin.repo, entry)]
    # Files with the same bytes are one blob, and one download. The largest first, so that none is left alone at the end.
    unique = list({entry.blob: entry for entry in sorted(absent, key=lambda entry: -entry.size_bytes)}.values())
    tally = _Tally(sum(entry.size_bytes for entry in unique), progress, lock)

    def store(entry: FileEntry) -> None:
        def chunks(start_bytes: int) -> Iterator[bytes]:
            return source.chunks(pin.repo, pin.commit, entry, start_bytes=start_bytes)

        def whole(place: Path, told: Callable[[int], None]) -> bool:
            return isinstance(source, WholeFiles) and source.download(pin.repo, pin.commit, entry, place, told)

        cache.store(pin.repo, entry, chunks, whole=whole, told=tally.told(entry.path), replace=entry in replace)

    def unpack(entry: FileEntry, content: bytes) -> None:
        cache.store(pin.repo, entry, lambda start_bytes: [content[start_bytes:]], told=tally.told(entry.path))

    for label, small in _worth_a_bundle([entry for entry in unique if entry not in replace]):
        _unpack_bundle(source, pin, label, small, unpack)
        unique = [entry for entry in unique if entry in replace or not cache.has_blob(pin.repo, entry)]
    if len(unique) == 1:
        store(unique[0])
    elif unique:
        _in_parallel(store, unique, tally)


def _in_parallel(store: Callable[[FileEntry], None], entries: Sequence[FileEntry], tally: _Tally) -> None:
    # Imported here because most loads find everything in the cache.
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    most = _MAX_THREADS if _is_small(entries[0]) else _MAX_THREADS_FOR_LARGE
    with ThreadPoolExecutor(min(most, len(entries)), thread_name_prefix="kernel_hub-fetch") as pool:
        pending = [pool.submit(store, entry) for entry in entries]
        try:
            done, _ = wait(pending, return_when=FIRST_EXCEPTION)
            failures = [error for future in done if (error := future.exception()) is not None]
            if failures:
                raise next((error for error in failures if not isinstance(error, _StoppedError)), failures[0])
        finally:
            tally.stopped = True
            for future in pending:
                future.cancel()


def _is_small(entry: FileEntry) -> bool:
    return entry.size_bytes <= bundle.MAX_FILE_BYTES


def _worth_a_bundle(entries: Sequence[FileEntry]) -> Iterator[tuple[str, Mapping[str, FileEntry]]]:
    """Builds of which many small files are wanted, with those files by path inside the build."""
    builds: dict[str, dict[str, FileEntry]] = {}
    for entry in entries:
        parts = entry.path.split("/", 2)
        if len(parts) == 3 and parts[0] == _BUILDS and _is_small(entry):
            builds.setdefault(parts[1], {})[parts[2]] = entry
    for label, small in builds.items():
        if len(small) >= bundle.WORTH_FROM_FILES:
            yield label, small


def _unpack_bundle(
    source: Source,
    pin: Pin,
    label: str,
    small: Mapping[str, FileEntry],
    unpack: Callable[[FileEntry, bytes], None],
) -> None:
    """Store what a build's bundle has of its files; whatever goes wrong leaves them to be fetched one by one."""
    from concurrent.futures import ThreadPoolExecutor

    path = bundle.bundle_path(label)
    failures: list[str] = []
    try:
        listed = {entry.path: entry for entry in source.files(pin.repo, pin.commit, bundle.FOLDER)}
        entry = listed.get(path)
        if entry is None or entry.size_bytes > bundle.most_bytes(_sizes_of_build(source, pin, label)):
            return
        with ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="kernel_hub-unpack") as pool:
            # Each file waits for the disk on its own, so several are written at a time.
            pending = [
                pool.submit(unpack, small[inside], content)
                for inside, content in bundle.read_bundle(source.chunks(pin.repo, pin.commit, entry), small, name=path)
            ]
        failures = [str(error) for future in pending if (error := future.exception()) is not None]
    except (ResolutionError, SourceUnavailableError, InvalidDocumentError) as error:
        failures = [error.message]
    if failures:
        _LOG.info("%s of %s is of no use (%s); its files are fetched one by one", path, pin, failures[0])


def _sizes_of_build(source: Source, pin: Pin, label: str) -> Iterable[int]:
    inside = f"{_BUILDS}/{label}/"
    return [entry.size_bytes for entry in source.files(pin.repo, pin.commit, _BUILDS) if entry.path.startswith(inside)]
