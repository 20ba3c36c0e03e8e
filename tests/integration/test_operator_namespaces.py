"""Two kernels of one id that register operators, wherever in their code: refused with both origins, never mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.child import run_python
from tests.support.fake_kernels import fake_build, write_fake_kernel

OPERATOR = """
import torch

@torch.library.custom_op("{namespace}::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * {factor}
"""
PLACES = {
    "in the entry module": {"__init__.py": OPERATOR},
    "in a module below": {"__init__.py": "from ._k._ops import scale\n", "_k/__init__.py": "", "_k/_ops.py": OPERATOR},
    "through an alias": {
        "__init__.py": OPERATOR.replace(
            "import torch\n", "import torch\nfrom torch import library as lib\n", 1
        ).replace("torch.library.", "lib.")
    },
}
LOAD_BOTH = """
import sys, torch
from kernel_hub import get_local_kernel
from kernel_hub.errors import AmbiguousKernelError

first = get_local_kernel(sys.argv[1])
before = first.scale(torch.ones(1)).item()
try:
    get_local_kernel(sys.argv[2])
    print("loaded both", end=" ")
except AmbiguousKernelError as error:
    assert sys.argv[1] in str(error) and sys.argv[2] in str(error), error
    print("refused", end=" ")
print(before, first.scale(torch.ones(1)).item())
"""
LOAD_AFTER_OTHERS = """
import sys, torch
from kernel_hub import get_local_kernel
from kernel_hub.errors import AmbiguousKernelError

library = torch.library.Library("mylib", "DEF")
library.define("scale(Tensor x) -> Tensor")
library.impl("scale", lambda x: x * 7, "CPU")
try:
    get_local_kernel(sys.argv[1])
    print("loaded", end=" ")
except AmbiguousKernelError as error:
    assert "mylib" in str(error) and sys.argv[1] in str(error), error
    print("refused", end=" ")
print(torch.ops.mylib.scale(torch.ones(1)).item())
"""
LOAD_ONE = """
import sys, torch, kernel_hub

try:
    kernel_hub.get_local_kernel(sys.argv[1])
except ImportError as error:
    print(error)
"""


def kernel(folder: Path, files: dict[str, str], factor: int, *, kernel_id: str = "_axpy_shared") -> Path:
    content = {
        path: source.format(namespace=kernel_id, factor=factor).encode() if source else b""
        for path, source in files.items()
    }
    return write_fake_kernel(folder, {"torch-cpu": fake_build(files=content, kernel_id=kernel_id)})


@pytest.mark.parametrize("place", PLACES)
def test_two_kernels_of_one_id_are_never_mixed(place: str, tmp_path: Path) -> None:
    folders = [kernel(tmp_path / name, PLACES[place], factor) for name, factor in (("a", 2), ("b", 3))]
    assert run_python(LOAD_BOTH, *folders).split() == ["refused", "2.0", "2.0"]


def test_two_kernels_of_one_id_without_operators_live_side_by_side(tmp_path: Path) -> None:
    plain = "import torch\n\ndef scale(x):\n    return x * {factor}\n"
    folders = [kernel(tmp_path / name, {"__init__.py": plain}, factor) for name, factor in (("a", 2), ("b", 3))]
    assert run_python(LOAD_BOTH, *folders).split() == ["loaded", "both", "2.0", "2.0"]


def test_a_namespace_that_the_application_filled_is_not_taken(tmp_path: Path) -> None:
    folder = kernel(tmp_path / "a", PLACES["in the entry module"], 2, kernel_id="mylib")
    assert run_python(LOAD_AFTER_OTHERS, folder).split() == ["refused", "7.0"]


@pytest.mark.parametrize("kernel_id", ["aten", "prims"])
def test_torchs_own_namespaces_are_not_taken(kernel_id: str, tmp_path: Path) -> None:
    folder = kernel(tmp_path / "a", PLACES["in the entry module"], 2, kernel_id=kernel_id)
    assert f"torch.ops.{kernel_id}" in run_python(LOAD_ONE, folder)
