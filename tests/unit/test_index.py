from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_hub.index import Index
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob, PublisherStanding, Refs
from tests.support.scripted import REPO, commit_id, entry_of

ONE, TWO, THREE = commit_id("one"), commit_id("two"), commit_id("three")
ENTRIES = (
    entry_of("build/a/x.py", b"1"),
    FileEntry("build/b/x.so", 1 << 40, LfsBlob("a" * 64), "0" * 64),
    FileEntry("build/b/ü.py", 0, GitBlob("b" * 40)),
)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "index")


def test_what_is_remembered_is_found(index: Index) -> None:
    refs = Refs({"main": ONE, "v1": TWO}, {"stable": ONE})
    index.remember_refs("hub", REPO, refs, 1000.9)
    index.remember_listing("hub", REPO, ONE, "build", ENTRIES)
    index.remember_standing("hub", "acme", PublisherStanding(True, "so it says"), 2000)
    known = index.refs("hub", REPO)
    assert known is not None
    assert (known.refs, known.asked_s, dict(known.earlier)) == (refs, 1000, {})
    assert index.listing("hub", REPO, ONE, "build") == ENTRIES
    standing = index.standing("hub", "acme")
    assert standing is not None
    assert (standing.standing, standing.asked_s) == (PublisherStanding(True, "so it says"), 2000)


def test_sources_do_not_mix(index: Index) -> None:
    index.remember_refs("hub", REPO, Refs({"v1": ONE}), 1)
    index.remember_listing("hub", REPO, ONE, "", ENTRIES)
    index.remember_standing("hub", "acme", PublisherStanding(True, "so it says"), 1)
    assert index.refs("mirror", REPO) is None
    assert index.listing("mirror", REPO, ONE, "") is None
    assert index.standing("mirror", "acme") is None


def test_a_listing_of_everything_answers_for_a_folder_but_not_the_reverse(index: Index) -> None:
    index.remember_listing("hub", REPO, ONE, "", ENTRIES)
    assert index.listing("hub", REPO, ONE, "build/b") == ENTRIES[1:]
    index.remember_listing("hub", REPO, TWO, "build", ENTRIES)
    assert index.listing("hub", REPO, TWO, "") is None


def test_an_empty_listing_is_known_to_be_empty(index: Index) -> None:
    index.remember_listing("hub", REPO, ONE, "build", ())
    assert index.listing("hub", REPO, ONE, "build") == ()


def test_earlier_commits_of_a_branch_are_kept_newest_first_and_not_without_end(index: Index) -> None:
    for number in range(12):
        index.remember_refs("hub", REPO, Refs({"v1": commit_id(str(number))}), number)
    known = index.refs("hub", REPO)
    assert known is not None
    assert known.refs.branches == {"v1": commit_id("11")}
    assert known.earlier["v1"] == tuple(commit_id(str(number)) for number in range(10, 2, -1))


def test_asking_again_without_a_change_keeps_what_was_earlier(index: Index) -> None:
    for commit in (ONE, TWO, TWO, TWO, ONE):
        index.remember_refs("hub", REPO, Refs({"v1": commit}), 1)
    known = index.refs("hub", REPO)
    assert known is not None
    assert known.earlier == {"v1": (TWO,)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 2}',
        '{"format": 1}',
        '{"format": 1, "asked": 1, "branches": {"v1": "no commit"}, "tags": {}, "earlier": {}, "files": [["p", 1]]}',
        '{"format": 1, "asked": "x", "trusted": 1, "reason": 2, "branches": [], "files": [["p", -1, "git:00", null]]}',
        '{"format": 1, "files": [["p", 1, "sha:%s", null]]}' % ("a" * 40),
        '{"format": 1, "files": "p"}',
    ],
)
def test_a_damaged_file_counts_as_absent_and_is_written_anew(index: Index, text: str) -> None:
    index.remember_refs("hub", REPO, Refs({"v1": ONE}), 1)
    index.remember_listing("hub", REPO, ONE, "build", ENTRIES)
    index.remember_standing("hub", "acme", PublisherStanding(True, "so it says"), 1)
    for path in index.root.rglob("*.json"):
        path.write_text(text)
    assert index.refs("hub", REPO) is None
    assert index.listing("hub", REPO, ONE, "build") is None
    assert index.standing("hub", "acme") is None
    index.remember_refs("hub", REPO, Refs({"v1": TWO}), 1)
    known = index.refs("hub", REPO)
    assert known is not None
    assert known.refs.branches == {"v1": TWO}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("a file in its place")
    index = Index(tmp_path / "index")
    index.remember_refs("hub", REPO, Refs({"v1": ONE}), 1)
    assert index.refs("hub", REPO) is None


def test_files_are_json_with_the_formats_number_and_nothing_else_lies_beside_them(index: Index) -> None:
    index.remember_refs("hub", REPO, Refs({"v1": ONE}), 1)
    index.remember_listing("hub", REPO, ONE, "", ENTRIES)
    files = [path for path in index.root.rglob("*") if path.is_file()]
    assert {json.loads(path.read_text())["format"] for path in files} == {1}
    assert {path.suffix for path in files} == {".json"}
