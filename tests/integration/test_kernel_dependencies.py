"""Kernels that load other kernels: as their metadata names them, each by its own plan, and never in a circle."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_hub.errors import KernelCycleError, KernelImportError, UntrustedPublisherError, VersionNotFoundError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import AtFixedRevision, AtVersion
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.child import run_python
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer

CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
LOWER = RepoId("acme", "lower")
THEIRS = b"from kernels import get_kernel_dep\nlower = get_kernel_dep('acme/lower')\n__all__ = ['lower']\n"
THEIRS_BY_MODULE = b"import kernels\nlower = kernels.get_kernel_dep('acme/lower')\n"
OURS = b"from kernel_hub import get_kernel_dep\nlower = get_kernel_dep('acme/lower')\n"
BELOW = b"from ._inner import lower\n"


def upper(body: bytes, *depends: AtVersion | AtFixedRevision, **files: bytes) -> dict[str, bytes]:
    inner = {f"{name}.py": content for name, content in files.items()}
    return fake_build(name="upper", kernel_depends=depends, files={"__init__.py": body} | inner)


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return DirectoryRegistry.create(tmp_path / "registry")


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    environ = {"HF_HOME": str(tmp_path / "hf"), "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}"}
    return Loader(load_settings(environ, tmp_path), CPU)


def ask(name: str) -> Request:
    return Request(Requirement.parse(f"acme/{name}", version=1))


@pytest.mark.parametrize("body", [THEIRS, THEIRS_BY_MODULE, OURS], ids=["theirs", "theirs-by-module", "ours"])
def test_a_kernel_gets_the_kernel_that_its_metadata_names(registry, loader: Loader, body: bytes) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/lower", version=1)
    publish_fake_kernel(registry, "acme/lower", version=2)
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": upper(body, AtVersion(LOWER, 1))})
    kernel = loader.load(ask("upper"))
    assert kernel.module.lower.origin() == "lower v1 torch-cpu"
    assert kernel.module.lower.__kernel_hub__.version == 1


def test_a_module_inside_the_kernel_gets_it_too(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/lower")
    build = upper(BELOW, AtVersion(LOWER, 1), _inner=THEIRS)
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": build})
    assert loader.load(ask("upper")).module.lower.axpy(1, [1], [1]) == [2]


def test_a_revision_is_followed_as_it_is_named(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    files = {"_note.py": b"# Bytes of its own, because the same ones from elsewhere would be the same kernel.\n"}
    commit = publish_fake_kernel(registry, "acme/lower", builds={"torch-cpu": fake_build(name="lower", files=files)})
    build = upper(THEIRS, AtFixedRevision(LOWER, commit))
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": build})
    assert loader.load(ask("upper")).module.lower.__kernel_hub__.origin.pin.commit == commit


def test_a_kernel_that_is_not_named_is_not_given(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/lower")
    publish_fake_kernel(registry, "acme/other")
    build = upper(THEIRS.replace(b"acme/lower", b"acme/other"), AtVersion(LOWER, 1))
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": build})
    with pytest.raises(KernelImportError, match="does not depend on 'acme/other'"):
        loader.load(ask("upper"))


def test_a_circle_is_refused_by_name_and_has_kernel_says_no(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    build = upper(THEIRS, AtVersion(LOWER, 1))
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": build})
    back = fake_build(name="lower", kernel_depends=[AtVersion(RepoId("acme", "upper"), 1)])
    publish_fake_kernel(registry, "acme/lower", builds={"torch-cpu": back})
    with pytest.raises(KernelCycleError, match="acme/upper@v1 -> acme/lower@v1 -> acme/upper@v1"):
        loader.load(ask("upper"))
    assert "circle" in loader.availability(ask("upper")).reason


def test_a_dependency_that_is_not_there_is_a_no_before_anything_runs(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/lower", version=3)
    build = upper(b"raise SystemError('ran')\n", AtVersion(LOWER, 1))
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": build})
    with pytest.raises(VersionNotFoundError, match="acme/lower"):
        loader.load(ask("upper"))
    assert "acme/lower" in loader.availability(ask("upper")).reason


def test_trust_in_a_kernel_is_no_trust_in_what_it_depends_on(hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, "acme/lower")
    build = upper(THEIRS, AtVersion(LOWER, 1))
    publish_fake_kernel(hub_server.registry, "acme/upper", builds={"torch-cpu": build})
    loader = Loader(load_settings({"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub_server.url}, tmp_path), CPU)
    request = Request(Requirement.parse("acme/upper@v1"), trust_remote_code=["acme/upper"])
    with pytest.raises(UntrustedPublisherError, match="acme/lower"):
        loader.load(request)
    assert loader.load(Request(request.requirement, trust_remote_code=["acme/upper", "acme/lower"]))


def test_the_installed_client_is_left_alone(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/lower")
    body = THEIRS + b"import kernels\nMode = kernels.Mode\n"
    publish_fake_kernel(registry, "acme/upper", builds={"torch-cpu": upper(body, AtVersion(LOWER, 1))})
    kernel = loader.load(ask("upper"))
    import kernels

    assert kernel.module.Mode is kernels.Mode
    assert sys.modules["kernels"] is kernels
    with pytest.raises(RuntimeError, match="during kernel loading"):
        kernels.get_kernel_dep("acme/lower")


def test_the_same_kernels_load_with_the_peer(hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, "acme/lower")
    build = upper(THEIRS, AtVersion(LOWER, 1))
    publish_fake_kernel(hub_server.registry, "acme/upper", builds={"torch-cpu": build})
    code = "import {0}; print({0}.get_kernel('acme/upper', version=1, trust_remote_code=True).lower.axpy(1, [1], [1]))"
    for client in ("kernels", "kernel_hub"):
        assert run_python(code.format(client), environ=hub_server.child_environment(tmp_path / client)) == "[2]\n"
