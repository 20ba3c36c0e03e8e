from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kernel_hub.bundle import make_bundle
from kernel_hub.cache import Cache
from kernel_hub.errors import BlobMismatchError, OfflineError, SourceUnavailableError
from kernel_hub.fetch import fetch, read_metadata
from kernel_hub.model.source import Pin
from tests.support.scripted import ScriptedSource, accepted_of

BUILD = "build/torch-cpu/"
BUNDLE = "bundles/torch-cpu.tar"
INSIDE = {f"part{number}.py": b"# %d\n" % number for number in range(600)} | {"metadata.json": b"{}"}
LARGE = {"weights.bin": b"w" * (2 << 20)}


def commit_of(inside: dict[str, bytes], bundle: bytes | None) -> dict[str, bytes]:
    files = {f"{BUILD}{path}": content for path, content in inside.items()}
    return files if bundle is None else files | {BUNDLE: bundle}


def bundle_of(files: dict[str, bytes]) -> bytes:
    made = make_bundle(files)
    assert made is not None
    return made


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


@pytest.fixture
def source() -> ScriptedSource:
    return ScriptedSource()


def load(source: ScriptedSource, cache: Cache, pin: Pin) -> dict[str, bytes]:
    artifact = fetch(source, cache, pin, accepted_of(source, pin))
    return {path.name: path.read_bytes() for path in artifact.root.iterdir()}


def test_hundreds_of_small_files_are_one_download(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put(commit_of(INSIDE, bundle_of(INSIDE)))
    assert load(source, cache, pin) == INSIDE
    assert source.downloads() == [BUNDLE]


def test_large_files_come_beside_the_bundle(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put(commit_of(INSIDE | LARGE, bundle_of(INSIDE | LARGE)))
    assert load(source, cache, pin) == INSIDE | LARGE
    assert source.downloads() == [f"{BUILD}weights.bin", BUNDLE]


def test_metadata_and_the_rest_come_with_the_same_bundle(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put(commit_of(INSIDE, bundle_of(INSIDE)))
    read_metadata(source, cache, pin, ["torch-cpu"], ahead=accepted_of(source, pin))
    assert load(source, cache, pin) == INSIDE
    assert source.downloads() == [BUNDLE]


def test_a_few_files_are_not_worth_a_bundle(source: ScriptedSource, cache: Cache) -> None:
    few = dict(list(INSIDE.items())[:5])
    pin = source.put(commit_of(few, bundle_of(INSIDE)))
    assert load(source, cache, pin) == few
    assert BUNDLE not in source.downloads()


@pytest.mark.parametrize(
    "bundle",
    [
        None,
        b"",
        b"no archive",
        bundle_of(INSIDE)[:100_000],
        bundle_of({path: content + b"X" for path, content in INSIDE.items()}),
        bundle_of({path: content[::-1] for path, content in INSIDE.items()}),
        bundle_of({f"../../{path}": content for path, content in INSIDE.items()}),
        bundle_of(INSIDE) * 10,
    ],
    ids=["missing", "empty", "no archive", "cut", "longer files", "other bytes", "other paths", "too long"],
)
def test_a_bundle_of_no_use_leaves_the_files_to_be_fetched_one_by_one(
    source: ScriptedSource, cache: Cache, bundle: bytes | None
) -> None:
    pin = source.put(commit_of(INSIDE, bundle))
    assert load(source, cache, pin) == INSIDE
    assert len(source.downloads()) >= len(INSIDE) - 250


def test_what_a_stale_bundle_has_right_is_used(
    source: ScriptedSource, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    pin = source.put(commit_of(INSIDE, bundle_of(INSIDE | {"part7.py": b"# other\n"})))
    with caplog.at_level(logging.INFO, "kernel_hub"):
        assert load(source, cache, pin) == INSIDE
    assert source.downloads() == [f"{BUILD}part7.py", BUNDLE]
    assert "one by one" in caplog.text


def test_a_bundle_that_breaks_midway_is_no_failure_but_no_network_is(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put(commit_of(INSIDE, bundle_of(INSIDE)))

    def broken(call: str) -> None:
        if call == f"piece {BUNDLE}":
            raise SourceUnavailableError("gone", url="scripted:")

    source.before = broken
    assert load(source, cache, pin) == INSIDE

    def offline(call: str) -> None:
        raise OfflineError("no network")

    source.before = offline
    (cache.blobs(pin.repo) / next(iter(cache.blobs(pin.repo).iterdir())).name).unlink()
    with pytest.raises(Exception, match="no network"):
        fetch(source, cache, pin, accepted_of(source, pin))


def test_a_hostile_bundle_cannot_put_wrong_bytes_under_a_right_name(source: ScriptedSource, cache: Cache) -> None:
    pin = source.put(commit_of(INSIDE, bundle_of(dict.fromkeys(INSIDE, b"evil"))))
    source.spoil = lambda path, content: content if path == BUNDLE else b"X" * len(content)
    with pytest.raises(BlobMismatchError):
        fetch(source, cache, pin, accepted_of(source, pin))
    assert not cache.path(pin.repo, pin.commit, "build").exists()
    assert [path for path in cache.blobs(pin.repo).iterdir() if not path.name.endswith(".incomplete")] == []
