"""Described build machines and recipes for the tests of what is pure."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from kernel_hub.build.machine import Compiler, CudaToolkit, Machine, TorchSdk, TvmFfiSdk
from kernel_hub.build.reader import parse_recipe
from kernel_hub.build.recipe import Recipe

HEAD = 'name = "axpy"\nversion = 1\nedition = 5\nlicense = "MIT"\n'


def recipe(text: str, *, backends: str = '["cpu"]') -> Recipe:
    """A recipe with these tables."""
    return parse_recipe(f"[general]\n{HEAD}backends = {backends}\n{text}".encode())


def machine(torch: str = "2.13", *, cuda: tuple[str, ...] = ()) -> Machine:
    """A complete machine."""
    return Machine(
        cpu="x86_64",
        os="linux",
        compiler=Compiler(Path("/usr/bin/g++"), "g++ 12"),
        torch=TorchSdk(Version(torch), Path("/site/torch")),
        tvm_ffi=TvmFfiSdk(Version("0.1"), Path("/site/tvm_ffi")),
        python_include=Path("/usr/include/python3.11"),
        cuda=tuple(toolkit(version) for version in cuda),
    )


def toolkit(version: str) -> CudaToolkit:
    """A CUDA toolkit of a release."""
    root = Path(f"/opt/cuda-{version}")
    return CudaToolkit(Version(version), root, root / "bin" / "nvcc", root / "lib64")
