from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_hub.cache.blob_writer import is_abandoned, is_intact, storing, write_blob
from kernel_hub.errors import BlobMismatchError, CacheError, LengthMismatchError, SourceUnavailableError
from tests.support.scripted import entry_of

SMALL = b"some small file\n"
LARGE = os.urandom(3 << 20)
PIECE = 1 << 16


def pieces(content: bytes, start: int = 0) -> Iterator[bytes]:
    for at in range(start, len(content), PIECE):
        yield content[at : at + PIECE]


def breaking(content: bytes, after: int, start: int = 0) -> Iterator[bytes]:
    yield from pieces(content[:after], start)
    raise SourceUnavailableError("gone", url="memory:")


@pytest.mark.parametrize("lfs", [False, True])
@pytest.mark.parametrize("content", [b"", SMALL, LARGE])
def test_the_announced_bytes_get_the_blobs_name(tmp_path: Path, content: bytes, lfs: bool) -> None:
    entry = entry_of("a", content, lfs=lfs)
    write_blob(tmp_path / "blobs", entry, lambda start: pieces(content, start))
    assert (tmp_path / "blobs" / entry.blob.id).read_bytes() == content
    assert is_intact(tmp_path / "blobs" / entry.blob.id, entry)


@pytest.mark.parametrize("content", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda content: b"X" + content[1:], BlobMismatchError),
        (lambda content: content[:-1], LengthMismatchError),
        (lambda content: content + b"X", LengthMismatchError),
        (lambda content: b"", LengthMismatchError),
    ],
)
def test_other_bytes_never_become_visible(tmp_path: Path, content: bytes, spoil, error: type[Exception]) -> None:
    entry = entry_of("a", content)
    with pytest.raises(error):
        write_blob(tmp_path, entry, lambda start: pieces(spoil(content), start))
    assert list(tmp_path.iterdir()) == []


def test_too_many_bytes_are_not_read_to_the_end(tmp_path: Path) -> None:
    entry = entry_of("a", SMALL)

    def endless(start: int) -> Iterator[bytes]:
        while True:
            yield SMALL

    with pytest.raises(LengthMismatchError):
        write_blob(tmp_path, entry, endless)


def test_a_small_broken_download_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError):
        write_blob(tmp_path, entry_of("a", SMALL), lambda start: breaking(SMALL, 5, start))
    assert list(tmp_path.iterdir()) == []


def test_a_large_broken_download_is_taken_up_where_it_broke(tmp_path: Path) -> None:
    entry = entry_of("a", LARGE)
    with pytest.raises(SourceUnavailableError):
        write_blob(tmp_path, entry, lambda start: breaking(LARGE, 2 << 20, start))
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".incomplete")
    starts: list[int] = []
    told: list[int] = []

    def rest(start: int) -> Iterator[bytes]:
        starts.append(start)
        return pieces(LARGE, start)

    write_blob(tmp_path, entry, rest, told=told.append)
    assert starts == [2 << 20]
    assert sum(told) == len(LARGE)
    assert [path.name for path in tmp_path.iterdir()] == [entry.blob.id]
    assert is_intact(tmp_path / entry.blob.id, entry)


def test_a_damaged_leftover_costs_a_download_and_nothing_else(tmp_path: Path) -> None:
    entry = entry_of("a", LARGE)
    (tmp_path / f"{entry.blob.id}.left-00.incomplete").write_bytes(b"X" * (2 << 20))
    starts: list[int] = []
    told: list[int] = []

    def rest(start: int) -> Iterator[bytes]:
        starts.append(start)
        return pieces(LARGE, start)

    write_blob(tmp_path, entry, rest, told=told.append)
    assert starts == [2 << 20, 0]
    assert sum(told) == len(LARGE)
    assert [path.name for path in tmp_path.iterdir()] == [entry.blob.id]


def test_a_leftover_with_every_byte_needs_no_request(tmp_path: Path) -> None:
    entry = entry_of("a", LARGE)
    (tmp_path / f"{entry.blob.id}.left-00.incomplete").write_bytes(LARGE)
    write_blob(tmp_path, entry, lambda start: pytest.fail("every byte is here"))
    assert is_intact(tmp_path / entry.blob.id, entry)


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    entry = entry_of("a", LARGE)
    with pytest.raises(ZeroDivisionError):

        def failing(start: int) -> Iterator[bytes]:
            yield LARGE[:PIECE]
            (growing,) = tmp_path.iterdir()
            assert not is_abandoned(growing)
            raise ZeroDivisionError

        write_blob(tmp_path, entry, failing)


def test_what_a_dead_process_wrote_is_abandoned(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    host = "".join(char if char.isalnum() else "_" for char in socket.gethostname())[:40]
    left = tmp_path / f"{'a' * 40}.{host}-{child.stdout.strip()}-00.incomplete"
    left.write_bytes(b"")
    assert is_abandoned(left)


def test_what_an_unknown_writer_left_is_abandoned_only_when_it_is_old(tmp_path: Path) -> None:
    left = tmp_path / f"{'a' * 40}.0123abcd.incomplete"
    left.write_bytes(b"")
    assert not is_abandoned(left)
    os.utime(left, (0, 0))
    assert is_abandoned(left)


def test_a_process_whose_file_was_taken_for_abandoned_still_ends_with_the_right_bytes(tmp_path: Path) -> None:
    entry = entry_of("a", LARGE)
    calls = 0

    def stolen(start: int) -> Iterator[bytes]:
        nonlocal calls
        calls += 1
        yield from pieces(LARGE, start)
        if calls == 1:
            for path in tmp_path.iterdir():
                path.unlink()

    write_blob(tmp_path, entry, stolen)
    assert is_intact(tmp_path / entry.blob.id, entry)


def test_a_damaged_blob_is_replaced(tmp_path: Path) -> None:
    entry = entry_of("a", SMALL)
    (tmp_path / entry.blob.id).write_bytes(b"short")
    write_blob(tmp_path, entry, lambda start: [SMALL])
    assert (tmp_path / entry.blob.id).read_bytes() == SMALL


def test_a_disk_that_is_full_is_an_error_of_the_cache_with_a_way_out(tmp_path: Path) -> None:
    def full(start: int) -> Iterator[bytes]:
        yield SMALL[:4]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CacheError, match="No space left") as caught:
        write_blob(tmp_path, entry_of("a", SMALL), full)
    assert "cache prune" in caught.value.hint()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_cache_that_may_not_be_written_names_the_setting(tmp_path: Path, number: int) -> None:
    with pytest.raises(CacheError) as caught, storing(tmp_path):
        raise OSError(number, os.strerror(number))
    assert "HF_HUB_CACHE" in caught.value.hint()
    assert "KERNEL_HUB_HOME" in caught.value.hint(), "where the caches of bound registries lie"
