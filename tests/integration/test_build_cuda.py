"""Building for CUDA with the toolkit of this machine; a GPU is not needed, and nothing here runs on one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kernel_hub.build.audit.check import check
from kernel_hub.build.audit.elf import read_library, section_of
from kernel_hub.build.audit.fatbin import SECTION, device_codes
from kernel_hub.build.pipeline import BuildReport, build
from kernel_hub.build.toolchain import find_machine
from kernel_hub.build.vendors import usual_cuda_homes
from kernel_hub.errors import CompileError, ToolchainError

KERNEL = Path(__file__).parents[1] / "vectors" / "recipes" / "cuda"
pytestmark = pytest.mark.skipif(not usual_cuda_homes(), reason="nvcc is not installed on this machine")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    folder = tmp_path_factory.mktemp("cuda")
    shutil.copytree(KERNEL, folder / "one")
    return build(folder / "one")


def module_of(report: BuildReport) -> Path:
    return report.builds[0].folder / f"{report.builds[0].id}.abi3.so"


def test_the_label_names_the_toolkit_and_metadata_the_archs(built: BuildReport) -> None:
    toolkit = find_machine().cuda[0].version
    expected = f"torch-stable-abi211-cu{toolkit.major}{toolkit.minor}-x86_64-linux"
    assert built.builds[0].label == expected
    metadata = json.loads((built.builds[0].folder / "metadata.json").read_bytes())
    assert metadata["backend"] == {"type": "cuda", "archs": ["8.0", "9.0+PTX", "9.0a"]}


def test_the_module_holds_machine_code_and_ptx_for_them(built: BuildReport) -> None:
    section = section_of(module_of(built), SECTION)
    assert section is not None
    assert sorted(map(str, device_codes(section))) == [
        "PTX for 9.0", "machine code for 8.0", "machine code for 9.0", "machine code for 9.0a",
    ]  # fmt: skip


def test_the_module_needs_the_shared_runtime_and_no_cuda_part_of_torch(built: BuildReport) -> None:
    needed = read_library(module_of(built)).needed
    assert [name for name in needed if "cuda" in name] == [f"libcudart.so.{find_machine().cuda[0].version.major}"]


def test_the_build_passes_every_check_and_imports_without_a_gpu(built: BuildReport) -> None:
    report = check(built.output)
    assert [item.findings for item in report.builds] == [()]
    assert report.builds[0].imported == "imported, functions bound lazily"


def test_two_builds_in_different_folders_are_byte_identical(built: BuildReport, tmp_path: Path) -> None:
    shutil.copytree(KERNEL, tmp_path / "another folder")
    again = build(tmp_path / "another folder")
    assert module_of(again).read_bytes() == module_of(built).read_bytes()


def test_an_error_of_the_device_compiler_is_shown_with_file_and_line(tmp_path: Path) -> None:
    shutil.copytree(KERNEL, tmp_path / "k")
    (tmp_path / "k" / "csrc" / "scale.cu").write_text("__global__ void f(int* x) {\n  *x = undeclared;\n}\n")
    with pytest.raises(CompileError) as caught:
        build(tmp_path / "k")
    assert 'csrc/scale.cu(2): error: identifier "undeclared" is undefined' in caught.value.message
    assert not (tmp_path / "k" / "build").exists()


def test_a_folder_whose_name_is_a_command_is_refused_and_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "$(touch ran)"
    shutil.copytree(KERNEL, folder)
    with pytest.raises(ToolchainError, match="nvcc would hand the name"):
        build(folder)
    assert not list(tmp_path.rglob("ran"))
