"""The Hub's JSON: git's own ids, listings, and lines of commits."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError
from kernel_hub.model.commit import Commit, StoredBlob, StoredFile
from kernel_hub.server import wire

VECTORS = Path(__file__).parents[2] / "vectors" / "git-tree"


def make(files: dict[str, bytes], *, parent: str | None = None, time_s: int = 0) -> Commit:
    stored = [StoredFile.of(path, StoredBlob.of(content)) for path, content in files.items()]
    return Commit.make(stored, parents=[parent] if parent else [], message=f"at {time_s}", time_s=time_s)


def line(key: str, value: dict[str, object]) -> bytes:
    return json.dumps({"key": key, "value": value}).encode()


def read(content: bytes) -> wire.CommitLine:
    return wire.read_commit_line(content, number=3)


def test_ids_of_files_and_folders_are_those_of_git() -> None:
    vector = json.loads((VECTORS / "mixed.json").read_text(encoding="utf-8"))
    commit = make({path: text.encode() for path, text in vector["files"].items()})
    assert {row.path: row.id for row in wire.tree_rows(commit, "", recursive=True)} == vector["ids"]
    below = wire.tree_rows(commit, "build", recursive=True)
    assert {row.path: row.id for row in below} == {
        path: id for path, id in vector["ids"].items() if path.startswith("build/")
    }


def test_listing_of_one_level_shows_folders_and_not_what_is_in_them() -> None:
    commit = make({"a/b/c": b"1", "a/d": b"2", "e": b"3"})
    assert [row.path for row in wire.tree_rows(commit, "", recursive=False)] == ["a", "e"]
    assert [row.path for row in wire.tree_rows(commit, "a", recursive=False)] == ["a/b", "a/d"]


def test_listing_of_a_missing_folder_is_an_entry_that_is_not_there() -> None:
    with pytest.raises(EntryNotFoundError):
        wire.tree_rows(make({"ab/c": b"1"}), "a", recursive=True)


def test_large_file_is_shown_with_its_pointer() -> None:
    row = wire.tree_rows(make({"k.so": b"elf"}), "", recursive=False)[0]
    document = wire.row_json(row, None)
    digest = StoredBlob.of(b"elf").digest
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 3\n".encode()
    assert document["lfs"] == {"oid": digest, "size": 3, "pointerSize": len(pointer)}
    assert document["oid"] == StoredBlob.of(pointer).git_id


def test_last_change_of_a_row_is_the_commit_that_gave_it_its_content() -> None:
    first = make({"a": b"1", "b/c": b"1", "d": b"1"}, time_s=1)
    second = make({"a": b"2", "b/c": b"1", "d": b"1"}, parent=first.id, time_s=2)
    third = make({"a": b"2", "b/c": b"3", "d": b"1", "e": b"1"}, parent=second.id, time_s=3)
    rows = wire.tree_rows(third, "", recursive=False)
    last = wire.last_changes(rows, iter([third, second, first]))
    assert {path: commit.message for path, commit in last.items()} == {
        "a": "at 2",
        "b": "at 3",
        "d": "at 1",
        "e": "at 3",
    }


def test_lines_of_a_commit_are_read() -> None:
    digest = "ab" * 32
    assert read(line("header", {"summary": "s", "description": "", "parentCommit": "c"})) == wire.Header("s", "", "c")
    assert read(line("header", {"summary": "", "description": "d"})) == wire.Header("", "d", None)
    assert read(line("file", {"path": "a", "content": "", "encoding": "base64"})) == wire.InlineFile("a", b"")
    assert read(line("lfsFile", {"path": "a", "algo": "sha256", "oid": digest, "size": 0})) == wire.LargeFile(
        "a", digest, 0
    )
    assert read(line("lfsFile", {"path": "a", "algo": "sha256", "oid": digest})) == wire.LargeFile("a", digest, None)
    assert read(line("deletedFile", {"path": "a/b"})) == wire.DeletedFile("a/b")
    assert read(line("deletedFolder", {"path": "a/b/"})) == wire.DeletedFolder("a/b")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"key": "file"}',
        b'{"key": 1, "value": {}}',
        b'{"key": "header", "key": "file", "value": {}}',
        line("unknown", {}),
        line("header", {"description": "no summary"}),
        line("file", {"path": "a"}),
        line("file", {"path": "a", "content": "%%%", "encoding": "base64"}),
        line("file", {"path": "a", "content": "YQ", "encoding": "base64"}),
        line("file", {"path": "a", "content": "é", "encoding": "base64"}),
        line("file", {"path": "a", "content": "YQ==", "encoding": "utf-8"}),
        line("file", {"path": "a", "content": 5}),
        line("file", {"path": "../a", "content": "YQ=="}),
        line("file", {"path": "/a", "content": "YQ=="}),
        line("file", {"path": ".git/config", "content": "YQ=="}),
        line("lfsFile", {"path": "a", "oid": "AB" * 32}),
        line("lfsFile", {"path": "a", "oid": "ab"}),
        line("lfsFile", {"path": "a", "oid": "ab" * 32, "algo": "sha1"}),
        line("lfsFile", {"path": "a", "oid": "ab" * 32, "size": -1}),
        line("deletedFile", {"path": ""}),
        line("deletedFolder", {"path": "/"}),
        line("deletedFolder", {"path": "a/../b"}),
    ],
)
def test_malformed_line_is_refused_with_its_number(content: bytes) -> None:
    with pytest.raises(InvalidDocumentError, match=r"line 3|path"):
        read(content)


def test_deeply_nested_line_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="line 3"):
        read(b'{"key": "file", "value": ' + b"[" * 100_000)


def test_content_comes_through_base64() -> None:
    content = bytes(range(256))
    encoded = base64.b64encode(content).decode()
    assert read(line("file", {"path": "a", "content": encoded})) == wire.InlineFile("a", content)
