"""Attack: an archive of kernels with links, devices, paths that lead out, names that come twice, and lengths that lie."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, KernelHubError, UnsafePathError
from kernel_hub.locking.tar import BLOCK_BYTES, TarReader, TarWriter, is_name

ENFORCED_BY = "kernel_hub.locking.tar.TarReader"


def read(content: bytes, *, limit_bytes: int = 1 << 20, limit_members: int = 10) -> dict[str, bytes]:
    reader = TarReader(io.BytesIO(content), name="a.tar", limit_bytes=limit_bytes, limit_members=limit_members)
    return {member.name: b"".join(chunks()) for member, chunks in reader.members()}


def tar(
    *members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "", format: int = tarfile.USTAR_FORMAT
) -> bytes:
    """A tar as the standard library writes it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()[: _end(file.getvalue())]


def _end(content: bytes) -> int:
    """Where the two blocks of the end are over; the standard library pads beyond."""
    zeros = len(content) - len(content.rstrip(b"\0"))
    used = len(content) - zeros
    return -(-used // BLOCK_BYTES) * BLOCK_BYTES + 2 * BLOCK_BYTES


def written(*members: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    writer = TarWriter(file)
    for name, content in members:
        writer.add(name, len(content), iter((content,)))
    writer.finish()
    return file.getvalue()


PLAIN = [("a.json", b"one"), ("blobs/0f", b"x" * 513), ("empty", b"")]


def test_what_is_written_is_read_and_any_tar_reads_it() -> None:
    content = written(*PLAIN)
    assert read(content) == dict(PLAIN)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert [(item.name, item.size, item.mode, item.mtime, item.uid) for item in archive] == [
            (name, len(data), 0o644, 0, 0) for name, data in PLAIN
        ]


def test_a_plain_tar_of_another_writer_is_read() -> None:
    assert read(tar(("a.json", b"one"))) == {"a.json": b"one"}


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../a",
            "a/../b",
            "..",
            "/a",
            "//a",
            "a//b",
            "a/",
            "./a",
            "a/./b",
            "",
            "C:a",
            "a\\b",
            "a b",
            "A",
            "é",
            "a\nb",
        ),
        *(".hidden", "a/.git", "con/..", "a" * 101, "-rf"),
    ],
)
def test_a_name_that_is_not_plain_is_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(InvalidDocumentError):
        TarWriter(io.BytesIO()).add(name, 0, iter(()))
    if name and not name.endswith("/") and len(name) <= 100:
        with pytest.raises(UnsafePathError):
            read(tar((name, b"")))


@pytest.mark.parametrize(
    "kind",
    [
        *(tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE),
        *(tarfile.CONTTYPE, tarfile.AREGTYPE, tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE),
        *(tarfile.XGLTYPE, b"9"),
    ],
)
def test_anything_but_a_regular_file_is_refused(kind: bytes) -> None:
    with pytest.raises(UnsafePathError, match="is not a regular file"):
        read(tar(("a", b""), kind=kind))


def test_a_regular_file_with_a_link_target_is_refused() -> None:
    with pytest.raises(UnsafePathError, match="is not a regular file"):
        read(tar(("a", b""), link="/etc/passwd"))


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_extensions_for_long_names_are_refused(format: int) -> None:
    with pytest.raises(UnsafePathError):
        read(tar(("a" * 200, b""), format=format))


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(UnsafePathError, match="holds a twice"):
        read(written(("a", b"1"), ("a", b"2")))


def changed(content: bytes, place: int, field: bytes) -> bytes:
    """A header field replaced, with a checksum that fits."""
    header = bytearray(content[:BLOCK_BYTES])
    header[place : place + len(field)] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content[BLOCK_BYTES:]


@pytest.mark.parametrize(
    ("place", "field"),
    [
        (124, b"-0000000001\0"),
        (124, b"\x80" + bytes(10) + b"\1"),
        (124, b"\xff" * 12),
        (124, b" " * 12),
        (124, b"0000000000x\0"),
        (257, b"ustar  \0"),
        (257, bytes(8)),
        (345, b"prefix"),
    ],
)
def test_a_header_of_another_kind_is_refused(place: int, field: bytes) -> None:
    with pytest.raises(KernelHubError):
        read(changed(written(("a", b"1")), place, field))


def test_a_length_beyond_the_file_is_a_cut_file_and_not_memory() -> None:
    with pytest.raises(InvalidDocumentError, match="cut off in a"):
        read(changed(written(("a", b"1")), 124, b"77777777777\0"), limit_bytes=1 << 40)


def test_more_content_than_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidDocumentError, match="holds more than is read"):
        read(changed(written(("a", b"1")), 124, b"77777777777\0"))
    with pytest.raises(InvalidDocumentError, match="holds more than is read"):
        read(written(("a", b"12"), ("b", b"34")), limit_bytes=3)
    with pytest.raises(InvalidDocumentError, match="holds more than is read"):
        read(written(*((f"m{number}", b"") for number in range(11))))


def test_every_cut_is_noticed() -> None:
    content = written(("a", b"1" * 600), ("b", b""))
    for length in (0, 1, 511, 512, 513, 1024, 1535, 1536, 2047, 2048, 2559, 2560, len(content) - 1):
        with pytest.raises(InvalidDocumentError):
            read(content[:length])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="goes on after its end"):
        read(written(("a", b"1")) + b"\0")


@pytest.mark.parametrize("place", [0, 100, 124, 148, 156, 257, 300])
def test_a_flipped_byte_of_a_header_is_noticed(place: int) -> None:
    content = bytearray(written(("a", b"1")))
    content[place] ^= 1
    with pytest.raises(KernelHubError):
        read(bytes(content))


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04" + bytes(600), b"x" * 1024, bytes(512)):
        with pytest.raises(InvalidDocumentError):
            read(content)


def test_members_may_be_passed_over() -> None:
    reader = TarReader(io.BytesIO(written(*PLAIN)), name="a.tar", limit_bytes=1 << 20, limit_members=10)
    names: list[tuple[str, Callable[..., object] | None]] = [(member.name, None) for member, _ in reader.members()]
    assert [name for name, _ in names] == [name for name, _ in PLAIN]
