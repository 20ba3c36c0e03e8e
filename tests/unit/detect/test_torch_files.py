"""Torch's installed files: written as usual, written otherwise, and broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.detect import Probes, detect
from kernel_hub.model.backend import BackendKind


def torch_of(probes: Probes, folder: Path, files: dict[str, bytes]) -> Probes:
    """The same machine with a torch that holds these files."""
    for name, content in files.items():
        path = folder / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return replace(probes, find_module=lambda name: folder / "torch" if name == "torch" else None)


def test_a_version_file_that_computes_its_version_leaves_it_to_the_metadata(
    describe_machine: Callable[..., Probes],
) -> None:
    host = detect(describe_machine("h100", torch="computed", distributions={"torch": "2.12.1"}))
    assert str(host.torch) == "2.12.1"
    assert str(host.backend) == "CUDA 13.0"
    assert "metadata" in host.probes["torch"]


@pytest.mark.parametrize("torch", ["broken", "silent"])
def test_a_version_file_that_cannot_be_read_leaves_the_backend_unknown(
    torch: str, describe_machine: Callable[..., Probes]
) -> None:
    host = detect(describe_machine("h100", torch=torch, distributions={"torch": "2.13.0"}))
    assert str(host.torch) == "2.13.0"
    assert host.backend is None
    assert host.probes["backend"]


def test_without_version_file_and_metadata_torch_is_unknown_with_the_reason(
    describe_machine: Callable[..., Probes],
) -> None:
    host = detect(describe_machine("h100", torch="broken"))
    assert host.torch is None
    assert "SyntaxError" in host.probes["torch"]


def test_text_that_is_no_version_is_unknown_and_shown(describe_machine: Callable[..., Probes]) -> None:
    host = detect(describe_machine("h100", torch="not-a-version"))
    assert host.torch is None
    assert "main@{yesterday}" in host.probes["torch"]
    assert host.backend is not None
    assert (host.backend.kind, host.backend.version) == (BackendKind.CUDA, None)


@pytest.mark.parametrize(
    ("files", "expected", "how"),
    [
        ({"lib/libc10.so": b"\0_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIc\0"}, True, "symbols"),
        ({"lib/libc10.so": b"\0_ZN3c105ErrorC2ENS_14SourceLocationESs\0"}, False, "symbols"),
        ({"lib/libc10.so": b"\0_ZN3c105ErrorC1EPKcjS2_RKSsSt10shared_ptr\0"}, False, "symbols"),
        ({"share/cmake/Torch/TorchConfig.cmake": b"-D_GLIBCXX_USE_CXX11_ABI=0"}, False, "TorchConfig"),
        ({"share/cmake/Torch/TorchConfig.cmake": b"-D_GLIBCXX_USE_CXX11_ABI=1"}, True, "TorchConfig"),
        (
            {
                "lib/libc10.so": b"\0_ZN3c105ErrorC2ENS_14SourceLocationESs\0",
                "share/cmake/Torch/TorchConfig.cmake": b"-D_GLIBCXX_USE_CXX11_ABI=1",
            },
            False,
            "symbols",
        ),
        ({"lib/libc10.so": b"stripped"}, None, "neither"),
        ({}, None, "neither"),
    ],
)
def test_the_string_abi_comes_from_symbols_then_from_cmake(
    files: dict[str, bytes],
    expected: bool | None,
    how: str,
    describe_machine: Callable[..., Probes],
    tmp_path: Path,
) -> None:
    version = {"version.py": b"__version__ = '2.5.1'\ncuda = None\n"}
    host = detect(torch_of(describe_machine("h100"), tmp_path, version | files))
    assert host.cxx11_abi is expected
    assert how in host.probes["cxx11_abi"]


@pytest.mark.parametrize(("version", "expected"), [(b"2.6.0", None), (b"2.7.0", True), (b"3.0.0", True)])
def test_where_no_file_tells_the_string_abi_the_release_does_from_2_7_on(
    version: bytes, expected: bool | None, describe_machine: Callable[..., Probes], tmp_path: Path
) -> None:
    files = {"version.py": b"__version__ = '" + version + b"'\ncuda = None\n"}
    assert detect(torch_of(describe_machine("h100"), tmp_path, files)).cxx11_abi is expected


def test_the_string_abi_is_only_asked_on_linux(describe_machine: Callable[..., Probes]) -> None:
    assert detect(describe_machine("windows-cuda", torch="2.13.0-cu130")).cxx11_abi is None


def test_bytes_that_are_not_text_in_the_version_file_are_unknown(
    describe_machine: Callable[..., Probes], tmp_path: Path
) -> None:
    host = detect(torch_of(describe_machine("h100"), tmp_path, {"version.py": b"\xff\xfe\0__version__"}))
    assert host.torch is None
    assert host.backend is None


def test_a_torch_that_cannot_be_looked_for_is_not_called_absent(describe_machine: Callable[..., Probes]) -> None:
    def fail(name: str) -> Path | None:
        raise ValueError(f"{name}.__spec__ is None")

    host = detect(replace(describe_machine("h100"), find_module=fail))
    assert host.torch is None
    assert host.backend is None
    assert "torch.__spec__ is None" in host.probes["backend"]
