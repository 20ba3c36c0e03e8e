"""A kernel that cannot be had: visible to whoever looks, and replaced only where the caller said so."""

from __future__ import annotations

import logging
import types
from pathlib import Path

import pytest

import kernel_hub
from kernel_hub import get_kernel_or_fallback
from kernel_hub.errors import DigestMismatchError, NoCompatibleVariantError, UntrustedPublisherError
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer

ELSEWHERE = "torch-stable-abi299-cu130-x86_64-linux"
FALLBACK = types.SimpleNamespace(axpy=lambda a, x, y: "fallback")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryRegistry:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("KERNEL_HUB_REGISTRIES", f"acme={(tmp_path / 'registry').as_uri()}")
    return DirectoryRegistry.create(tmp_path / "registry")


def test_a_kernel_that_does_not_fit_shows_in_explain_and_in_the_log_despite_a_broad_except(registry, caplog) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=[ELSEWHERE])
    try:
        kernel_hub.get_kernel("acme/axpy", version=1)
    except Exception as error:  # noqa: BLE001 - the careless caller that this is about
        assert isinstance(error, NoCompatibleVariantError)
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "acme/axpy@v1 has no build for this machine" in record.getMessage()
    plan = kernel_hub.explain("acme/axpy", version=1)
    assert plan.chosen is None
    assert ELSEWHERE in str(plan)


def test_a_fallback_carries_the_reason_and_is_logged(registry, caplog) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=[ELSEWHERE])
    used = get_kernel_or_fallback("acme/axpy", FALLBACK, version=1)
    assert used.is_fallback
    assert used.module.axpy(1, 2, 3) == "fallback"
    assert "no build for this machine" in used.reason
    assert isinstance(used.error, NoCompatibleVariantError)
    assert "its fallback is" in caplog.text


def test_a_kernel_that_fits_is_used(registry) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry)
    used = get_kernel_or_fallback("acme/axpy", FALLBACK, version=1)
    assert not used.is_fallback
    assert used.kernel is not None
    assert (used.module.axpy(1, [1], [1]), used.reason) == ([2], "")


@pytest.mark.parametrize("text", ["acme/absent", "acme/axpy@v7"])
def test_a_kernel_that_is_not_there_gives_way(registry, text: str) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry)
    assert get_kernel_or_fallback(text, FALLBACK).is_fallback


def test_a_source_that_cannot_be_reached_gives_way(registry) -> None:  # type: ignore[no-untyped-def]
    assert "127.0.0.1:9" in get_kernel_or_fallback("elsewhere/axpy", FALLBACK, version=1).reason


def test_a_damaged_kernel_does_not_give_way(registry) -> None:  # type: ignore[no-untyped-def]
    wrong = fake_build() | {"_math.py": b"def axpy(*_): return 0\n"}
    publish_fake_kernel(registry, builds={"torch-cpu": wrong})
    with pytest.raises(DigestMismatchError):
        get_kernel_or_fallback("acme/axpy", FALLBACK, version=1)


def test_a_kernel_that_is_not_trusted_does_not_give_way(
    hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", hub_server.url)
    publish_fake_kernel(hub_server.registry, "stranger/axpy")
    with pytest.raises(UntrustedPublisherError):
        get_kernel_or_fallback("stranger/axpy", FALLBACK, version=1)
