"""From a signed build to a loader that demands the signature: sign, publish, fetch, verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.build.publish import Status, publish
from kernel_hub.errors import PublishRefusedError, SignatureMissingError, UnsafePathError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.signatures import PrivateKey
from kernel_hub.signing import sign_folder
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.trust import Ed25519Signer
from tests.support.fake_kernels import write_fake_kernel

CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
REPO = RepoId("acme", "axpy")
KEY = PrivateKey(b"\1" * 32)
TRUST = f"""
[[signer]]
name = "ci"
ed25519 = "{Ed25519Signer("ci", KEY.public).key_text}"

[[require]]
signers = ["ci"]
"""


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return DirectoryRegistry.create(tmp_path / "registry")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return write_fake_kernel(tmp_path / "kernel", ["torch-cpu", "torch-cuda"])


@pytest.fixture
def load(tmp_path: Path) -> Callable[[], tuple[str, ...]]:
    def load() -> tuple[str, ...]:
        (tmp_path / "trust.toml").write_text(TRUST)
        environ = {
            "HF_HOME": str(tmp_path / "hf"),
            "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}",
            "KERNEL_HUB_TRUST": str(tmp_path / "trust.toml"),
            "KERNEL_HUB_FRESHNESS": "0",
        }
        loader = Loader(load_settings(environ, tmp_path), CPU)
        return loader.download(Request(Requirement.parse("acme/axpy", version=1))).signed_by

    return load


def paths(registry: DirectoryRegistry) -> list[str]:
    commit = registry.refs(REPO).branches["v1"]
    return [entry.path for entry in registry.files(REPO, commit, "attestations")]


def test_a_signed_build_is_published_with_its_attestation_and_verified_at_load(
    registry: DirectoryRegistry, kernel: Path, load: Callable[[], tuple[str, ...]]
) -> None:
    sign_folder(kernel, KEY, repository="acme/axpy")
    publish(kernel, registry, REPO)
    assert paths(registry) == ["attestations/torch-cpu.json", "attestations/torch-cuda.json"]
    assert load() == ("ci",)


def test_an_attestation_that_was_not_renewed_leaves_with_its_build(
    registry: DirectoryRegistry, kernel: Path, load: Callable[[], tuple[str, ...]]
) -> None:
    sign_folder(kernel, KEY)
    publish(kernel, registry, REPO)
    (kernel / "attestations" / "torch-cpu.json").unlink()
    report = publish(kernel / "build" / "torch-cpu", registry, REPO)
    assert report.deleted == ("attestations/torch-cpu.json",)
    assert paths(registry) == ["attestations/torch-cuda.json"]
    with pytest.raises(SignatureMissingError):
        load()


def test_publishing_again_changes_nothing(registry: DirectoryRegistry, kernel: Path) -> None:
    sign_folder(kernel, KEY)
    publish(kernel, registry, REPO)
    assert publish(kernel, registry, REPO).added == ()


def test_an_attestation_of_another_build_is_not_published(registry: DirectoryRegistry, kernel: Path) -> None:
    sign_folder(kernel, KEY)
    cpu = kernel / "attestations" / "torch-cpu.json"
    cpu.write_bytes((kernel / "attestations" / "torch-cuda.json").read_bytes())
    with pytest.raises(PublishRefusedError, match=r"attestations/torch-cpu\.json is about another build"):
        publish(kernel, registry, REPO)


def test_an_attestation_that_is_a_link_is_not_published(
    registry: DirectoryRegistry, kernel: Path, tmp_path: Path
) -> None:
    sign_folder(kernel, KEY)
    cpu = kernel / "attestations" / "torch-cpu.json"
    cpu.rename(tmp_path / "elsewhere")
    cpu.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePathError, match="is a link"):
        publish(kernel, registry, REPO)


def test_builds_are_signed_while_they_are_published(
    registry: DirectoryRegistry, kernel: Path, load: Callable[[], tuple[str, ...]]
) -> None:
    planned = publish(kernel, registry, REPO, key=KEY, dry_run=True)
    assert not (kernel / "attestations").exists()
    assert planned.notes[0] == "the builds would be signed first"
    assert publish(kernel, registry, REPO, key=KEY).status is Status.PUBLISHED
    assert paths(registry) == ["attestations/torch-cpu.json", "attestations/torch-cuda.json"]
    assert load() == ("ci",)
    assert publish(kernel, registry, REPO, key=KEY).status is Status.UNCHANGED


def test_attestations_of_earlier_builds_are_replaced_when_signing(
    registry: DirectoryRegistry, kernel: Path, load: Callable[[], tuple[str, ...]]
) -> None:
    sign_folder(kernel, KEY)
    cpu, cuda = (kernel / "attestations" / f"torch-{backend}.json" for backend in ("cpu", "cuda"))
    cpu.write_bytes(cuda.read_bytes())
    publish(kernel, registry, REPO, key=KEY)
    assert load() == ("ci",)
