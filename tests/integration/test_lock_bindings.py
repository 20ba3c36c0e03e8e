"""A lock whose namespace was bound to a registry: where nothing binds it, the Hub is not asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, RepositoryNotFoundError
from kernel_hub.loader import Loader
from kernel_hub.locking.lookup import Caller
from kernel_hub.model.host import Host
from kernel_hub.model.lock_text import format_lock
from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from tests.support.child import PROJECT
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer
from tests.support.locks import bound_settings, lock_of, registry_in

HOST = Host.from_json(
    {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "cxx11_abi": True, "backend": "cpu", "devices": []}
)
REQUEST = Requirement.parse("acme/axpy@v1")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that locked a kernel, and one that it depends on, from a registry of its own."""
    registry = registry_in(tmp_path / "private")
    publish_fake_kernel(registry, "acme/core", builds={"torch-cpu": fake_build("torch-cpu", name="core")})
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    publish_fake_kernel(registry, "acme/axpy", builds={"torch-cpu": fake_build("torch-cpu", kernel_depends=needs)})
    folder = tmp_path / "project"
    folder.mkdir()
    lock = lock_of(bound_settings(tmp_path / "locker", tmp_path / "private"), "acme/axpy@v1").lock
    (folder / "kernel-hub.lock").write_bytes(format_lock(lock))
    (folder / "pyproject.toml").write_text('[tool.kernel-hub.registries]\nacme = "../private"\n')
    return folder


@pytest.fixture
def elsewhere(hub_server: HubServer, tmp_path: Path) -> Loader:
    """What loads in a folder that belongs to no project, and would ask this Hub, which has a kernel of that name."""
    publish_fake_kernel(hub_server.registry, "acme/axpy", builds=["torch-cpu"])
    hub_server.registry.set_publisher("acme", True)
    hub_server.log.clear()
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    environ = {"HF_ENDPOINT": hub_server.url, "HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
    return Loader(load_settings(environ, folder), HOST)


def beside(project: Path) -> Request:
    """A request by a script that lies in the project's folder."""
    return Request(REQUEST, caller=Caller("__main__", str(project / "script.py")))


def test_the_bindings_of_the_locks_own_project_hold_for_what_is_locked(
    project: Path, elsewhere: Loader, hub_server: HubServer
) -> None:
    assert elsewhere.availability(beside(project))
    kernel = elsewhere.load(beside(project))
    assert kernel.module.axpy(2, [1], [1]) == [3]
    assert "private" in str(kernel.origin)
    assert hub_server.log.lines == []


@pytest.mark.parametrize("text", [None, "", '[tool.kernel-hub.registries]\nlabs = "../private"\n'])
def test_what_nothing_binds_is_an_error_before_any_request(
    project: Path, elsewhere: Loader, hub_server: HubServer, text: str | None
) -> None:
    (project / "pyproject.toml").unlink()
    if text is not None:
        (project / "pyproject.toml").write_text(text)
    with pytest.raises(RepositoryNotFoundError, match="was made with 'acme' bound to a registry") as caught:
        elsewhere.load(beside(project))
    assert "kernel-hub.lock" in caught.value.message and "KERNEL_HUB_REGISTRIES" in caught.value.hint()
    with pytest.raises(RepositoryNotFoundError):
        elsewhere.load(Request(REQUEST, lock_file=project / "kernel-hub.lock"))
    assert not elsewhere.availability(beside(project))
    assert hub_server.log.lines == []


@pytest.mark.parametrize("words", [["--all-builds"], ["--target", "linux-x86_64-cpu-torch2.13"], []])
def test_what_nothing_binds_is_not_synced_from_the_hub_either(
    project: Path, elsewhere: Loader, hub_server: HubServer, tmp_path: Path, words: list[str]
) -> None:
    (project / "pyproject.toml").write_text("")
    hub = hub_server.child_environment(tmp_path / "child")
    code = "import sys; from kernel_hub.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "sync", "--lock", str(project / "kernel-hub.lock"), *words],
        env=hub | {"PYTHONPATH": str(PROJECT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3 and "was made with 'acme' bound to a registry" in done.stderr
    assert hub_server.log.lines == []


def test_a_binding_in_another_case_is_no_way_to_the_hub_either(
    project: Path, elsewhere: Loader, hub_server: HubServer
) -> None:
    (project / "pyproject.toml").write_text('[tool.kernel-hub.registries]\nAcme = "../private"\n')
    with pytest.raises(InvalidDocumentError, match="binds 'Acme'"):
        elsewhere.load(beside(project))
    assert hub_server.log.lines == []


def test_the_settings_that_hold_here_come_before_the_locks_project(
    project: Path, hub_server: HubServer, tmp_path: Path
) -> None:
    (project / "pyproject.toml").write_text(f'[tool.kernel-hub.registries]\nacme = "{hub_server.url}"\n')
    loader = Loader(bound_settings(tmp_path / "home", tmp_path / "private"), HOST)
    assert "private" in str(loader.load(beside(project)).origin)
    assert hub_server.log.lines == []
