"""What a registry folder does beyond the protocols: its format, its crashes, its sweeping, its races."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from kernel_hub.errors import (
    BlobMismatchError,
    ConflictError,
    EntryNotFoundError,
    InvalidDocumentError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.model.commit import StoredFile
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, LfsBlob
from kernel_hub.model.visibility import Visibility
from kernel_hub.sources.directory import DirectoryRegistry

REPO = RepoId("acme", "axpy")


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    made = DirectoryRegistry.create(tmp_path / "registry", clock_s=lambda: 1_700_000_000)
    made.create_repo(REPO)
    return made


def head(registry: DirectoryRegistry, branch: str = "main") -> str:
    return registry.refs(REPO).branches[branch]


def commit(registry: DirectoryRegistry, files: dict[str, bytes], *, deletions: tuple[str, ...] = ()) -> str:
    additions = [Addition(path, content) for path, content in files.items()]
    return registry.commit(
        REPO, "main", parent=head(registry), additions=additions, deletions=deletions, message="change"
    )


def test_folder_that_is_no_registry_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match="is no registry") as caught:
        DirectoryRegistry.open(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_file_in_place_of_a_registry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidDocumentError, match="is no registry"):
        DirectoryRegistry.open(tmp_path / "file")
    with pytest.raises(InvalidDocumentError, match="is no registry"):
        DirectoryRegistry.create(tmp_path / "file")


def test_registry_is_not_created_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"mine")
    with pytest.raises(InvalidDocumentError, match="not empty"):
        DirectoryRegistry.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_newer_format_is_refused_with_a_way_out(registry: DirectoryRegistry) -> None:
    marker = Path(registry.name) / "registry.json"
    marker.write_text(json.dumps({"format": "kernel_hub registry", "version": 2}))
    with pytest.raises(InvalidDocumentError, match="newer kernel_hub"):
        DirectoryRegistry.open(registry.name)


def test_create_opens_a_registry_that_is_there(registry: DirectoryRegistry) -> None:
    assert DirectoryRegistry.create(registry.name).repos() == (REPO,)


def test_commit_id_follows_from_content_parent_message_and_time(tmp_path: Path) -> None:
    ids = []
    for name, time_s in (("a", 5), ("b", 5), ("c", 6)):
        made = DirectoryRegistry.create(tmp_path / name, clock_s=lambda time_s=time_s: time_s)
        made.create_repo(REPO)
        ids.append(commit(made, {"README.md": b"hello"}))
    assert ids[0] == ids[1] != ids[2]
    assert all(len(id) == 40 for id in ids)


def test_equal_bytes_are_kept_once(registry: DirectoryRegistry) -> None:
    commit(registry, {"a": b"same", "b/c": b"same"})
    blobs = [path for path in (Path(registry.name) / "blobs").rglob("*") if path.is_file()]
    assert len(blobs) == 1


def test_commit_that_changes_nothing_is_not_made(registry: DirectoryRegistry) -> None:
    first = commit(registry, {"a": b"1"})
    assert commit(registry, {"a": b"1"}) == first


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../out",
        "a/../../out",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "C:evil",
        "a\0b",
        "a\nb",
        ".git/config",
        "a/.GIT/hooks",
        "con",
        "a/NUL.txt",
        "trailing.",
        "trailing ",
        "\ud800",
        "x" * 256,
        "/".join(["d" * 200] * 6),
    ],
)
def test_unsafe_path_is_refused_and_nothing_is_written(registry: DirectoryRegistry, path: str) -> None:
    before = head(registry)
    with pytest.raises(InvalidDocumentError):
        commit(registry, {"good": b"1", path: b"2"})
    assert head(registry) == before
    assert registry.files(REPO, before) == ()


def test_path_cannot_be_file_and_folder(registry: DirectoryRegistry) -> None:
    with pytest.raises(InvalidDocumentError, match="a folder"):
        commit(registry, {"a": b"1", "a/b": b"2"})


def test_paths_that_differ_in_case_are_two_files(registry: DirectoryRegistry) -> None:
    made = commit(registry, {"A.py": b"1", "a.py": b"2"})
    assert registry.read(REPO, made, "A.py", limit_bytes=9) == b"1"
    assert registry.read(REPO, made, "a.py", limit_bytes=9) == b"2"


@pytest.mark.parametrize(
    "name",
    ["", "a b", "../x", "refs/heads/x", "HEAD", "a..b", "a.lock", "a//b", "x.", "-x", "f" * 40, "a\0", "a" * 201],
)
def test_bad_branch_or_tag_name_is_refused(registry: DirectoryRegistry, name: str) -> None:
    with pytest.raises(InvalidDocumentError):
        registry.create_branch(REPO, name)
    with pytest.raises(InvalidDocumentError):
        registry.create_tag(REPO, name)


def test_branches_that_differ_in_case_or_look_like_devices_are_kept_apart(registry: DirectoryRegistry) -> None:
    names = ["V1", "v1", "con", "feature/x", "feature-x"]
    for name in names:
        registry.create_branch(REPO, name)
    assert sorted(registry.refs(REPO).branches) == sorted([*names, "main"])


def test_native_and_large_files_are_listed_as_large_file_storage(registry: DirectoryRegistry) -> None:
    made = commit(registry, {"k.so": b"elf", "big.txt": b"x" * (1 << 20), "small.txt": b"x"})
    shown = {entry.path: isinstance(entry.blob, LfsBlob) for entry in registry.files(REPO, made)}
    assert shown == {"big.txt": True, "k.so": True, "small.txt": False}


def test_crash_before_the_reference_moves_leaves_the_old_head(registry: DirectoryRegistry) -> None:
    """Everything a writer leaves if it dies just before moving the branch."""
    before = head(registry)
    registry.store(b"orphan")
    (Path(registry.name) / "scratch" / "half").write_bytes(b"half a file")
    branch = Path(registry.name) / "repos" / "acme" / "axpy" / "heads" / "main"
    made = commit(registry, {"a": b"1"})
    branch.write_text(before)
    assert head(registry) == before
    swept = registry.gc(grace_s=0)
    assert (swept.commits, swept.blobs, swept.scratch) == (1, 2, 1)
    assert registry.files(REPO, before) == ()
    with pytest.raises(RevisionNotFoundError):
        registry.files(REPO, made)


def test_gc_keeps_what_references_lead_to(registry: DirectoryRegistry) -> None:
    old = commit(registry, {"a": b"1"})
    new = commit(registry, {"a": b"2"})
    registry.create_tag(REPO, "keep", revision=old)
    assert registry.gc(grace_s=0).blobs == 0
    assert registry.read(REPO, old, "a", limit_bytes=9) == b"1"
    assert registry.read(REPO, new, "a", limit_bytes=9) == b"2"


def test_gc_spares_recent_bytes_that_a_commit_may_still_name(registry: DirectoryRegistry) -> None:
    blob = registry.store(b"uploading")
    assert registry.gc(grace_s=3600).blobs == 0
    assert registry.stored(blob.digest) == blob
    assert registry.gc(grace_s=0).blobs == 1
    with pytest.raises(BlobMismatchError, match="not in the registry"):
        registry.commit_files(
            REPO, "main", parent=None, files=[StoredFile.of("a", blob)], deletions=(), message="too late"
        )


def test_deleted_branch_loses_its_commits_only_to_gc(registry: DirectoryRegistry) -> None:
    registry.create_branch(REPO, "v1")
    made = registry.commit(
        REPO, "v1", parent=head(registry, "v1"), additions=[Addition("a", b"1")], deletions=(), message="m"
    )
    registry.delete_branch(REPO, "v1")
    assert registry.commit_of(REPO, made) == made
    assert registry.gc(grace_s=0).commits == 1
    with pytest.raises(RevisionNotFoundError):
        registry.commit_of(REPO, made)


def test_main_cannot_be_deleted(registry: DirectoryRegistry) -> None:
    with pytest.raises(InvalidDocumentError):
        registry.delete_branch(REPO, "main")


def test_imported_commit_keeps_its_upstream_id(registry: DirectoryRegistry) -> None:
    upstream = "ab" * 20
    files = [StoredFile.of("a", registry.store(b"1")), StoredFile.of("b", registry.store(b"2"), lfs=True)]
    registry.import_commit(REPO, upstream, files, parents=["cd" * 20], message="m", time_s=7)
    registry.move_branch(REPO, "v1", upstream, expected=None)
    registry.gc(grace_s=0)
    again = DirectoryRegistry.open(registry.name)
    assert again.commit_of(REPO, "v1") == upstream
    assert [entry.path for entry in again.files(REPO, upstream)] == ["a", "b"]
    assert [commit.id for commit in again.history(REPO, upstream)] == [upstream]


def test_upstream_id_is_never_given_to_other_content(registry: DirectoryRegistry) -> None:
    upstream = "ab" * 20
    for content in (b"1", b"1"):
        registry.import_commit(REPO, upstream, [StoredFile.of("a", registry.store(content))], message="m", time_s=7)
    with pytest.raises(ConflictError):
        registry.import_commit(REPO, upstream, [StoredFile.of("a", registry.store(b"2"))], message="m", time_s=7)


def test_branch_moves_only_from_the_expected_head(registry: DirectoryRegistry) -> None:
    first, old = commit(registry, {"a": b"1"}), head(registry)
    registry.create_branch(REPO, "v1", start=first)
    with pytest.raises(ConflictError):
        registry.move_branch(REPO, "v1", old, expected="0" * 40)
    with pytest.raises(RevisionNotFoundError):
        registry.move_branch(REPO, "v1", "0" * 40, expected=first)


def test_one_of_many_writers_wins_a_head(registry: DirectoryRegistry) -> None:
    parent = head(registry)
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        own = DirectoryRegistry.open(registry.name)
        barrier.wait()
        try:
            own.commit(
                REPO, "main", parent=parent, additions=[Addition("a", b"%d" % number)], deletions=(), message="race"
            )
            outcomes.append("made")
        except ConflictError:
            outcomes.append("conflict")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["conflict"] * 7 + ["made"]
    assert [commit.parents for commit in registry.history(REPO, head(registry))] == [(parent,), ()]


def test_writers_without_an_expected_head_all_land(registry: DirectoryRegistry) -> None:
    blob = registry.store(b"1")
    barrier = threading.Barrier(6)

    def write(number: int) -> None:
        own = DirectoryRegistry.open(registry.name)
        barrier.wait()
        own.commit_files(
            REPO, "main", parent=None, files=[StoredFile.of(f"f{number}", blob)], deletions=(), message="add"
        )

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.path for entry in registry.files(REPO, head(registry))] == [f"f{n}" for n in range(6)]


def test_damaged_file_is_not_read(registry: DirectoryRegistry) -> None:
    made = commit(registry, {"a": b"good"})
    blob = registry.load(REPO, made).files[0].blob
    path = Path(registry.name) / "blobs" / blob.digest[:2] / blob.digest[2:]
    path.write_bytes(b"evil")
    with pytest.raises(BlobMismatchError):
        registry.read(REPO, made, "a", limit_bytes=99)
    with pytest.raises(BlobMismatchError):
        DirectoryRegistry.open(registry.name).stored(blob.digest)
    path.write_bytes(b"cut")
    with pytest.raises(BlobMismatchError):
        list(registry.chunks(REPO, made, registry.files(REPO, made)[0]))
    path.unlink()
    with pytest.raises(SourceUnavailableError):
        registry.read(REPO, made, "a", limit_bytes=99)


def test_damaged_blob_is_replaced_by_the_next_upload(registry: DirectoryRegistry) -> None:
    blob = registry.store(b"good")
    path = Path(registry.name) / "blobs" / blob.digest[:2] / blob.digest[2:]
    path.write_bytes(b"go")
    registry.store(b"good")
    assert path.read_bytes() == b"good"


def test_damaged_manifest_is_not_served(registry: DirectoryRegistry) -> None:
    made = commit(registry, {"a": b"1"})
    path = Path(registry.name) / "repos" / "acme" / "axpy" / "commits" / f"{made}.json"
    path.write_bytes(path.read_bytes().replace(b'"change"', b'"chance"'))
    with pytest.raises(InvalidDocumentError, match="belongs to commit"):
        DirectoryRegistry.open(registry.name).files(REPO, made)


def test_damaged_reference_is_named(registry: DirectoryRegistry) -> None:
    (Path(registry.name) / "repos" / "acme" / "axpy" / "heads" / "main").write_bytes(b"")
    with pytest.raises(InvalidDocumentError, match="no commit id"):
        registry.refs(REPO)


def test_damaged_reference_is_not_taken_for_a_missing_one(registry: DirectoryRegistry) -> None:
    (Path(registry.name) / "repos" / "acme" / "axpy" / "heads" / "main").write_bytes(b"")
    with pytest.raises(InvalidDocumentError, match="no commit id"):
        registry.commit_of(REPO, "main")


@pytest.mark.parametrize("revision", ["", ".", "..", "../heads/main", "refs/heads/..", "a" * 300, "\0", "refs/pr/x"])
def test_revision_that_no_reference_can_have_is_not_found(registry: DirectoryRegistry, revision: str) -> None:
    with pytest.raises(RevisionNotFoundError):
        registry.commit_of(REPO, revision)


def test_deletion_of_an_absent_file_is_refused(registry: DirectoryRegistry) -> None:
    with pytest.raises(EntryNotFoundError):
        commit(registry, {"a": b"1"}, deletions=("absent",))


def test_deleted_repository_is_gone_and_can_be_made_again(registry: DirectoryRegistry) -> None:
    commit(registry, {"a": b"1"})
    registry.delete_repo(REPO)
    with pytest.raises(RepositoryNotFoundError):
        registry.refs(REPO)
    assert registry.repos() == ()
    registry.create_repo(REPO)
    assert registry.files(REPO, head(registry)) == ()
    assert registry.gc(grace_s=0).blobs == 1


def test_repository_is_made_once(registry: DirectoryRegistry) -> None:
    made = commit(registry, {"a": b"1"})
    assert registry.add_repo(REPO, Visibility(private=True)) is False
    assert head(registry) == made
    assert registry.visibility(REPO) == Visibility()


def test_publisher_standing_is_what_the_registry_says(registry: DirectoryRegistry) -> None:
    registry.set_publisher("acme", True)
    registry.set_publisher("evil", False)
    assert registry.publisher("acme").trusted is True
    assert registry.publisher("evil").trusted is False
    assert registry.publisher("other").trusted is None
    registry.set_publisher("acme", None)
    assert registry.publisher("acme").trusted is None


def test_unreadable_statement_of_publishers_is_a_standing_too(registry: DirectoryRegistry) -> None:
    (Path(registry.name) / "publishers.json").write_text("{")
    standing = registry.publisher("acme")
    assert standing.trusted is None
    assert "publishers.json" in standing.reason


def test_proposal_moves_no_branch(registry: DirectoryRegistry) -> None:
    before = head(registry)
    file = StoredFile.of("a", registry.store(b"1"))
    numbers = [
        registry.propose_files(REPO, "main", files=[file], deletions=(), message=f"proposal {n}")[0] for n in range(2)
    ]
    assert numbers == [1, 2]
    assert head(registry) == before
    assert [entry.path for entry in registry.files(REPO, registry.commit_of(REPO, "refs/pr/2"))] == ["a"]


def test_vanished_folder_is_a_typed_error(registry: DirectoryRegistry) -> None:
    shutil.rmtree(registry.name)
    with pytest.raises(SourceUnavailableError, match="cannot be used"):
        registry.repos()
