from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir, try_to_load_from_cache

from kernel_hub.cache import Cache
from kernel_hub.cache.foreign import listing_in_cache
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob
from tests.support.scripted import REPO, commit_id, entry_of

COMMIT = commit_id("one")
FILES = {
    "build/torch-cpu/__init__.py": b"x = 1\n",
    "build/torch-cpu/sub/deep.py": b"",
    "build/torch-cpu/metadata.json": b"{}",
}
ENTRIES = [entry_of(path, content) for path, content in FILES.items()]
BUILD = "build/torch-cpu"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


def fill(cache: Cache, files: dict[str, bytes] = FILES, commit: str = COMMIT) -> None:
    entries = [entry_of(path, content) for path, content in files.items()]
    for entry in entries:
        cache.store(REPO, entry, lambda start, entry=entry: [files[entry.path][start:]])
    cache.place(REPO, commit, BUILD, entries)


def test_a_placed_build_is_there_file_by_file(cache: Cache) -> None:
    assert not any(cache.has(REPO, COMMIT, entry) for entry in ENTRIES)
    fill(cache)
    assert all(cache.has(REPO, COMMIT, entry) for entry in ENTRIES)
    assert {path: cache.path(REPO, COMMIT, path).read_bytes() for path in FILES} == FILES


def test_the_layout_is_huggingface_hubs_own(cache: Cache) -> None:
    fill(cache)
    cache.remember_ref(REPO, "v1", COMMIT)
    found = try_to_load_from_cache(
        "acme/axpy", f"{BUILD}/__init__.py", cache_dir=cache.root, revision="v1", repo_type="kernel"
    )
    assert found == str(cache.path(REPO, COMMIT, f"{BUILD}/__init__.py"))
    scanned = scan_cache_dir(cache.root)
    assert not scanned.warnings
    assert [(repo.repo_id, repo.repo_type, repo.nb_files) for repo in scanned.repos] == [("acme/axpy", "kernel", 3)]
    assert [sorted(revision.refs) for repo in scanned.repos for revision in repo.revisions] == [["v1"]]


def test_links_are_relative_so_that_the_cache_can_be_moved(cache: Cache, tmp_path: Path) -> None:
    fill(cache)
    moved = cache.root.rename(tmp_path / "elsewhere")
    assert all(Cache(moved).path(REPO, COMMIT, path).read_bytes() == content for path, content in FILES.items())


def test_links_lead_to_the_blob_folder_in_one_step(cache: Cache) -> None:
    fill(cache)
    for entry in ENTRIES:
        place = cache.path(REPO, COMMIT, entry.path)
        assert (place.parent / place.readlink()).resolve() == (cache.blobs(REPO) / entry.blob.id).resolve()


def test_a_folder_that_is_half_there_is_filled_up(cache: Cache) -> None:
    first, *others = ENTRIES
    for entry in ENTRIES:
        cache.store(REPO, entry, lambda start, entry=entry: [FILES[entry.path]])
    cache.place(REPO, COMMIT, BUILD, [first])
    cache.place(REPO, COMMIT, BUILD, ENTRIES)
    assert all(cache.has(REPO, COMMIT, entry) for entry in others)


def test_a_dangling_link_does_not_count_and_is_replaced(cache: Cache) -> None:
    fill(cache)
    (cache.blobs(REPO) / ENTRIES[0].blob.id).unlink()
    assert not cache.has(REPO, COMMIT, ENTRIES[0])
    fill(cache)
    assert cache.has(REPO, COMMIT, ENTRIES[0])


def test_a_file_of_another_length_does_not_count(cache: Cache) -> None:
    fill(cache)
    (cache.blobs(REPO) / ENTRIES[0].blob.id).write_bytes(b"x")
    assert not cache.has(REPO, COMMIT, ENTRIES[0])
    fill(cache)
    assert cache.path(REPO, COMMIT, ENTRIES[0].path).read_bytes() == FILES[ENTRIES[0].path]


def test_missing_files_are_told_in_their_order(cache: Cache) -> None:
    assert cache.missing(REPO, COMMIT, ENTRIES) == ENTRIES
    fill(cache)
    assert cache.missing(REPO, COMMIT, ENTRIES) == []
    for entry in (ENTRIES[0], ENTRIES[2]):
        cache.path(REPO, COMMIT, entry.path).unlink()
    assert cache.missing(REPO, COMMIT, ENTRIES) == [ENTRIES[0], ENTRIES[2]]


def test_a_path_that_leads_outside_is_not_even_looked_for(cache: Cache) -> None:
    with pytest.raises(InvalidDocumentError):
        cache.missing(REPO, COMMIT, [FileEntry("../../outside", 1, ENTRIES[0].blob)])


def test_a_file_without_a_blob_counts_as_where_links_cannot_be_made(cache: Cache) -> None:
    place = cache.path(REPO, COMMIT, ENTRIES[0].path)
    place.parent.mkdir(parents=True)
    place.write_bytes(FILES[ENTRIES[0].path])
    assert cache.has(REPO, COMMIT, ENTRIES[0])
    assert cache.read(REPO, COMMIT, ENTRIES[0]) == FILES[ENTRIES[0].path]


def test_a_blob_that_links_into_a_shared_store_becomes_a_file_of_the_repository(cache: Cache) -> None:
    content = b"native code"
    entry = entry_of(f"{BUILD}/x.so", content, lfs=True)
    shared = cache.root / "blobs" / "ab" / "abcd"
    shared.parent.mkdir(parents=True)
    shared.write_bytes(content)
    blob = cache.blobs(REPO) / entry.blob.id
    blob.parent.mkdir(parents=True)
    blob.symlink_to(shared)
    assert not cache.has_blob(REPO, entry)
    cache.store(REPO, entry, lambda start: pytest.fail("it is here"))
    assert cache.has_blob(REPO, entry)
    assert blob.read_bytes() == content
    assert not blob.is_symlink()


def test_damaged_content_is_not_read(cache: Cache) -> None:
    fill(cache)
    (cache.blobs(REPO) / ENTRIES[0].blob.id).write_bytes(b"x = 2\n")
    assert cache.has(REPO, COMMIT, ENTRIES[0])
    assert cache.read(REPO, COMMIT, ENTRIES[0]) is None


def test_nothing_is_left_beside_what_was_placed(cache: Cache) -> None:
    fill(cache)
    assert sorted(path.name for path in cache.repo_folder(REPO).iterdir()) == ["blobs", "snapshots"]
    assert len(list(cache.blobs(REPO).iterdir())) == len({entry.blob for entry in ENTRIES})


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a//b", "a\\b", "C:/x", "a/\0", ""])
def test_paths_that_lead_outside_are_refused(cache: Cache, path: str) -> None:
    with pytest.raises(InvalidDocumentError):
        cache.path(REPO, COMMIT, path)


def test_a_commit_that_is_none_is_refused(cache: Cache) -> None:
    with pytest.raises(ValueError):
        cache.snapshot(REPO, "../../etc")


def test_a_reference_to_a_commit_without_files_is_not_written(cache: Cache) -> None:
    cache.remember_ref(REPO, "v1", COMMIT)
    assert cache.refs(REPO) == {}


def test_references_that_hold_no_commit_do_not_count(cache: Cache) -> None:
    folder = cache.repo_folder(REPO) / "refs"
    (folder / "pr").mkdir(parents=True)
    (folder / "v1").write_text("")
    (folder / "v2").write_bytes(b"\xff\xfe")
    (folder / "v3").write_text(COMMIT)
    (folder / "pr" / "1").write_text(COMMIT)
    assert cache.refs(REPO) == {"v3": COMMIT, "pr/1": COMMIT}


def test_a_commits_folder_is_a_listing_with_the_links_as_identities(cache: Cache) -> None:
    fill(cache)
    assert listing_in_cache(cache, REPO, COMMIT, "build") == tuple(sorted(ENTRIES, key=lambda entry: entry.path))
    assert listing_in_cache(cache, REPO, commit_id("other"), "build") is None


def test_files_that_are_no_links_are_identified_by_their_bytes(cache: Cache) -> None:
    place = cache.path(REPO, COMMIT, ENTRIES[0].path)
    place.parent.mkdir(parents=True)
    place.write_bytes(FILES[ENTRIES[0].path])
    assert listing_in_cache(cache, REPO, COMMIT, "") == (ENTRIES[0],)


def test_huggingface_hubs_own_listing_comes_first(cache: Cache) -> None:
    folder = cache.repo_folder(REPO) / "trees"
    folder.mkdir(parents=True)
    rows = {
        "build/torch-cpu/a.py": {"size": 3, "blob_id": "a" * 40},
        "build/torch-cpu/b.so": {"size": 130, "blob_id": "b" * 40, "lfs_sha256": "c" * 64, "lfs_size": 9},
        "README.md": {"size": 1, "blob_id": "d" * 40},
    }
    (folder / f"{COMMIT}.json").write_text(json.dumps({"format_version": 1, "files": rows}))
    assert listing_in_cache(cache, REPO, COMMIT, "build") == (
        FileEntry("build/torch-cpu/a.py", 3, GitBlob("a" * 40)),
        FileEntry("build/torch-cpu/b.so", 9, LfsBlob("c" * 64)),
    )


@pytest.mark.parametrize(
    "text", ["", "{", '{"format_version": 2, "files": {}}', '{"format_version": 1, "files": {"../x": {}}}']
)
def test_a_listing_that_is_none_is_passed_over(cache: Cache, text: str) -> None:
    folder = cache.repo_folder(REPO) / "trees"
    folder.mkdir(parents=True)
    (folder / f"{COMMIT}.json").write_text(text)
    assert listing_in_cache(cache, REPO, COMMIT, "") is None
