"""Locks ride in wheels: built with setuptools and with hatchling, installed in a fresh environment, loaded locked."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.locks import bound_settings, lock_of, registry_in

ROOT = Path(__file__).parents[2]
LABEL = "torch-cpu"
AXPY = RepoId("acme", "axpy")
BACKENDS = {
    "setuptools": """
[build-system]
requires = ["setuptools", "kernel-hub"]
build-backend = "setuptools.build_meta"
[tool.setuptools]
packages = ["app"]
package-dir = { "" = "src" }
""",
    "hatchling": """
[build-system]
requires = ["hatchling", "kernel-hub"]
build-backend = "hatchling.build"
[tool.hatch.build.hooks.kernel-hub]
[tool.hatch.build.targets.wheel]
packages = ["src/app"]
[tool.hatch.build.targets.sdist]
include = ["src"]
""",
}
APP = """
import kernel_hub
import kernel_hub.api
from kernel_hub.model.host import Host

kernel_hub.api.this_host = lambda settings: Host.from_json({"cpu": "x86_64", "os": "linux", "backend": "cpu"})


def commit():
    return kernel_hub.get_kernel("acme/axpy").__kernel_hub__.origin.pin.commit


def locked_commit():
    return kernel_hub.get_locked_kernel("acme/axpy").__kernel_hub__.origin.pin.commit
"""


@pytest.fixture(scope="module")
def kernel_hub_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's own wheel, with its entry points."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    (wheel,) = folder.glob("*.whl")
    return wheel


class Environment:
    """A fresh virtual environment in which third parties' distributions are those of this one."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
        (site,) = (path for path in folder.rglob("site-packages") if path.is_dir())
        (site / "third-parties.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        self.site = site
        self.pip("install", "--no-deps", str(wheel))

    def pip(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return pip("--python", str(self.python), *words, check=check)

    def run(self, code: str, folder: Path, **environ: str) -> str:
        done = subprocess.run(
            [str(self.python), "-c", code],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": str(folder)} | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def pip(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words],
        env=os.environ | {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, kernel_hub_wheel: Path) -> Environment:
    return Environment(tmp_path_factory.mktemp("environment"), kernel_hub_wheel)


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    registry = registry_in(tmp_path / "registry")
    publish_fake_kernel(registry, AXPY, builds={LABEL: fake_build(LABEL)})
    return registry


@pytest.fixture(params=sorted(BACKENDS))
def project(request: pytest.FixtureRequest, tmp_path: Path, registry: DirectoryRegistry) -> Path:
    """A project with a lock, whose kernel has moved on since."""
    from kernel_hub.model.lock_text import format_lock

    folder = tmp_path / "project"
    (folder / "src" / "app").mkdir(parents=True)
    (folder / "src" / "app" / "__init__.py").write_text(APP)
    name = f"app-of-{request.param}"
    head = f'[project]\nname = "{name}"\nversion = "1.0"\n{BACKENDS[request.param]}'
    (folder / "pyproject.toml").write_text(f'{head}\n[tool.kernel-hub.dependencies]\n"acme/axpy" = "1"\n')
    made = lock_of(bound_settings(tmp_path / "locker", tmp_path / "registry"), "acme/axpy@v1")
    (folder / "kernel-hub.lock").write_bytes(format_lock(made.lock))
    publish_fake_kernel(registry, AXPY, builds={LABEL: fake_build(LABEL, files={"new.py": b""})})
    publish_fake_kernel(registry, AXPY, version=2)
    return folder


def locked_commit(project: Path) -> str:
    from kernel_hub.model.lock_text import parse_lock

    (kernel,) = parse_lock((project / "kernel-hub.lock").read_bytes(), name="lock").kernels
    return kernel.commit


def bound(tmp_path: Path) -> dict[str, str]:
    return {
        "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}",
        "HF_HOME": str(tmp_path / "hf"),
    }


def test_a_wheel_carries_the_lock_and_its_code_loads_what_it_holds(
    project: Path, environment: Environment, registry: DirectoryRegistry, tmp_path: Path
) -> None:
    environment.pip("wheel", str(project), "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (inside,) = [name for name in archive.namelist() if name.endswith("kernel-hub.lock")]
        assert ".dist-info/" in inside
        assert archive.read(inside) == (project / "kernel-hub.lock").read_bytes()
    commit = locked_commit(project)
    assert commit != registry.refs(AXPY).branches["v1"]
    (tmp_path / "elsewhere").mkdir()
    environment.pip("install", "--no-deps", str(wheel))
    try:
        for call in ("commit", "locked_commit"):
            code = f"import app; print(app.{call}())"
            assert environment.run(code, tmp_path / "elsewhere", **bound(tmp_path)) == commit
        other = "import app, kernel_hub; print(kernel_hub.get_kernel('acme/axpy').__kernel_hub__.origin.pin.commit)"
        unlocked = environment.run(other, tmp_path / "elsewhere", **bound(tmp_path))
        assert unlocked == registry.refs(AXPY).branches["v2"]
    finally:
        environment.pip("uninstall", "-y", f"app-of-{wheel.name.split('_of_')[1].split('-')[0]}")


def test_an_editable_install_follows_the_lock_of_its_project(
    project: Path, environment: Environment, registry: DirectoryRegistry, tmp_path: Path
) -> None:
    environment.pip("install", "--no-deps", "--no-build-isolation", "--editable", str(project))
    (tmp_path / "elsewhere").mkdir()
    code = "import app; print(app.locked_commit())"
    try:
        (lock,) = environment.site.glob("app_of_*.dist-info/**/kernel-hub.lock")
        assert lock.read_bytes() == (project / "kernel-hub.lock").read_bytes()
        assert environment.run(code, tmp_path / "elsewhere", **bound(tmp_path)) == locked_commit(project)
        from kernel_hub.locking.make import Upgrade
        from kernel_hub.model.lock_text import format_lock

        made = lock_of(bound_settings(tmp_path / "again", tmp_path / "registry"), "acme/axpy@v1", upgrade=Upgrade(True))
        (project / "kernel-hub.lock").write_bytes(format_lock(made.lock))
        assert environment.run(code, tmp_path / "elsewhere", **bound(tmp_path)) == registry.refs(AXPY).branches["v1"]
    finally:
        name = lock.relative_to(environment.site).parts[0].split("-")[0]
        environment.pip("uninstall", "-y", name)


def test_a_source_distribution_carries_the_lock(project: Path, environment: Environment, tmp_path: Path) -> None:
    backend = "setuptools.build_meta" if "setuptools" in (project / "pyproject.toml").read_text() else "hatchling.build"
    code = f"import {backend} as backend; print(backend.build_sdist({str(tmp_path)!r}))"
    name = environment.run(code, project).splitlines()[-1]
    with tarfile.open(tmp_path / name) as archive:
        assert f"{name.removesuffix('.tar.gz')}/kernel-hub.lock" in archive.getnames()


def test_a_project_whose_lock_is_missing_or_old_is_not_built(
    project: Path, environment: Environment, tmp_path: Path
) -> None:
    def build() -> str:
        words = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "dist"))
        done = environment.pip("wheel", str(project), *words, check=False)
        assert done.returncode != 0
        return done.stdout + done.stderr

    path = project / "pyproject.toml"
    path.write_text(path.read_text().replace('"acme/axpy" = "1"', '"acme/axpy" = "2"'))
    assert "acme/axpy is declared as v2, but locked for v1" in build()
    (project / "kernel-hub.lock").unlink()
    assert "declares kernels, but has no kernel-hub.lock" in build()


def test_a_project_without_kernels_is_built_as_ever(project: Path, environment: Environment, tmp_path: Path) -> None:
    path = project / "pyproject.toml"
    path.write_text(path.read_text().split("[tool.kernel-hub.dependencies]")[0])
    (project / "kernel-hub.lock").unlink()
    environment.pip("wheel", str(project), "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith("kernel-hub.lock")]
