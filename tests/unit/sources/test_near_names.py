"""A name that names nothing is met by the kernel of the same owner that was probably meant, without asking anybody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.cache import Cache
from kernel_hub.errors import OfflineError, RepositoryNotFoundError
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Source
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.hub import HubSource
from kernel_hub.sources.wrappers import CachedSource, Mode
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.hub import HubServer

WRONG = RepoId("acme", "Flash-Atn")


def cached(inner: Source, tmp_path: Path, *, mode: Mode = "online") -> CachedSource:
    return CachedSource(
        inner, Cache(tmp_path / "hub"), Index(tmp_path / "index"), key="hub", name=inner.name, mode=mode, patience_s=5.0
    )


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    registry = DirectoryRegistry.create(tmp_path / "registry")
    for name in ("acme/flash-attn", "acme/paged-attention", "zeta/flash-atn"):
        publish_fake_kernel(registry, name)
    return registry


def test_a_registry_in_a_folder_offers_what_it_has(registry: DirectoryRegistry, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError) as caught:
        cached(registry, tmp_path).refs(WRONG)
    assert caught.value.hint().startswith("did you mean acme/flash-attn?")


def test_a_hub_is_not_asked_for_more_and_what_was_looked_up_before_is_offered(
    start_hub: Callable[..., HubServer], registry: DirectoryRegistry, tmp_path: Path
) -> None:
    hub = start_hub(tmp_path / "registry")
    source = cached(HubSource(hub.url), tmp_path)
    with pytest.raises(RepositoryNotFoundError) as caught:
        source.refs(WRONG)
    assert "did you mean" not in caught.value.hint()
    source.refs(RepoId("acme", "flash-attn"))
    hub.log.clear()
    with pytest.raises(RepositoryNotFoundError) as caught:
        source.refs(WRONG)
    assert caught.value.hint().startswith("did you mean acme/flash-attn? Else check the name")
    assert hub.log.lines == ["GET /api/kernels/acme/Flash-Atn/refs 404"]


def test_offline_a_name_that_nothing_is_remembered_of_may_be_misspelt(
    registry: DirectoryRegistry, tmp_path: Path
) -> None:
    cached(registry, tmp_path).refs(RepoId("acme", "flash-attn"))
    with pytest.raises(OfflineError) as caught:
        cached(registry, tmp_path, mode="offline").refs(WRONG)
    assert caught.value.hint().startswith("did you mean acme/flash-attn? Else unset HF_HUB_OFFLINE")


def test_a_name_that_is_like_no_other_is_left_as_it_is(registry: DirectoryRegistry, tmp_path: Path) -> None:
    with pytest.raises(RepositoryNotFoundError) as caught:
        cached(registry, tmp_path).refs(RepoId("acme", "quantization"))
    assert "did you mean" not in caught.value.hint()
