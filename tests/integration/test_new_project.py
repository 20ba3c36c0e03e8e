"""New projects: every combination is sound as it is written, and what can be compiled here is built, checked and tested."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from kernels._rust import Build as PeerBuild

from kernel_hub.build.audit.check import check
from kernel_hub.build.audit.python import Package, check_source
from kernel_hub.build.blueprint import Abi, Blueprint, Part
from kernel_hub.build.matrix import plan
from kernel_hub.build.pipeline import build
from kernel_hub.build.project import open_project
from kernel_hub.build.scaffold import project_files, write_project
from kernel_hub.build.vendors import usual_cuda_homes
from kernel_hub.errors import BuildError
from tests.unit.build.machines import machine

ROOT = Path(__file__).parents[2]
COMBINATIONS = [(parts, abi) for count in (1, 2, 3) for parts in itertools.combinations(Part, count) for abi in Abi]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="compiled builds are made on Linux")


def made(folder: Path, parts: tuple[Part, ...], abi: Abi) -> Path:
    write_project(folder, project_files(Blueprint("my-kernel", parts, abi)))
    return folder


@pytest.mark.parametrize(("parts", "abi"), COMBINATIONS, ids=str)
def test_every_combination_is_a_project_that_both_readers_take(
    tmp_path: Path, parts: tuple[Part, ...], abi: Abi
) -> None:
    folder = made(tmp_path / "k", parts, abi)
    project = open_project(folder)
    PeerBuild.open(folder)
    planned = plan(project.recipes, machine(cuda=("13.0",)))
    missing = {item.backend.value for item in planned.unmade}
    # Torch's C++ interface is there for the device that the torch of the machine is for, and no other.
    assert missing == ({"cuda"} if Part.CUDA in parts and abi is Abi.CLASSIC else set())
    built = [job.backend.value for job in planned.jobs]
    assert len(built) == len(set(built)), "two builds for one backend"
    assert {"cpu"} & set(built) == ({"cpu"} if Part.CPU in parts else set())
    package = Package("my_kernel", frozenset({"tvm_ffi"}))
    for path in folder.glob("*-ext/**/*.py"):
        assert list(check_source(path.read_bytes(), path.name, package)) == []
    for path in folder.rglob("*"):
        assert not path.is_file() or not re.search(r"@[A-Z_]+@", path.read_text()), f"{path} has a placeholder left"


@pytest.mark.parametrize(
    ("parts", "abi"),
    [((Part.CPU, Part.TRITON), Abi.STABLE), ((Part.CPU,), Abi.CLASSIC), ((Part.CPU,), Abi.TVM_FFI)],
    ids=["stable", "classic", "tvm-ffi"],
)
@ON_LINUX
def test_a_project_builds_passes_every_check_and_its_own_tests(
    tmp_path: Path, parts: tuple[Part, ...], abi: Abi
) -> None:
    folder = made(tmp_path / "k", parts, abi)
    report = build(folder)
    assert report.unmade == ()
    assert {item.findings for item in report.builds} == {()}
    checked = check(folder)
    assert checked.passed
    assert {item.imported for item in checked.builds} == {"imported"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = ran.stdout.splitlines()[-1]
    assert "passed" in summary
    assert "skipped" not in summary, "a build was not tested"


@pytest.mark.skipif(not usual_cuda_homes(), reason="nvcc is not installed on this machine")
def test_a_cuda_project_compiles_and_passes_every_check(tmp_path: Path) -> None:
    folder = made(tmp_path / "k", (Part.CUDA,), Abi.STABLE)
    recipe = folder / "build.toml"
    recipe.write_text(recipe.read_text() + 'cuda-capabilities = ["9.0"]\n')
    assert [item.findings for item in build(folder).builds] == [()]
    checked = check(folder)
    assert [(item.findings, item.imported) for item in checked.builds] == [((), "imported, functions bound lazily")]


@ON_LINUX
def test_tests_of_a_project_find_a_wrong_kernel(tmp_path: Path) -> None:
    folder = made(tmp_path / "k", (Part.TRITON,), Abi.STABLE)
    source = folder / "torch-ext" / "my_kernel" / "triton_kernel.py"
    source.write_text(source.read_text().replace("1.0 + tl.exp", "1.001 + tl.exp"))
    build(folder)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_gated_silu.py"],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "test_it_is_as_accurate_as_eager_torch" in ran.stdout


def test_what_is_written_pleases_a_linter_and_a_formatter(tmp_path: Path) -> None:
    for parts, abi in COMBINATIONS:
        made(tmp_path / f"{'-'.join(parts)}-{abi}", parts, abi)
    for words in (("check", "--select", "E,F,W,I,B,UP,SIM"), ("format", "--check", "--exclude", "*.md")):
        argv = [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "120", str(tmp_path)]
        ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout


def test_a_folder_that_holds_something_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    made(tmp_path / "k", (Part.TRITON,), Abi.STABLE)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BuildError, match="not an empty folder"):
        made(tmp_path / "k", (Part.CPU,), Abi.STABLE)
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    with pytest.raises(BuildError, match="not an empty folder"):
        made(tmp_path / "link", (Part.CPU,), Abi.STABLE)
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_below_a_file_is_an_error_of_the_builder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match="can't be written"):
        made(tmp_path / "file" / "k", (Part.CPU,), Abi.STABLE)


def test_the_templates_are_part_of_the_wheel() -> None:
    shipped = {item.distribution_path for item in WheelBuilder(str(ROOT)).recurse_included_files()}
    templates = [path for path in (ROOT / "kernel_hub" / "build" / "templates").rglob("*") if path.is_file()]
    assert len(templates) > 20
    assert {path.relative_to(ROOT).as_posix() for path in templates} <= shipped
