"""What locking asks of a Hub: counted, so that it stays little."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.errors import OfflineError
from kernel_hub.locking.make import Upgrade, make_lock
from kernel_hub.locking.workspace import connector
from kernel_hub.model.lock import Declaration
from kernel_hub.model.requirement import Requirement
from kernel_hub.settings import Settings, load_settings
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer

LABELS = [f"torch213-cxx11-cu{cuda}-{cpu}-linux" for cuda in (126, 128, 130) for cpu in ("x86_64", "aarch64")]
DECLARED = [Declaration(Requirement.parse("acme/axpy@v1"))]


@pytest.fixture
def settings(hub_server: HubServer, tmp_path: Path) -> Settings:
    builds = {label: fake_build(label, files={"_k.abi3.so": b"native " + label.encode()}) for label in LABELS}
    publish_fake_kernel(hub_server.registry, "acme/axpy", builds=builds)
    environ = {"HF_ENDPOINT": hub_server.url, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
    return load_settings(environ, tmp_path)


def test_a_lock_costs_two_requests_and_one_for_each_build(hub_server: HubServer, settings: Settings) -> None:
    hub_server.log.clear()
    made = make_lock(DECLARED, connector(settings))
    assert len(made.lock.kernels[0].builds) == len(LABELS)
    assert len(hub_server.log.records) <= 2 + len(LABELS), hub_server.log.lines
    assert not hub_server.log.matching(path=".so")


def test_locking_again_costs_nothing_and_adding_only_what_is_added(hub_server: HubServer, settings: Settings) -> None:
    lock = make_lock(DECLARED, connector(settings)).lock
    publish_fake_kernel(hub_server.registry, "acme/other")
    hub_server.log.clear()
    assert make_lock(DECLARED, connector(settings), previous=lock).lock == lock
    assert hub_server.log.lines == []
    more = [*DECLARED, Declaration(Requirement.parse("acme/other@v1"))]
    make_lock(more, connector(settings), previous=lock)
    assert not hub_server.log.matching(path="acme/axpy"), hub_server.log.lines


def test_an_upgrade_that_finds_nothing_new_asks_for_references_only(hub_server: HubServer, settings: Settings) -> None:
    lock = make_lock(DECLARED, connector(settings)).lock
    hub_server.log.clear()
    again = make_lock(DECLARED, connector(settings), previous=lock, upgrade=Upgrade(everything=True)).lock
    assert again == lock
    assert len(hub_server.log.records) == 1, hub_server.log.lines


def test_what_was_locked_once_can_be_locked_without_network_and_nothing_else(
    hub_server: HubServer, settings: Settings, tmp_path: Path
) -> None:
    lock = make_lock(DECLARED, connector(settings)).lock
    hub_server.log.clear()
    offline = replace(settings, mode="offline")
    assert make_lock(DECLARED, connector(offline)).lock == lock
    with pytest.raises(OfflineError):
        make_lock([Declaration(Requirement.parse("acme/other@v1"))], connector(offline))
    empty = replace(offline, hub_cache=tmp_path / "empty" / "hub", home=tmp_path / "empty" / "home")
    with pytest.raises(OfflineError):
        make_lock(DECLARED, connector(empty))
    assert hub_server.log.lines == []
