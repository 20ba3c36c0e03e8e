from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.cache import Cache
from kernel_hub.errors import (
    AccessDeniedError,
    EntryNotFoundError,
    InvalidDocumentError,
    OfflineError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.fetch import fetch
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.wrappers import CachedSource
from tests.support.scripted import REPO, ScriptedSource, accepted_of, commit_id

FILES = {"build/torch-cpu/__init__.py": b"x = 1\n", "build/torch-cpu/metadata.json": b"{}"}
NEWER = FILES | {"build/torch-cpu/__init__.py": b"x = 2\n"}
NOON = 1_700_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now_s = NOON

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inner() -> ScriptedSource:
    source = ScriptedSource()
    source.put(FILES)
    return source


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


@pytest.fixture
def make(inner: ScriptedSource, cache: Cache, tmp_path: Path, clock: Clock) -> Callable[..., CachedSource]:
    def make(**options: Any) -> CachedSource:
        index = options.pop("index", Index(tmp_path / "index"))
        return CachedSource(inner, cache, index, key="hub", name="scripted:", clock=clock, **options)

    return make


def down(call: str) -> None:
    raise SourceUnavailableError("the hub is down", url="scripted:", status=503)


def load(source: CachedSource, inner: ScriptedSource, cache: Cache) -> str:
    """Load version 1 through a source; the commit."""
    commit = source.refs(REPO).branches["v1"]
    source.files(REPO, commit, "build")
    source.publisher("acme")
    from kernel_hub.model.source import Pin

    fetch(source, cache, Pin(REPO, commit, ref="v1"), accepted_of(inner, Pin(REPO, commit)))
    return commit


def test_within_freshness_nobody_is_asked_again(make, inner: ScriptedSource, cache: Cache, clock: Clock) -> None:
    load(make(), inner, cache)
    inner.calls.clear()
    clock.now_s += 599
    load(make(), inner, cache)
    assert inner.calls == []


def test_after_freshness_only_references_are_asked_for(make, inner: ScriptedSource, cache: Cache, clock: Clock) -> None:
    load(make(), inner, cache)
    inner.calls.clear()
    clock.now_s += 601
    load(make(), inner, cache)
    assert inner.calls == ["refs"]


def test_that_a_publisher_is_trusted_is_believed_for_a_day_and_that_it_is_not_only_while_fresh(
    make, inner: ScriptedSource, clock: Clock
) -> None:
    make().publisher("acme")
    inner.trusted = False
    clock.now_s += 86399
    assert make().publisher("acme").trusted is True
    clock.now_s += 2
    assert make().publisher("acme").trusted is False
    inner.trusted = True
    clock.now_s += 601
    assert make().publisher("acme").trusted is True


def test_a_time_that_lies_ahead_is_not_fresh(make, inner: ScriptedSource, cache: Cache, clock: Clock) -> None:
    load(make(), inner, cache)
    clock.now_s -= 3600
    inner.calls.clear()
    make().refs(REPO)
    assert inner.calls == ["refs"]


def test_no_freshness_asks_every_time(make, inner: ScriptedSource) -> None:
    make(freshness_s=0).refs(REPO)
    make(freshness_s=0).refs(REPO)
    assert inner.calls == ["refs", "refs"]


@pytest.mark.parametrize("mode", ["offline", "cached-first"])
def test_what_was_loaded_once_needs_no_request(
    make, inner: ScriptedSource, cache: Cache, clock: Clock, mode: str
) -> None:
    commit = load(make(), inner, cache)
    inner.calls.clear()
    clock.now_s += 1e9
    again = make(mode=mode)
    assert load(again, inner, cache) == commit
    assert again.commit_of(REPO, "v1") == commit
    assert again.commit_of(REPO, commit) == commit
    assert again.publisher("acme").trusted is True
    assert inner.calls == []


def test_cached_first_asks_for_what_is_not_remembered(make, inner: ScriptedSource, cache: Cache) -> None:
    load(make(mode="cached-first"), inner, cache)
    assert {"refs", "files", "publisher"} <= set(inner.calls)


def test_offline_with_nothing_remembered_says_what_to_do(make) -> None:
    source = make(mode="offline")
    with pytest.raises(OfflineError) as caught:
        source.refs(REPO)
    assert "HF_HUB_OFFLINE" in caught.value.hint()
    with pytest.raises(OfflineError):
        source.files(REPO, commit_id("x"), "build")
    with pytest.raises(OfflineError):
        source.read(REPO, commit_id("x"), "README.md", limit_bytes=10)
    assert source.publisher("acme").trusted is None


@pytest.mark.parametrize(
    "failure",
    [
        SourceUnavailableError("refused", url="u"),
        SourceUnavailableError("busy", url="u", status=429, retry_after_s=30),
        InvalidDocumentError("answer", "is no JSON"),
        OfflineError("told so"),
    ],
)
def test_a_failing_source_is_replaced_by_what_is_remembered_with_one_notice(
    make, inner: ScriptedSource, cache: Cache, clock: Clock, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    commit = load(make(), inner, cache)
    clock.now_s += 601

    def fail(call: str) -> None:
        raise failure

    inner.before = fail
    inner.calls.clear()
    with caplog.at_level(logging.INFO, "kernel_hub"):
        assert load(make(), inner, cache) == commit
    (record,) = caplog.records
    assert "trust" not in record.getMessage()
    assert "cache" in record.getMessage()
    assert inner.calls == ["refs"]


def test_a_refusal_is_an_answer_and_not_replaced(make, inner: ScriptedSource, cache: Cache, clock: Clock) -> None:
    load(make(), inner, cache)
    clock.now_s += 601

    def refuse(call: str) -> None:
        raise AccessDeniedError("gated")

    inner.before = refuse
    with pytest.raises(AccessDeniedError):
        make().refs(REPO)


def test_a_failing_source_and_nothing_remembered_is_the_sources_error(make, inner: ScriptedSource) -> None:
    inner.before = down
    with pytest.raises(SourceUnavailableError, match="down"):
        make().refs(REPO)


def test_the_newest_commit_that_is_here_serves_when_the_newest_is_not(
    make, inner: ScriptedSource, cache: Cache, clock: Clock
) -> None:
    old = load(make(), inner, cache)
    new = inner.put(NEWER).commit
    clock.now_s += 601
    assert make().refs(REPO).branches["v1"] == new
    clock.now_s += 601
    inner.before = down
    assert make().refs(REPO).branches["v1"] == old
    assert make(mode="offline").refs(REPO).branches["v1"] == old
    inner.before = lambda call: None
    assert load(make(), inner, cache) == new
    assert make(mode="offline").refs(REPO).branches["v1"] == new


def test_what_another_program_put_into_the_cache_loads_offline(
    make, inner: ScriptedSource, cache: Cache, tmp_path: Path
) -> None:
    commit = load(make(), inner, cache)
    forgetful = make(mode="offline", index=Index(tmp_path / "another"))
    assert forgetful.refs(REPO).branches == {"v1": commit}
    assert [entry.path for entry in forgetful.files(REPO, commit, "build")] == sorted(FILES)
    assert forgetful.read(REPO, commit, "build/torch-cpu/metadata.json", limit_bytes=10) == b"{}"


def test_a_remembered_publisher_carries_its_date_when_it_cannot_be_asked(
    make, inner: ScriptedSource, clock: Clock
) -> None:
    make().publisher("acme")
    clock.now_s += 86401
    inner.trusted = None
    standing = make().publisher("acme")
    assert standing.trusted is True
    assert "2023-11-14" in standing.reason
    assert make().publisher("other").trusted is None


def test_distrust_is_remembered_as_well(make, inner: ScriptedSource, clock: Clock) -> None:
    inner.trusted = False
    make().publisher("acme")
    assert make(mode="offline").publisher("acme").trusted is False


def test_a_source_that_does_not_answer_is_not_waited_for(
    make, inner: ScriptedSource, cache: Cache, clock: Clock, tmp_path: Path
) -> None:
    commit = load(make(), inner, cache)
    clock.now_s += 601
    released = threading.Event()

    class Silent(ScriptedSource):
        def hurried(self, patience_s: float) -> ScriptedSource:
            return self

    silent = Silent(before=lambda call: released.wait(60) and None)
    source = CachedSource(
        silent, cache, Index(tmp_path / "index"), key="hub", name="silent:", patience_s=0.01, clock=clock
    )
    try:
        assert source.refs(REPO).branches["v1"] == commit
        assert source.publisher("acme").trusted is True
        assert silent.calls == ["refs"]
    finally:
        released.set()


def test_errors_of_the_source_pass_through(make) -> None:
    with pytest.raises(RepositoryNotFoundError):
        make().refs(RepoId("acme", "other"))
    with pytest.raises(RevisionNotFoundError):
        make().commit_of(REPO, "v9")
    with pytest.raises(EntryNotFoundError):
        make().read(REPO, make().refs(REPO).branches["v1"], "no.txt", limit_bytes=10)


def test_a_file_in_the_cache_that_is_too_long_is_refused(make, inner: ScriptedSource, cache: Cache) -> None:
    commit = load(make(), inner, cache)
    with pytest.raises(InvalidDocumentError, match="longer"):
        make(mode="offline").read(REPO, commit, "build/torch-cpu/__init__.py", limit_bytes=2)


def test_offline_a_revision_that_nobody_remembers_is_named(make, inner: ScriptedSource, cache: Cache) -> None:
    load(make(), inner, cache)
    with pytest.raises(RevisionNotFoundError, match="v9"):
        make(mode="offline").commit_of(REPO, "v9")
