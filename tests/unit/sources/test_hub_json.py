from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.errors import InvalidDocumentError, KernelHubError, UnsafePathError
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob, PublisherStanding, Refs
from kernel_hub.sources.hub_json import commit_of, listing_of, page_of, refs_of, standing_of

URL = "http://hub/api"
COMMIT = "a" * 40
ROW = {"type": "file", "path": "build/torch-cpu/x.py", "oid": "b" * 40, "size": 3}


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def test_references_are_branches_and_tags() -> None:
    answer = {
        "branches": [{"name": "v1", "ref": "refs/heads/v1", "targetCommit": COMMIT}],
        "tags": [{"name": "stable", "ref": "refs/tags/stable", "targetCommit": COMMIT}],
        "converts": [{"name": "refs/convert/x", "ref": "refs/convert/x", "targetCommit": "whatever"}],
    }
    assert refs_of(text(answer), URL) == Refs({"v1": COMMIT}, {"stable": COMMIT})


@pytest.mark.parametrize("name", ["refs/pr/1", "a b", "../x", "-x", COMMIT])
def test_names_that_nobody_can_ask_for_are_left_out(name: str) -> None:
    assert refs_of(text({"branches": [{"name": name, "targetCommit": COMMIT}], "tags": []}), URL) == Refs({})


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"branches": {}},
        {"branches": ["v1"]},
        {"branches": [{"name": "v1"}]},
        {"branches": [{"name": "v1", "targetCommit": "../../etc"}]},
        {"branches": [{"name": 1, "targetCommit": COMMIT}]},
    ],
)
def test_references_of_another_shape_are_refused_with_the_address(answer: Any) -> None:
    with pytest.raises(InvalidDocumentError, match=URL):
        refs_of(text(answer), URL)


def test_a_listing_has_git_and_large_files_and_no_folders() -> None:
    rows = [
        ROW,
        {"type": "directory", "path": "build", "oid": "c" * 40, "size": 0},
        {
            "type": "file",
            "path": "build/torch-cpu/x.so",
            "oid": "d" * 40,
            "size": 130,
            "lfs": {"oid": "e" * 64, "size": 1 << 33, "pointerSize": 130},
            "xetHash": "f" * 64,
        },
    ]
    assert page_of(text(rows), URL) == (
        FileEntry(ROW["path"], 3, GitBlob("b" * 40)),
        FileEntry("build/torch-cpu/x.so", 1 << 33, LfsBlob("e" * 64), "f" * 64),
    )


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "build/../../x", "a//b", "a/./b", "a\\..\\b", "C:\\x", "a\0b", "a/", "a\nb", ".git/config"],
)
def test_a_path_that_leads_elsewhere_is_unsafe(path: str) -> None:
    with pytest.raises(UnsafePathError):
        page_of(text([ROW | {"path": path}]), URL)


@pytest.mark.parametrize(
    "change",
    [
        {"path": None},
        {"path": 3},
        {"oid": "zz"},
        {"oid": "B" * 40},
        {"size": -1},
        {"size": "3"},
        {"size": 1e3},
        {"size": True},
        {"lfs": {"oid": "a" * 40, "size": 1}},
        {"lfs": []},
        {"type": 1},
    ],
)
def test_a_row_of_another_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidDocumentError, match=r"\[0\]"):
        page_of(text([ROW | change]), URL)


@pytest.mark.parametrize("content", [b"", b"<html>", b"{}", b"[1]", b'[{"type": "file"', b"\xff"])
def test_what_is_no_listing_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidDocumentError):
        page_of(content, URL)


def entry(path: str) -> FileEntry:
    return FileEntry(path, 1, GitBlob("a" * 40))


@pytest.mark.parametrize(
    "paths",
    [["build/a", "build/a"], ["build/a", "other/b"], ["build/a", "build/a/b"], ["build"]],
)
def test_pages_that_make_no_folder_are_refused(paths: list[str]) -> None:
    with pytest.raises(InvalidDocumentError):
        listing_of([entry(path) for path in paths], "build", URL)


def test_a_listing_is_sorted_by_path() -> None:
    assert [found.path for found in listing_of([entry("build/b"), entry("build/a")], "build", URL)] == [
        "build/a",
        "build/b",
    ]


@pytest.mark.parametrize("value", [{}, {"sha": "main"}, {"sha": None}, {"sha": "A" * 40}, []])
def test_a_revision_without_a_commit_is_refused(value: Any) -> None:
    with pytest.raises(InvalidDocumentError):
        commit_of(text(value), URL)


@pytest.mark.parametrize(
    ("value", "trusted"),
    [({"trustedKernelPublisher": True}, True), ({"trustedKernelPublisher": False}, False), ({}, False)],
)
def test_a_publisher_is_trusted_only_if_the_hub_says_so(value: Any, trusted: bool) -> None:
    standing = standing_of(text(value), URL)
    assert isinstance(standing, PublisherStanding)
    assert standing.trusted is trusted


@pytest.mark.parametrize("value", ["yes", 1, {}])
def test_a_word_on_trust_that_is_no_truth_value_is_refused(value: Any) -> None:
    with pytest.raises(InvalidDocumentError):
        standing_of(text({"trustedKernelPublisher": value}), URL)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_answer_leads_to_anything_but_a_value_or_a_typed_error(value: Any) -> None:
    for read in (refs_of, commit_of, standing_of, page_of):
        try:
            read(text(value), URL)
        except KernelHubError:
            continue
