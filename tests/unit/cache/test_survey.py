from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest

from kernel_hub.cache import Cache
from kernel_hub.cache.survey import damaged_blobs, list_builds, prune, repos_of
from kernel_hub.fetch import fetch
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import FileEntry, Pin
from kernel_hub.sources.wrappers import CachedSource
from tests.support.scripted import REPO, ScriptedSource, accepted_of

DAY_S = 86400.0
FILES = {
    "build/torch-cpu/__init__.py": b"x = 1\n",
    "build/torch-cpu/metadata.json": b"{}",
    "build/torch-cuda/metadata.json": b'{"a": 1}',
}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


def load(source: ScriptedSource, cache: Cache, files: dict[str, bytes] = FILES, *, label: str = "torch-cpu") -> Pin:
    pin = source.put(files)
    fetch(source, cache, pin, accepted_of(source, pin, label))
    return pin


def nothing(repo: RepoId, commit: str) -> tuple[FileEntry, ...] | None:
    return None


def age(cache: Cache, days: int) -> None:
    then = time.time() - days * DAY_S
    for path in cache.root.rglob("*"):
        os.utime(path, (then, then), follow_symlinks=False)


def test_builds_are_listed_with_size_and_references(source: ScriptedSource, cache: Cache) -> None:
    pin = load(source, cache)
    (build,) = list_builds(cache, nothing)
    assert (build.repo, build.commit, build.label, build.refs) == (REPO, pin.commit, "torch-cpu", ("v1",))
    assert (build.files, build.size_bytes, build.missing) == (2, 8, ())
    assert abs(build.last_used_s - time.time()) < 3600


def test_a_build_is_incomplete_by_what_the_source_listed(source: ScriptedSource, cache: Cache, tmp_path: Path) -> None:
    index = Index(tmp_path / "index")
    remembering = CachedSource(source, cache, index, key="hub", name="scripted:")
    pin = load(source, cache)
    remembering.files(REPO, pin.commit, "build")
    cache.path(REPO, pin.commit, "build/torch-cpu/__init__.py").unlink()
    (build,) = list_builds(cache, lambda repo, commit: index.listing_of_any_source(repo, commit, "build"))
    assert build.missing == ("__init__.py",)


def test_an_empty_or_absent_cache_has_nothing(tmp_path: Path) -> None:
    assert list_builds(Cache(tmp_path / "absent"), nothing) == ()
    assert prune(Cache(tmp_path / "absent")).paths == ()
    assert list(damaged_blobs(Cache(tmp_path / "absent"))) == []


@pytest.mark.parametrize("lfs", [False, True])
def test_damaged_blobs_are_named(cache: Cache, lfs: bool) -> None:
    source = ScriptedSource(lfs=lfs)
    pin = load(source, cache)
    assert list(damaged_blobs(cache)) == []
    place = cache.path(REPO, pin.commit, "build/torch-cpu/__init__.py").resolve()
    place.write_bytes(b"x = 2\n")
    (damaged,) = damaged_blobs(cache)
    assert (damaged.repo, damaged.path.name, damaged.expected) == (REPO, place.name, place.name)
    assert damaged.found != damaged.expected


def test_pruning_a_cache_in_use_removes_nothing(source: ScriptedSource, cache: Cache) -> None:
    pin = load(source, cache)
    age(cache, 100)
    assert prune(cache, unused_for_s=DAY_S).paths == ()
    assert fetch(source, cache, pin, accepted_of(source, pin)).root.is_dir()


def test_an_old_commit_without_a_reference_goes_with_its_blobs_and_keeps_what_others_share(
    source: ScriptedSource, cache: Cache
) -> None:
    old = load(source, cache)
    new = load(source, cache, FILES | {"build/torch-cpu/__init__.py": b"x = 2\n"})
    age(cache, 100)
    kept = prune(cache, unused_for_s=DAY_S, keep={(REPO, old.commit)})
    assert kept.paths == ()
    planned = prune(cache, unused_for_s=DAY_S, dry_run=True)
    assert cache.snapshot(REPO, old.commit).is_dir()
    done = prune(cache, unused_for_s=DAY_S)
    assert done == planned
    assert done.freed_bytes == len(b"x = 1\n")
    assert not cache.snapshot(REPO, old.commit).exists()
    source.calls.clear()
    fetch(source, cache, new, accepted_of(source, new))
    assert source.downloads() == []


def test_a_commit_that_is_not_old_stays(source: ScriptedSource, cache: Cache) -> None:
    old = load(source, cache)
    load(source, cache, FILES | {"build/torch-cpu/__init__.py": b"x = 2\n"})
    age(cache, 10)
    assert prune(cache, unused_for_s=30 * DAY_S).paths == ()
    assert cache.snapshot(REPO, old.commit).is_dir()


def test_leftovers_go_and_what_is_being_written_stays(source: ScriptedSource, cache: Cache) -> None:
    load(source, cache)
    blobs = cache.blobs(REPO)
    host = "".join(char if char.isalnum() else "_" for char in socket.gethostname())[:40]
    left = blobs / f"{'a' * 40}.left-00.incomplete"
    growing = blobs / f"{'b' * 40}.{host}-{os.getpid()}-00.incomplete"
    fresh = blobs / ("c" * 40)
    for path in (left, growing, fresh):
        path.write_bytes(b"12345")
    pruned = prune(cache)
    assert pruned.paths == (left,)
    assert pruned.freed_bytes == 5
    assert growing.exists()
    assert fresh.exists()
    assert prune(cache, now_s=time.time() + 2 * 3600).paths == (fresh,)


def test_locks_of_the_dead_go_and_those_of_others_stay(cache: Cache, source: ScriptedSource) -> None:
    load(source, cache)
    folder = cache.root / ".locks" / "kernels--acme--axpy"
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "key": "k", "work": "w"}
    (folder / "living.kernel_hub.lock").write_text(json.dumps(mine))
    (folder / "dead.kernel_hub.lock").write_text(json.dumps(mine | {"pid": 2**22 + 1}))
    (folder / f"{'a' * 40}.lock").write_text("")
    assert [path.name for path in prune(cache).paths] == ["dead.kernel_hub.lock"]


def test_models_and_strangers_are_not_touched(source: ScriptedSource, cache: Cache) -> None:
    load(source, cache)
    for name in ("models--acme--axpy", "kernels--odd", "kernels---", "other"):
        (cache.root / name / "blobs").mkdir(parents=True)
        (cache.root / name / "blobs" / ("a" * 40)).write_bytes(b"1")
        (cache.root / name / "snapshots" / ("b" * 40)).mkdir(parents=True)
    age(cache, 100)
    assert repos_of(cache) == (REPO,)
    assert prune(cache, unused_for_s=DAY_S).paths == ()
