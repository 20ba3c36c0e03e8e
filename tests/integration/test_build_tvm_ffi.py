"""Building a kernel on tvm-ffi: loaded by the ecosystem's own loader in a process of its own, and run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_hub.build.audit.check import check
from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.pipeline import BuildReport, build
from kernel_hub.build.toolchain import find_machine

KERNEL = Path(__file__).parents[1] / "vectors" / "recipes" / "tvm-ffi"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiled builds are made on Linux")
LOAD = """
import sys
from pathlib import Path
import torch
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]))
print(kernel.add(torch.ones(3), torch.arange(3.0), torch.empty(3)).tolist())
try:
    kernel.add(torch.ones(3), torch.ones(2), torch.empty(3))
except ValueError as error:
    print(error)
print(kernel.operator_name("add") == kernel.__name__ + "::add")
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    folder = tmp_path_factory.mktemp("tvm-ffi") / "k"
    shutil.copytree(KERNEL, folder)
    return build(folder)


def test_the_label_names_the_release_of_tvm_ffi(built: BuildReport) -> None:
    sdk = find_machine().tvm_ffi
    assert sdk is not None
    label = f"tvm-ffi{sdk.version.major}{sdk.version.minor}-cpu-x86_64-linux"
    assert [item.label for item in built.builds] == [label]
    assert {path.name for path in built.builds[0].folder.iterdir()} == {
        "__init__.py", f"{built.builds[0].id}.so", "_ops.py", "metadata.json",
    }  # fmt: skip


def test_the_peer_loads_and_runs_it(built: BuildReport) -> None:
    ran = subprocess.run([sys.executable, "-c", LOAD, str(built.output)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    result, error, prefixed = ran.stdout.splitlines()
    assert (result, prefixed) == ("[1.0, 2.0, 3.0]", "True")
    assert error.endswith("x has 3 elements, y has 2")


def test_the_build_passes_every_check(built: BuildReport) -> None:
    report = check(built.output)
    assert [(item.findings, item.imported) for item in report.builds] == [((), "imported")]


def test_the_module_knows_nothing_of_torch_or_python(built: BuildReport) -> None:
    library = read_library(built.builds[0].folder / f"{built.builds[0].id}.so")
    assert "libtvm_ffi.so" in library.needed
    assert not [name for name in library.needed if "torch" in name]
    unversioned = {symbol.name for symbol in library.undefined if not symbol.version and not symbol.weak}
    assert all(name.startswith("TVMFFI") for name in unversioned)


def test_two_builds_in_different_folders_are_byte_identical(built: BuildReport, tmp_path: Path) -> None:
    shutil.copytree(KERNEL, tmp_path / "another folder")
    again = build(tmp_path / "another folder")
    module = f"{built.builds[0].id}.so"
    assert (again.builds[0].folder / module).read_bytes() == (built.builds[0].folder / module).read_bytes()
