"""Bundles: the small files of one build in one file, so that a build of hundreds of them is one download.

A bundle lies at `bundles/<label>.tar`, beside `build/` and never inside it, because a build holds listed files only. It is
a plain tar archive (POSIX.1-2001) of the build's files of at most 1 MiB each, under their paths inside the build, sorted,
without owners, times or modes, so that equal builds have equal bundles. It is a short cut and nothing more: a reader takes
from it only files that the commit lists, checks each against the commit's own identity of it, and fetches what is missing,
wrong or too large as if there were no bundle.

Leaves out the downloading (see `kernel_hub.cache.download`) and the publishing (see `kernel_hub.build.publish`).
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, cast

from kernel_hub.errors import InvalidDocumentError

FOLDER = "bundles"
SUFFIX = ".tar"
MAX_FILE_BYTES = 1 << 20
WORTH_FROM_FILES = 16
"""With fewer small files a bundle saves too little to be worth its place in the repository."""

# A header and padding per file, twice for paths that do not fit into one, and the end of the archive.
_OVERHEAD_PER_FILE_BYTES = 4096
_OVERHEAD_BYTES = 64 << 10


def bundle_path(label: str) -> str:
    """Where the bundle of a build lies in its repository."""
    return f"{FOLDER}/{label}{SUFFIX}"


def make_bundle(files: Mapping[str, bytes | Path]) -> bytes | None:
    """The bundle of a build; None if it is not worth one.

    Args:
        files: The build's files by path inside the build: their bytes, or where those lie.
    """
    small: dict[str, bytes] = {}
    for path, content in files.items():
        if isinstance(content, bytes):
            if len(content) <= MAX_FILE_BYTES:
                small[path] = content
        elif content.stat().st_size <= MAX_FILE_BYTES:
            small[path] = content.read_bytes()
    if len(small) < WORTH_FROM_FILES:
        return None
    # Imported here and below because few builds have a bundle, and every load imports this module.
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(small):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(small[path]), 0o644
            tar.addfile(member, io.BytesIO(small[path]))
    return archive.getvalue()


def most_bytes(sizes_bytes: Iterable[int]) -> int:
    """The longest that a bundle of files of these lengths can be."""
    sizes = list(sizes_bytes)
    return sum(sizes) + len(sizes) * _OVERHEAD_PER_FILE_BYTES + _OVERHEAD_BYTES


def read_bundle(chunks: Iterable[bytes], wanted: Container[str], *, name: str) -> Iterator[tuple[str, bytes]]:
    """The files of a bundle that are wanted, as they stream in; everything else in it is passed over.

    Args:
        chunks: The bundle's bytes.
        wanted: Paths inside the build.
        name: What to call the bundle in errors.

    Raises:
        InvalidDocumentError: If it is no bundle. Files before the fault have been given out by then.
    """
    import tarfile

    stream = cast("IO[bytes]", _Stream(iter(chunks)))
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                if member.isreg() and member.name in wanted and member.size <= MAX_FILE_BYTES:
                    file = tar.extractfile(member)
                    assert file is not None
                    yield member.name, file.read()
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise InvalidDocumentError(name, f"is not a bundle: {error}") from error


class _Stream:
    """Pieces as a file that can only be read forward."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size_bytes: int) -> bytes:
        parts, length_bytes = [self._rest], len(self._rest)
        while length_bytes < size_bytes and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            length_bytes += len(chunk)
        whole = b"".join(parts)
        self._rest = whole[size_bytes:]
        return whole[:size_bytes]
