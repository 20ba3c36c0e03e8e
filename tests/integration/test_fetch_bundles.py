"""A kernel of hundreds of files, from publishing to loading: few requests here, nothing unusual for anybody else."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.build.publish import Status, publish
from kernel_hub.sources.hub import HubSink
from tests.support.child import run_python
from tests.support.fake_kernels import fake_build, write_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer
from tests.support.loading import load
from tests.support.scripted import REPO

BUILD = fake_build("torch-cpu", files={f"part{number}.py": f"NUMBER = {number}\n".encode() for number in range(600)})
PEER = """
from kernels import get_kernel
kernel = get_kernel("acme/axpy", version=1, trust_remote_code=True)
print(kernel.axpy(2, [1], [1]))
"""


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    return start_hub(wrap=faults)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return write_fake_kernel(tmp_path / "kernel", {"torch-cpu": BUILD})


def test_a_published_kernel_of_hundreds_of_files_loads_with_at_most_five_requests(
    hub: HubServer, faults: Faults, kernel: Path, tmp_path: Path
) -> None:
    report = publish(kernel, HubSink(hub.url), REPO)
    assert "bundles/torch-cpu.tar" in report.added
    hub.registry.set_publisher("acme", True)
    faults.asked.clear()
    assert load(hub.child_environment(tmp_path / "home")).values == [[3]]
    assert len(faults.asked) <= 5


def test_the_bundle_holds_the_builds_files_and_lies_outside_it(hub: HubServer, kernel: Path) -> None:
    report = publish(kernel, HubSink(hub.url), REPO)
    assert report.commit is not None
    content = hub.registry.read(REPO, report.commit, "bundles/torch-cpu.tar", limit_bytes=1 << 30)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert sorted(tar.getnames()) == sorted(BUILD)
    assert not [entry for entry in hub.registry.files(REPO, report.commit, "build") if "bundle" in entry.path]


def test_publishing_again_is_no_commit_and_a_changed_file_is_a_new_bundle(hub: HubServer, kernel: Path) -> None:
    first = publish(kernel, HubSink(hub.url), REPO)
    assert publish(kernel, HubSink(hub.url), REPO).status is Status.UNCHANGED
    changed = fake_build("torch-cpu", files={f"part{number}.py": b"NUMBER = 0\n" for number in range(600)})
    write_fake_kernel(kernel, {"torch-cpu": changed})
    second = publish(kernel, HubSink(hub.url), REPO)
    assert second.commit != first.commit
    assert "bundles/torch-cpu.tar" in second.added


def test_a_build_that_became_small_loses_its_bundle(hub: HubServer, kernel: Path, tmp_path: Path) -> None:
    publish(kernel, HubSink(hub.url), REPO)
    small = write_fake_kernel(tmp_path / "small", {"torch-cpu": fake_build("torch-cpu")})
    report = publish(small, HubSink(hub.url), REPO)
    assert "bundles/torch-cpu.tar" in report.deleted


def test_the_peer_loads_a_kernel_with_a_bundle(hub: HubServer, kernel: Path, tmp_path: Path) -> None:
    publish(kernel, HubSink(hub.url), REPO)
    assert (
        run_python(PEER, environ=hub.child_environment(tmp_path / "home") | {"PYTHONWARNINGS": "ignore"}).strip()
        == "[3]"
    )
