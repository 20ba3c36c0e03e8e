"""What every sink does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernel_hub.errors import (
    ConflictError,
    EntryNotFoundError,
    InvalidDocumentError,
    KernelHubError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.source import Addition
from tests.contract.conftest import ABSENT_COMMIT, ABSENT_REPO, REPO, Pair


def paths(pair: Pair, commit: str) -> list[str]:
    return [entry.path for entry in pair.sink.files(REPO, commit)]


def test_it_has_a_name(pair: Pair) -> None:
    assert pair.sink.name


def test_new_repository_has_an_empty_main(pair: Pair) -> None:
    assert list(pair.sink.refs(REPO).branches) == ["main"]
    assert is_commit(pair.head())
    assert paths(pair, pair.head()) == []


def test_repository_that_is_there_is_left_alone(pair: Pair) -> None:
    made = pair.commit({"a": b"1"})
    pair.sink.create_repo(REPO)
    assert pair.head() == made


def test_repositories_are_apart(pair: Pair) -> None:
    other = RepoId("acme", "other")
    pair.sink.create_repo(other)
    pair.commit({"a": b"1"})
    assert pair.sink.files(other, pair.sink.refs(other).branches["main"]) == ()


def test_branch_starts_at_main(pair: Pair) -> None:
    made = pair.commit({"a": b"1"})
    assert pair.sink.create_branch(REPO, "v1") == made
    assert pair.head("v1") == made


def test_branch_starts_where_it_is_told(pair: Pair) -> None:
    first = pair.commit({"a": b"1"})
    pair.commit({"a": b"2"})
    assert pair.sink.create_branch(REPO, "v1", start=first) == first


def test_branch_that_is_there_is_left_alone(pair: Pair) -> None:
    pair.sink.create_branch(REPO, "v1")
    made = pair.commit({"a": b"1"}, branch="v1")
    assert pair.sink.create_branch(REPO, "v1") == made


def test_branch_from_nowhere_is_refused(pair: Pair) -> None:
    with pytest.raises(RevisionNotFoundError):
        pair.sink.create_branch(REPO, "v1", start=ABSENT_COMMIT)
    assert list(pair.sink.refs(REPO).branches) == ["main"]


@pytest.mark.parametrize("branch", ["", "a b", "../main", "refs/heads/x", "a..b", "f" * 40])
def test_bad_branch_name_is_refused(pair: Pair, branch: str) -> None:
    with pytest.raises(InvalidDocumentError):
        pair.sink.create_branch(REPO, branch)


def test_commit_moves_its_branch_and_no_other(pair: Pair) -> None:
    main = pair.head()
    pair.sink.create_branch(REPO, "v1")
    made = pair.commit({"build/torch-cpu/__init__.py": b"", "README.md": b"hello"}, branch="v1")
    assert is_commit(made)
    assert pair.head("v1") == made
    assert pair.head() == main
    assert paths(pair, made) == ["README.md", "build/torch-cpu/__init__.py"]


def test_old_commit_stays_as_it_was(pair: Pair) -> None:
    first = pair.commit({"a": b"1", "b": b"2"})
    second = pair.commit({"c": b"3"}, deletions=("a",))
    assert paths(pair, first) == ["a", "b"]
    assert paths(pair, second) == ["b", "c"]


def test_file_is_replaced(pair: Pair) -> None:
    pair.commit({"a": b"1", "b": b"2"})
    made = pair.commit({"a": b"11"})
    assert {entry.path: entry.size_bytes for entry in pair.sink.files(REPO, made)} == {"a": 2, "b": 1}


def test_file_that_is_both_deleted_and_added_is_there(pair: Pair) -> None:
    pair.commit({"a": b"1"})
    made = pair.commit({"a": b"22"}, deletions=("a",))
    assert [entry.size_bytes for entry in pair.sink.files(REPO, made)] == [2]


def test_file_on_disk_is_added(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 20)
    made = pair.sink.commit(
        REPO,
        "main",
        parent=pair.head(),
        additions=[Addition("build/k.so", tmp_path / "weights")],
        deletions=(),
        message="from disk",
    )
    assert pair.source.read(REPO, made, "build/k.so", limit_bytes=1 << 20) == bytes(range(256)) * 20


def test_commit_that_changes_nothing_is_not_made(pair: Pair) -> None:
    made = pair.commit({"a": b"1", "k.so": b"elf"})
    assert pair.commit({"a": b"1", "k.so": b"elf"}) == made


def test_commit_on_a_moved_head_is_a_conflict_and_changes_nothing(pair: Pair) -> None:
    stale = pair.head()
    made = pair.commit({"a": b"1"})
    with pytest.raises(ConflictError):
        pair.sink.commit(REPO, "main", parent=stale, additions=[Addition("b", b"2")], deletions=(), message="too late")
    assert pair.head() == made
    assert paths(pair, made) == ["a"]


def test_one_of_several_writers_wins(pair: Pair) -> None:
    parent = pair.head()
    outcomes: list[str] = []
    barrier = threading.Barrier(4)

    def write(number: int) -> None:
        barrier.wait()
        try:
            outcomes.append(
                pair.sink.commit(
                    REPO,
                    "main",
                    parent=parent,
                    additions=[Addition("a", b"%d" % number)],
                    deletions=(),
                    message="race",
                )
            )
        except ConflictError:
            outcomes.append("conflict")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == sorted([pair.head(), "conflict", "conflict", "conflict"])


def test_deletion_of_an_absent_file_is_refused_and_changes_nothing(pair: Pair) -> None:
    before = pair.head()
    with pytest.raises(EntryNotFoundError):
        pair.commit({"a": b"1"}, deletions=("absent",))
    assert pair.head() == before


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a\\b", "a//b", ".git/config", "a\0b", "nul", "a/"])
def test_unsafe_path_is_refused_and_changes_nothing(pair: Pair, path: str) -> None:
    before = pair.head()
    with pytest.raises(InvalidDocumentError):
        pair.commit({"good": b"1", path: b"2"})
    assert pair.head() == before


def test_path_that_is_file_and_folder_is_refused(pair: Pair) -> None:
    before = pair.commit({"a": b"1"})
    with pytest.raises(KernelHubError, match="would be a file and"):
        pair.commit({"a/b": b"2"})
    assert pair.head() == before


def test_a_proposal_can_be_read_and_moves_no_branch(pair: Pair) -> None:
    before = pair.commit({"kept": b"1", "old": b"2"})
    words = {"parent": before, "additions": [Addition("new", b"3")], "deletions": ["old"], "message": "m"}
    first = pair.sink.propose(REPO, "main", **words)  # type: ignore[arg-type]
    assert paths(pair, first.commit) == ["kept", "new"]
    assert pair.sink.refs(REPO).branches == {"main": before}
    second = pair.sink.propose(REPO, "main", **words)  # type: ignore[arg-type]
    assert second.number > first.number > 0


def test_a_proposal_to_an_absent_branch_is_refused(pair: Pair) -> None:
    with pytest.raises(RevisionNotFoundError):
        pair.sink.propose(
            REPO, "absent", parent=pair.head(), additions=[Addition("a", b"1")], deletions=(), message="m"
        )


def test_absent_branch_and_repository_are_named_as_what_they_are(pair: Pair) -> None:
    with pytest.raises(RevisionNotFoundError):
        pair.sink.commit(REPO, "absent", parent=pair.head(), additions=[Addition("a", b"1")], deletions=(), message="m")
    with pytest.raises(RepositoryNotFoundError):
        pair.sink.commit(
            ABSENT_REPO, "main", parent=pair.head(), additions=[Addition("a", b"1")], deletions=(), message="m"
        )
    with pytest.raises(RepositoryNotFoundError):
        pair.sink.create_branch(ABSENT_REPO, "v1")
    with pytest.raises(RepositoryNotFoundError):
        pair.sink.refs(ABSENT_REPO)
    with pytest.raises(RevisionNotFoundError):
        pair.sink.files(REPO, ABSENT_COMMIT)
