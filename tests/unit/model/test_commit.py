"""Commits: their ids, their manifests, and what follows from one to the next."""

from __future__ import annotations

import json

import pytest

from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError
from kernel_hub.model.commit import Commit, StoredBlob, StoredFile, git_blob_id
from kernel_hub.model.source import GitBlob, LfsBlob


def stored(path: str, content: bytes = b"1", *, lfs: bool = False) -> StoredFile:
    return StoredFile.of(path, StoredBlob.of(content), lfs=lfs)


def make(*files: StoredFile, **changed: object) -> Commit:
    values: dict[str, object] = {"parents": ["ab" * 20], "message": "m", "description": "d", "time_s": 7}
    return Commit.make(files, **(values | changed))  # type: ignore[arg-type]


def test_identity_of_bytes_is_that_of_git() -> None:
    assert git_blob_id(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    assert git_blob_id(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.mark.parametrize(
    ("path", "size_bytes", "came_by_lfs", "shown_as"),
    [
        ("a.py", 1, False, GitBlob),
        ("a.py", (1 << 20) - 1, False, GitBlob),
        ("a.py", 1 << 20, False, LfsBlob),
        ("a.py", 1, True, LfsBlob),
        ("k.abi3.so", 1, False, LfsBlob),
        ("K.DLL", 0, False, LfsBlob),
        ("k.so.txt", 1, False, GitBlob),
    ],
)
def test_file_is_shown_as_what_the_hub_would(path: str, size_bytes: int, came_by_lfs: bool, shown_as: type) -> None:
    blob = StoredBlob("ab" * 32, "cd" * 20, size_bytes)
    assert isinstance(StoredFile.of(path, blob, lfs=came_by_lfs).entry.blob, shown_as)


def test_id_depends_on_everything_in_the_commit() -> None:
    base = make(stored("a"))
    others = [
        make(stored("b")),
        make(stored("a", b"2")),
        make(stored("a", lfs=True)),
        make(stored("a"), stored("b")),
        make(stored("a"), parents=[]),
        make(stored("a"), message="other"),
        make(stored("a"), description="other"),
        make(stored("a"), time_s=8),
    ]
    assert len({base.id, *(other.id for other in others)}) == 1 + len(others)


def test_id_does_not_depend_on_the_order_of_files() -> None:
    assert make(stored("a"), stored("b")).id == make(stored("b"), stored("a")).id


def test_id_stays_the_same_from_release_to_release() -> None:
    assert make(stored("a")).id == "fceb5b38b64ec02ee1f15356d538a5fd027445c2"


@pytest.mark.parametrize("upstream_id", [None, "cd" * 20, "ef" * 32])
def test_manifest_is_read_back_as_it_was(upstream_id: str | None) -> None:
    commit = make(stored("k.so"), stored("é/ü"), upstream_id=upstream_id, message='"quoted" é')
    assert Commit.parse(commit.format(), id=commit.id, name="manifest") == commit


def test_manifest_under_another_id_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="belongs to commit"):
        Commit.parse(make(stored("a")).format(), id="0" * 40, name="manifest")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"files": None},
        {"files": [{"path": "a"}]},
        {"files": [{"path": "../a", "size": 1, "sha256": "ab" * 32, "git": "ab" * 20, "lfs": False}]},
        {"files": [{"path": "a", "size": -1, "sha256": "ab" * 32, "git": "ab" * 20, "lfs": False}]},
        {"files": [{"path": "a", "size": 1, "sha256": "../../x", "git": "ab" * 20, "lfs": False}]},
        {"files": [{"path": "a", "size": 1, "sha256": "AB" * 32, "git": "ab" * 20, "lfs": False}]},
        {"files": 2 * [{"path": "a", "size": 1, "sha256": "ab" * 32, "git": "ab" * 20, "lfs": False}]},
        {"parents": ["main"]},
        {"upstream": "main"},
        {"time": "now"},
    ],
)
def test_bad_manifest_is_refused(change: dict[str, object]) -> None:
    commit = make(stored("a"))
    document = json.loads(commit.format()) | change
    with pytest.raises(InvalidDocumentError):
        Commit.parse(json.dumps(document).encode(), id=commit.id, name="manifest")


def test_changes_are_made_in_one_step() -> None:
    commit = make(stored("a"), stored("b"), stored("c"))
    changed = commit.changed([stored("c", b"new"), stored("d"), stored("a", b"back")], ["a", "b"])
    assert {file.path: file.blob for file in changed} == {
        "a": StoredBlob.of(b"back"),
        "c": StoredBlob.of(b"new"),
        "d": StoredBlob.of(b"1"),
    }
    with pytest.raises(EntryNotFoundError):
        commit.changed([], ["absent"])


def test_files_below_a_folder_are_not_those_beside_it() -> None:
    commit = make(stored("build/a/x"), stored("build/ab"), stored("build.py"))
    assert [file.path for file in commit.below("build/a")] == ["build/a/x"]
    assert len(commit.below("")) == 3


def test_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="Unicode"):
        make(message="\ud800")
