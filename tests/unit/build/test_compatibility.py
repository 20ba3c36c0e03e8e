"""Rows of what runs where."""

from __future__ import annotations

from itertools import permutations

from kernel_hub.build.compatibility import Row, compatibility
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import Metadata


def metadata(kind: BackendKind, *archs: str) -> Metadata:
    return Metadata("axpy", "_axpy_cuda_abc", 1, "mit", kind, archs)


BUILDS = {
    "torch-cuda": metadata(BackendKind.CUDA),
    "torch-universal": None,
    "torch211-cxx11-cu130-x86_64-linux": metadata(BackendKind.CUDA, "8.0", "9.0a"),
    "torch29-cxx98-cu128-x86_64-linux": metadata(BackendKind.CUDA, "8.0"),
    "torch-stable-abi211-cpu-aarch64-darwin": metadata(BackendKind.CPU),
    "tvm-ffi01-cpu-x86_64-windows": None,
    "a-folder": None,
    "torch210-cu128-x86_64": None,
}


def test_every_build_has_a_row_sorted_by_backend_and_what_is_no_build_has_none() -> None:
    assert compatibility(BUILDS) == (
        Row("CPU", "torch 2.11 and newer", "macOS aarch64", (), "torch-stable-abi211-cpu-aarch64-darwin"),
        Row("CPU", "tvm-ffi 0.1", "Windows x86_64", (), "tvm-ffi01-cpu-x86_64-windows"),
        Row("CUDA", "any torch", "any", (), "torch-cuda"),
        Row("CUDA 12.8", "torch 2.9 (C++98 ABI)", "Linux x86_64", ("8.0",), "torch29-cxx98-cu128-x86_64-linux"),
        Row("CUDA 13.0", "torch 2.11", "Linux x86_64", ("8.0", "9.0a"), "torch211-cxx11-cu130-x86_64-linux"),
        Row("universal", "any torch", "any", (), "torch-universal"),
    )


def test_the_order_in_which_builds_are_listed_does_not_matter() -> None:
    some = list(BUILDS.items())[:4]
    assert len({compatibility(dict(order)) for order in permutations(some)}) == 1


def test_no_builds_are_no_rows() -> None:
    assert compatibility({}) == ()
