"""Attack: a server lures the token to another host: by a redirect, a listing's next page, a namespace's registry, a Xet store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import KernelHubError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.sources.hub import HubSource
from kernel_hub.sources.hub_xet import XET_FROM_BYTES, get_from_store
from tests.support import faults as fault
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer
from tests.support.scripted import REPO
from tests.support.xet_store import running_store

ENFORCED_BY = "kernel_hub.sources.hub_http.HubClient"
CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
TOKEN = "hf_secret0123456789"
BUILD = {"torch-cpu": fake_build("torch-cpu", files={"weights.bin": os.urandom(100_000)})}


@pytest.fixture
def home() -> Faults:
    """What the endpoint that the token is for is asked."""
    return Faults()


@pytest.fixture
def away() -> Faults:
    """What the other server is asked."""
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], home: Faults, tmp_path: Path) -> HubServer:
    server = start_hub(tmp_path / "home", wrap=home)
    publish_fake_kernel(server.registry, builds=BUILD)
    server.registry.set_publisher("acme", True)
    return server


@pytest.fixture
def other(start_hub: Callable[..., HubServer], hub: HubServer, away: Faults, tmp_path: Path) -> HubServer:
    """Another server with the same commits."""
    shutil.copytree(tmp_path / "home", tmp_path / "away")
    return start_hub(tmp_path / "away", wrap=away)


def download(hub: HubServer, folder: Path, **environ: str) -> None:
    settings = load_settings(
        {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(folder / "hf")} | environ, folder
    )
    Loader(settings, CPU).download(Request(Requirement.parse("acme/axpy", version=1)))


def test_the_endpoint_gets_the_token_with_every_request(hub: HubServer, home: Faults, tmp_path: Path) -> None:
    download(hub, tmp_path)
    assert {headers.get("authorization") for _, _, headers in home.asked} == {f"Bearer {TOKEN}"}


def test_a_redirect_of_a_file_takes_no_token_along(
    hub: HubServer, other: HubServer, home: Faults, away: Faults, tmp_path: Path
) -> None:
    (path,) = [path for path in _files_of(hub) if path.endswith("weights.bin")]
    home.add(fault.redirect(f"{other.url}{path}"), "weights.bin")
    download(hub, tmp_path)
    assert away.paths("weights.bin")
    assert TOKEN not in str(away.asked)


@pytest.mark.parametrize("place", ["/refs", "/tree/", "/overview"])
def test_a_redirect_of_a_question_is_not_followed(
    hub: HubServer, other: HubServer, home: Faults, away: Faults, tmp_path: Path, place: str
) -> None:
    home.add(fault.redirect(f"{other.url}/api/kernels/acme/axpy/refs", 307), place)
    with pytest.raises(KernelHubError):
        download(hub, tmp_path)
    assert away.asked == []


def test_the_next_page_of_a_listing_lies_on_the_same_host(
    hub: HubServer, other: HubServer, home: Faults, away: Faults, tmp_path: Path
) -> None:
    home.add(fault.relabelled(link=f'<{other.url}/api/kernels/acme/axpy/tree/x>; rel="next"'), "/tree/")
    with pytest.raises(KernelHubError):
        download(hub, tmp_path)
    assert away.asked == []


def test_a_registry_of_a_namespace_does_not_get_the_token_of_the_endpoint(
    hub: HubServer, other: HubServer, away: Faults, tmp_path: Path
) -> None:
    download(hub, tmp_path, KERNEL_HUB_REGISTRIES=f"acme={other.url}")
    assert away.asked
    assert TOKEN not in str(away.asked)


def test_no_error_or_record_tells_the_token(
    hub: HubServer, home: Faults, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.add(fault.status(401))
    with caplog.at_level("DEBUG"), pytest.raises(KernelHubError) as caught:
        download(hub, tmp_path)
    assert TOKEN not in str(caught.value)
    assert TOKEN not in caplog.text


def _files_of(hub: HubServer) -> list[str]:
    commit = hub.registry.refs(REPO).branches["v1"]
    return [f"/kernels/{REPO}/resolve/{commit}/{entry.path}" for entry in hub.registry.files(REPO, commit)]


def test_the_store_of_large_files_gets_a_token_of_its_own_and_a_redirect_to_it_none(
    hub: HubServer, other: HubServer, home: Faults, away: Faults, tmp_path: Path
) -> None:
    large = bytes(XET_FROM_BYTES)
    publish_fake_kernel(hub.registry, version=2, builds={"torch-cpu": fake_build("torch-cpu", files={"w.bin": large})})
    home.add(fault.redirect(f"{other.url}/api/kernels/acme/axpy/xet-read-token/x"), "/xet-read-token/", times=1)
    with running_store() as store:
        store.offer(home, large)
        source = HubSource(hub.url, token=TOKEN, xet=get_from_store)
        commit = source.refs(REPO).branches["v2"]
        (entry,) = [entry for entry in source.files(REPO, commit) if entry.path.endswith("w.bin")]
        assert not source.download(REPO, commit, entry, tmp_path / "first", lambda length_bytes: None)
        assert away.paths("/xet-read-token/")
        again = HubSource(hub.url, token=TOKEN, xet=get_from_store)
        assert again.download(REPO, commit, entry, tmp_path / "second", lambda length_bytes: None)
    assert (tmp_path / "second").read_bytes() == large
    assert store.asked
    assert TOKEN not in str(store.asked) + str(away.asked)
