from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernel_hub.cache import Cache
from kernel_hub.errors import (
    BlobMismatchError,
    IncompleteArtifactError,
    LengthMismatchError,
    OfflineError,
    SourceUnavailableError,
)
from kernel_hub.fetch import fetch, read_metadata
from kernel_hub.model.metadata import MAX_BYTES
from kernel_hub.model.source import Pin
from tests.support.scripted import REPO, ScriptedSource, accepted_of, entry_of

FILES = {
    "build/torch-cpu/__init__.py": b"from ._math import axpy\n",
    "build/torch-cpu/_math.py": b"def axpy(a, x, y): ...\n",
    "build/torch-cpu/sub/same.py": b"def axpy(a, x, y): ...\n",
    "build/torch-cpu/empty.py": b"",
    "build/torch-cpu/metadata.json": b'{"name": "axpy"}',
    "build/torch-cuda/metadata.json": b'{"name": "axpy", "archs": []}',
    "build/torch-cuda/__init__.py": b"x = 1\n",
    "README.md": b"a card",
}
BUILD = "build/torch-cpu/"


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


@pytest.fixture
def pin(source: ScriptedSource) -> Pin:
    return source.put(FILES)


def offline(call: str) -> None:
    raise OfflineError("there is no network")


def test_a_fetched_build_is_a_folder_with_its_files_and_what_was_announced_of_them(
    source: ScriptedSource, cache: Cache, pin: Pin
) -> None:
    artifact = fetch(source, cache, pin, accepted_of(source, pin))
    expected = {path.removeprefix(BUILD): content for path, content in FILES.items() if path.startswith(BUILD)}
    found = {
        path.relative_to(artifact.root).as_posix(): path.read_bytes()
        for path in artifact.root.rglob("*")
        if path.is_file()
    }
    assert found == expected
    assert artifact.announced == {path: entry_of(path, content).blob for path, content in expected.items()}
    assert artifact.root == cache.path(REPO, pin.commit, "build/torch-cpu")
    assert artifact.blobs == cache.blobs(REPO)


def test_only_the_builds_own_files_are_asked_for_and_the_same_bytes_once(
    source: ScriptedSource, cache: Cache, pin: Pin
) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    assert len(source.downloads()) == 3
    assert not [path for path in source.downloads() if not path.startswith(BUILD)]


def test_a_build_that_is_here_asks_nobody(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    first = fetch(source, cache, pin, accepted_of(source, pin))
    source.calls.clear()
    source.before = offline
    assert fetch(source, cache, pin, accepted_of(source, pin)) == first
    assert source.calls == []


def test_one_missing_file_is_one_download(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    (cache.blobs(REPO) / entry_of("", FILES[BUILD + "__init__.py"]).blob.id).unlink()
    source.calls.clear()
    fetch(source, cache, pin, accepted_of(source, pin))
    assert source.downloads() == [BUILD + "__init__.py"]


def test_bytecode_is_never_fetched(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put(FILES | {BUILD + "__pycache__/x.py": b"1", BUILD + "_math.pyc": b"2"})
    artifact = fetch(source, cache, pin, accepted_of(source, pin))
    assert not list(artifact.root.rglob("*.pyc"))
    assert not [path for path in artifact.announced or () if "pyc" in path]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda content: b"X" + content[1:], BlobMismatchError),
        (lambda content: content + b"X", LengthMismatchError),
        (lambda content: content[:-1], LengthMismatchError),
    ],
)
def test_a_file_with_other_bytes_makes_nothing_of_the_build_visible(
    source: ScriptedSource, cache: Cache, pin: Pin, spoil, error: type[Exception]
) -> None:
    source.spoil = lambda path, content: spoil(content) if path.endswith("__init__.py") else content
    with pytest.raises(error, match="__init__"):
        fetch(source, cache, pin, accepted_of(source, pin))
    assert not cache.path(REPO, pin.commit, "build").exists()
    source.spoil = lambda path, content: content
    assert fetch(source, cache, pin, accepted_of(source, pin)).root.is_dir()


def test_a_failure_of_one_file_is_the_failure_of_the_stage_and_the_next_try_goes_on(
    source: ScriptedSource, cache: Cache, pin: Pin
) -> None:
    def broken(call: str) -> None:
        if call.startswith(f"chunks {BUILD}metadata.json"):
            raise SourceUnavailableError("gone", url="scripted:")

    source.before = broken
    with pytest.raises(SourceUnavailableError, match="gone"):
        fetch(source, cache, pin, accepted_of(source, pin))
    source.before = lambda call: None
    assert (fetch(source, cache, pin, accepted_of(source, pin)).root / "metadata.json").is_file()


def test_offline_with_one_file_missing_names_file_build_and_command(
    source: ScriptedSource, cache: Cache, pin: Pin
) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    (cache.blobs(REPO) / entry_of("", FILES[BUILD + "__init__.py"]).blob.id).unlink()
    source.before = offline
    with pytest.raises(IncompleteArtifactError) as caught:
        fetch(source, cache, pin, accepted_of(source, pin))
    assert caught.value.missing == ("__init__.py",)
    assert "torch-cpu" in caught.value.message
    assert "__init__.py" in caught.value.message
    assert f"kernel-hub download {REPO}@v1" in caught.value.hint()


def test_offline_with_nothing_cached_says_so(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    source.before = offline
    with pytest.raises(OfflineError, match="not in the cache"):
        fetch(source, cache, pin, accepted_of(source, pin))


def test_progress_ends_at_all_bytes_that_were_missing(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    told: list[tuple[str, int, int]] = []
    fetch(source, cache, pin, accepted_of(source, pin), progress=lambda *what: told.append(what))
    total = len({content for path, content in FILES.items() if path.startswith(BUILD)})
    assert total == 4
    _, done, of = told[-1]
    assert done == of == sum(len(content) for content in {FILES[path] for path in FILES if path.startswith(BUILD)})


def test_files_come_in_parallel(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put({f"{BUILD}m{number}.py": b"%d" % number for number in range(8)})
    together = threading.Barrier(8, timeout=30)

    def meet(call: str) -> None:
        # Nobody gets past before all eight are here, which they are only if all eight run at once.
        if call.startswith("chunks "):
            together.wait()

    source.before = meet
    assert fetch(source, cache, pin, accepted_of(source, pin)).root.is_dir()


def test_the_lock_is_gone_after_a_fetch(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    assert not [path for path in (cache.root / ".locks").rglob("*") if path.is_file()]


def test_rechecking_replaces_a_damaged_file_of_the_right_length(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    content = FILES[BUILD + "__init__.py"]
    blob = cache.blobs(REPO) / entry_of("", content).blob.id
    blob.write_bytes(b"X" * len(content))
    source.calls.clear()
    fetch(source, cache, pin, accepted_of(source, pin))
    assert source.downloads() == []
    artifact = fetch(source, cache, pin, accepted_of(source, pin), recheck=True)
    assert source.downloads() == [BUILD + "__init__.py"]
    assert (artifact.root / "__init__.py").read_bytes() == content


def test_a_branch_is_remembered_for_huggingface_hub_too(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    assert cache.refs(REPO) == {"v1": pin.commit}


def test_metadata_is_read_once_and_not_again_for_the_build(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    found = read_metadata(source, cache, pin, ["torch-cpu", "torch-cuda", "torch-absent"])
    assert found == {label: FILES[f"build/{label}/metadata.json"] for label in ("torch-cpu", "torch-cuda")}
    assert read_metadata(source, cache, pin, ["torch-cpu", "torch-cuda"]) == found
    fetch(source, cache, pin, accepted_of(source, pin))
    assert [path for path in source.downloads() if path.endswith("metadata.json")] == [
        "build/torch-cpu/metadata.json",
        "build/torch-cuda/metadata.json",
    ]


def test_metadata_alone_makes_no_build_visible(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    read_metadata(source, cache, pin, ["torch-cpu"])
    assert not (cache.repo_folder(REPO) / "snapshots").exists()


def test_damaged_metadata_is_fetched_again(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    fetch(source, cache, pin, accepted_of(source, pin))
    content = FILES[BUILD + "metadata.json"]
    (cache.blobs(REPO) / entry_of("", content).blob.id).write_bytes(b"X" * len(content))
    assert read_metadata(source, cache, pin, ["torch-cpu"]) == {"torch-cpu": content}


def test_offline_metadata_that_is_not_here_is_left_out(source: ScriptedSource, cache: Cache, pin: Pin) -> None:
    read_metadata(source, cache, pin, ["torch-cpu"])

    def no_files(call: str) -> None:
        if call.startswith("chunks"):
            offline(call)

    source.before = no_files
    assert set(read_metadata(source, cache, pin, ["torch-cpu", "torch-cuda"])) == {"torch-cpu"}


def test_metadata_that_is_too_long_is_not_downloaded_to_the_end(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put({BUILD + "metadata.json": b" " * (3 * MAX_BYTES)})
    found = read_metadata(source, cache, pin, ["torch-cpu"])
    assert MAX_BYTES < len(found["torch-cpu"]) <= MAX_BYTES + (1 << 16)
    assert not cache.blobs(REPO).exists()


def test_the_build_that_will_be_fetched_can_come_with_the_metadata(
    source: ScriptedSource, cache: Cache, pin: Pin
) -> None:
    read_metadata(source, cache, pin, ["torch-cpu", "torch-cuda"], ahead=accepted_of(source, pin))
    source.before = offline
    assert fetch(source, cache, pin, accepted_of(source, pin)).root.is_dir()
