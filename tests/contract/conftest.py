"""Every source with the sink that fills it. A new implementation is one more entry of `PAIRS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.cache import Cache
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, Sink, Source
from kernel_hub.server.exchange import Site
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.hub import HubSink, HubSource
from kernel_hub.sources.wrappers import CachedSource
from tests.support.hub_layout import HubLayout
from tests.support.memory import MemoryRegistry

REPO = RepoId("acme", "axpy")
ABSENT_REPO = RepoId("acme", "absent")
ABSENT_COMMIT = "0" * 40


@dataclass(frozen=True)
class Pair:
    """A source and a sink over the same repositories."""

    source: Source
    sink: Sink

    def head(self, branch: str = "main") -> str:
        return self.sink.refs(REPO).branches[branch]

    def commit(self, files: dict[str, bytes], *, deletions: tuple[str, ...] = (), branch: str = "main") -> str:
        return self.sink.commit(
            REPO,
            branch,
            parent=self.head(branch),
            additions=[Addition(path, content) for path, content in files.items()],
            deletions=deletions,
            message="change",
        )


def _memory(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    both = MemoryRegistry()
    return Pair(both, both)


def _directory(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    both = DirectoryRegistry.create(tmp_path / "registry")
    return Pair(both, both)


def _directory_reopened(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    sink = DirectoryRegistry.create(tmp_path / "registry")
    return Pair(DirectoryRegistry.open(tmp_path / "registry"), sink)


def _cached(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    both = DirectoryRegistry.create(tmp_path / "registry")
    source = CachedSource(
        both, Cache(tmp_path / "cache"), Index(tmp_path / "index"), key="key", name=both.name, freshness_s=0.0
    )
    return Pair(source, both)


def _hub(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    url = start_hub().url
    return Pair(HubSource(url), HubSink(url))


def _hub_by_lfs(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    url = start_hub(site=Site(inline_limit_bytes=64, native_by_lfs=True, page_rows=2)).url
    return Pair(HubSource(url), HubSink(url))


def _hub_by_redirects(tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    url = start_hub(wrap=HubLayout(start_hub().url).around).url
    return Pair(HubSource(url), HubSink(url))


PAIRS = {
    "memory": _memory,
    "directory": _directory,
    "directory, opened twice": _directory_reopened,
    "directory, remembered": _cached,
    "Hub": _hub,
    "Hub with large-file storage and short pages": _hub_by_lfs,
    "Hub that serves files by redirects": _hub_by_redirects,
}


@pytest.fixture(params=PAIRS.values(), ids=PAIRS.keys())
def empty(request: pytest.FixtureRequest, tmp_path: Path, start_hub: Callable[..., Any]) -> Pair:
    """Without any repository."""
    made: Pair = request.param(tmp_path, start_hub)
    return made


@pytest.fixture
def pair(empty: Pair) -> Pair:
    """With an empty repository."""
    empty.sink.create_repo(REPO)
    return empty
