"""What every source does."""

from __future__ import annotations

import hashlib

import pytest

from kernel_hub.errors import (
    EntryNotFoundError,
    InvalidDocumentError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob
from tests.contract.conftest import ABSENT_COMMIT, ABSENT_REPO, REPO, Pair

LARGE = bytes(range(256)) * 10_000


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def entry_of(pair: Pair, commit: str, path: str) -> FileEntry:
    return next(entry for entry in pair.source.files(REPO, commit) if entry.path == path)


def test_it_has_a_name(pair: Pair) -> None:
    assert pair.source.name


def test_references_are_those_of_the_sink(pair: Pair) -> None:
    for version in (1, 2, 10):
        pair.sink.create_branch(REPO, f"v{version}")
        pair.commit({"a": b"%d" % version}, branch=f"v{version}")
    assert pair.source.refs(REPO).branches == pair.sink.refs(REPO).branches
    assert list(pair.source.refs(REPO).versions()) == [1, 2, 10]


def test_revision_may_be_a_branch_or_a_commit(pair: Pair) -> None:
    pair.sink.create_branch(REPO, "v1")
    made = pair.commit({"build/torch-cpu/a": b"1"}, branch="v1")
    assert pair.source.commit_of(REPO, "v1") == made
    assert pair.source.commit_of(REPO, made) == made


@pytest.mark.parametrize("revision", ["absent", "v9", ABSENT_COMMIT, ABSENT_COMMIT[:12]])
def test_absent_revision_is_named_as_what_it_is(pair: Pair, revision: str) -> None:
    with pytest.raises(RevisionNotFoundError, match=revision):
        pair.source.commit_of(REPO, revision)


def test_absent_repository_is_named_as_what_it_is(pair: Pair) -> None:
    for ask in (
        lambda: pair.source.refs(ABSENT_REPO),
        lambda: pair.source.commit_of(ABSENT_REPO, "main"),
        lambda: pair.source.files(ABSENT_REPO, ABSENT_COMMIT),
        lambda: pair.source.read(ABSENT_REPO, ABSENT_COMMIT, "a", limit_bytes=9),
    ):
        with pytest.raises(RepositoryNotFoundError, match=str(ABSENT_REPO)):
            ask()


def test_listing_has_every_file_once_sorted_with_its_identity(pair: Pair) -> None:
    files = {"b/c/d": b"1", "b/c": b"", "a.py": b"x = 1\n", "k.so": b"elf", "large": LARGE, "unicode/é.txt": b"e"}
    del files["b/c"]
    made = pair.commit(files)
    listed = pair.source.files(REPO, made)
    assert [entry.path for entry in listed] == sorted(files, key=str.encode)
    for entry in listed:
        content = files[entry.path]
        assert entry.size_bytes == len(content)
        match entry.blob:
            case GitBlob(id):
                assert id == git_id(content)
            case LfsBlob(id):
                assert id == hashlib.sha256(content).hexdigest()
    assert {entry.path for entry in listed if isinstance(entry.blob, LfsBlob)} >= {"k.so", "large"}


def test_listing_of_a_folder_is_exactly_what_lies_below_it(pair: Pair) -> None:
    made = pair.commit({"build/torch/a": b"1", "build/torch-cpu/b": b"2", "build/torch.py": b"3", "other": b"4"})
    assert [entry.path for entry in pair.source.files(REPO, made, "build/torch")] == ["build/torch/a"]
    assert len(pair.source.files(REPO, made, "build")) == 3


@pytest.mark.parametrize("prefix", ["absent", "other", "build/torch-cpu/b", "buil"])
def test_listing_of_what_is_no_folder_is_empty(pair: Pair, prefix: str) -> None:
    made = pair.commit({"build/torch-cpu/b": b"2", "other": b"4"})
    assert pair.source.files(REPO, made, prefix) == ()


@pytest.mark.parametrize("prefix", ["..", "/build", "build/", "a//b", "a\\b"])
def test_unsafe_folder_is_refused(pair: Pair, prefix: str) -> None:
    with pytest.raises(InvalidDocumentError):
        pair.source.files(REPO, pair.head(), prefix)


def test_listing_of_an_absent_commit_is_refused(pair: Pair) -> None:
    with pytest.raises(RevisionNotFoundError):
        pair.source.files(REPO, ABSENT_COMMIT)


def test_small_file_is_read(pair: Pair) -> None:
    made = pair.commit({"build/torch-cpu/metadata.json": b"{}", "empty": b""})
    assert pair.source.read(REPO, made, "build/torch-cpu/metadata.json", limit_bytes=2) == b"{}"
    assert pair.source.read(REPO, made, "empty", limit_bytes=0) == b""


def test_old_content_is_read_from_the_old_commit(pair: Pair) -> None:
    first = pair.commit({"a": b"1"})
    second = pair.commit({"a": b"2"})
    assert pair.source.read(REPO, first, "a", limit_bytes=9) == b"1"
    assert pair.source.read(REPO, second, "a", limit_bytes=9) == b"2"


def test_file_beyond_the_limit_is_refused(pair: Pair) -> None:
    made = pair.commit({"a": b"123"})
    with pytest.raises(InvalidDocumentError, match="longer than 2 bytes"):
        pair.source.read(REPO, made, "a", limit_bytes=2)


@pytest.mark.parametrize("path", ["absent", "build", "build/torch-cpu/absent"])
def test_absent_file_is_named_as_what_it_is(pair: Pair, path: str) -> None:
    made = pair.commit({"build/torch-cpu/a": b"1"})
    with pytest.raises(EntryNotFoundError, match=path):
        pair.source.read(REPO, made, path, limit_bytes=9)


@pytest.mark.parametrize("path", ["a b.txt", "a%20b.txt", "a+b#c.txt", "é/ü.txt", "a&b=c.txt", "%2e%2e/x"])
def test_path_with_marks_of_urls_is_read(pair: Pair, path: str) -> None:
    made = pair.commit({path: path.encode()})
    assert pair.source.read(REPO, made, path, limit_bytes=99) == path.encode()
    assert [entry.path for entry in pair.source.files(REPO, made)] == [path]


@pytest.mark.parametrize("start_bytes", [0, 1, 1 << 20, len(LARGE) - 1])
def test_bytes_come_from_where_they_are_asked_for(pair: Pair, start_bytes: int) -> None:
    made = pair.commit({"large.bin": LARGE})
    entry = entry_of(pair, made, "large.bin")
    assert b"".join(pair.source.chunks(REPO, made, entry, start_bytes=start_bytes)) == LARGE[start_bytes:]


def test_empty_file_has_no_bytes(pair: Pair) -> None:
    made = pair.commit({"empty": b""})
    assert b"".join(pair.source.chunks(REPO, made, entry_of(pair, made, "empty"))) == b""


def test_bytes_of_an_absent_file_are_refused(pair: Pair) -> None:
    with pytest.raises(EntryNotFoundError):
        list(pair.source.chunks(REPO, pair.head(), FileEntry("absent", 1, GitBlob("0" * 40))))


def test_publisher_nobody_vouches_for_is_not_trusted(pair: Pair) -> None:
    pair.sink.create_repo(REPO)
    standing = pair.source.publisher("acme")
    assert standing.trusted is not True
    assert standing.reason
    assert pair.source.publisher("nobody").trusted is not True
