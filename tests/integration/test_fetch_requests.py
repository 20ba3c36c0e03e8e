"""How often a Hub is asked, and how often one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.bundle import bundle_path, make_bundle
from kernel_hub.errors import UntrustedPublisherError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.faults import Faults, Gate
from tests.support.hub import HubServer
from tests.support.scripted import REPO

CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
GPU = Host.from_json(
    {
        "cpu": "x86_64",
        "os": "linux",
        "torch": "2.13.0+cu130",
        "cxx11_abi": True,
        "backend": "cuda",
        "backend_version": "13.0",
        "devices": [{"index": 0, "name": "GPU", "arch": "9.0"}],
    }
)
FILES = {f"part{number}.py": b"# %d\n" % number for number in range(8)}
BUILDS = {
    "torch-cpu": fake_build("torch-cpu", files=FILES),
    "torch213-cxx11-cu130-x86_64-linux": fake_build("torch213-cxx11-cu130-x86_64-linux", files=FILES, archs=["9.0"]),
    "torch-cuda": fake_build("torch-cuda", files=FILES),
}
FILES_OF_A_BUILD = len(BUILDS["torch-cpu"])


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    server = start_hub(wrap=faults)
    publish_fake_kernel(server.registry, builds=BUILDS)
    server.registry.set_publisher("acme", True)
    return server


@pytest.fixture
def download(hub: HubServer, tmp_path: Path) -> Callable[..., None]:
    def download(host: Host = CPU, *, freshness: str = "600", **wish: object) -> None:
        environ = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "KERNEL_HUB_FRESHNESS": freshness}
        loader = Loader(load_settings(environ, tmp_path), host)
        loader.download(Request(Requirement.parse("acme/axpy", **wish)))  # type: ignore[arg-type]

    return download


def test_a_cold_load_asks_at_most_four_times_more_than_there_are_files(
    download: Callable[..., None], faults: Faults
) -> None:
    download(version=1)
    assert len(faults.asked) <= FILES_OF_A_BUILD + 4
    assert len(faults.paths("/resolve/")) == FILES_OF_A_BUILD


def test_a_cold_load_waits_for_three_round_trips(download: Callable[..., None], faults: Faults) -> None:
    # References and publisher side by side, then the listing, then all files side by side, the metadata among them. A
    # client that asked for one of them only after another had come would wait for ever.
    faults.gates = [Gate(2, "/refs", "/overview"), Gate(FILES_OF_A_BUILD, "/resolve/")]
    download(version=1)
    assert len(faults.asked) == FILES_OF_A_BUILD + 3


def test_a_cold_load_for_a_gpu_reads_the_metadata_of_builds_that_may_fit_and_no_other(
    download: Callable[..., None], faults: Faults
) -> None:
    download(GPU, version=1)
    assert len(faults.paths("metadata.json")) == 2
    assert len(faults.paths("/resolve/")) == FILES_OF_A_BUILD + 1
    assert not faults.paths("torch-cpu")


def test_a_cold_load_for_a_gpu_waits_for_three_round_trips(download: Callable[..., None], faults: Faults) -> None:
    # As above; beside the files comes the metadata of the other build that may fit.
    faults.gates = [Gate(2, "/refs", "/overview"), Gate(FILES_OF_A_BUILD + 1, "/resolve/")]
    download(GPU, version=1)
    assert len(faults.asked) == FILES_OF_A_BUILD + 4


def test_nothing_but_metadata_is_brought_for_a_gpu_before_the_publisher_is_known_to_be_trusted(
    hub: HubServer, download: Callable[..., None], faults: Faults
) -> None:
    hub.registry.set_publisher("acme", False)
    with pytest.raises(UntrustedPublisherError):
        download(GPU, version=1)
    assert {path.rpartition("/")[2] for path in faults.paths("/resolve/")} == {"metadata.json"}


def test_asking_what_would_be_loaded_on_a_gpu_brings_metadata_only(
    hub: HubServer, tmp_path: Path, faults: Faults
) -> None:
    environ = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
    plan = Loader(load_settings(environ, tmp_path), GPU).plan(Request(Requirement.parse("acme/axpy", version=1)))
    assert plan.chosen is not None
    assert {path.rpartition("/")[2] for path in faults.paths("/resolve/")} == {"metadata.json"}


def test_a_warm_load_by_version_asks_nobody_while_it_is_fresh_and_once_after(
    download: Callable[..., None], faults: Faults
) -> None:
    download(version=1)
    faults.asked.clear()
    download(version=1)
    assert faults.asked == []
    download(version=1, freshness="0")
    assert faults.paths() == ["/api/kernels/acme/axpy/refs"]


def test_a_warm_load_by_commit_asks_nobody(hub: HubServer, download: Callable[..., None], faults: Faults) -> None:
    download(version=1)
    faults.asked.clear()
    download(revision=hub.registry.refs(REPO).branches["v1"])
    assert faults.asked == []


def test_a_kernel_of_hundreds_of_files_is_five_requests(
    hub: HubServer, download: Callable[..., None], faults: Faults
) -> None:
    build = fake_build("torch-cpu", version=2, files={f"part{number}.py": b"# %d\n" % number for number in range(600)})
    bundle = make_bundle(build)
    assert bundle is not None
    publish_fake_kernel(
        hub.registry, version=2, builds={"torch-cpu": build}, extra_files={bundle_path("torch-cpu"): bundle}
    )
    download(version=2)
    assert len(faults.asked) <= 5
