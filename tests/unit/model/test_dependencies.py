"""The curated Python dependencies, the same as the ecosystem's, and whether they are installed."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from kernel_hub.errors import InvalidDocumentError, MissingDependencyError
from kernel_hub.importer import check_dependencies, missing_dependencies
from kernel_hub.importer.dependencies import is_importable
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.dependencies import python_dependency
from kernel_hub.model.metadata import Metadata


def metadata(*depends: str, backend: BackendKind = BackendKind.CUDA, **keys: object) -> Metadata:
    document = {
        "name": "axpy",
        "id": "_axpy_cuda_0123abc",
        "version": 1,
        "license": "MIT",
        "backend": {"type": backend.value},
        "python-depends": list(depends),
    }
    return Metadata.parse(json.dumps(document | keys).encode())


def nothing(_module: str) -> bool:
    return False


def parts(name: str, backend: BackendKind) -> tuple[str, str | None] | None:
    found = python_dependency(name, backend)
    return found and (found.distribution, found.module)


def peers_parts(entry: dict[str, list[dict[str, str]]]) -> tuple[str, str | None]:
    (package,) = entry["python"]
    return package["pkg"], package.get("import")


def test_every_dependency_of_the_ecosystems_list_is_known_and_no_other_is() -> None:
    peers = json.loads(files("kernels").joinpath("python_depends.json").read_text())
    assert set(peers) <= {"general", "backends"}
    for name, entry in peers["general"].items():
        for backend in BackendKind:
            assert parts(name, backend) == peers_parts(entry)
    for backend_name, entries in peers["backends"].items():
        for name, entry in entries.items():
            assert parts(name, BackendKind(backend_name)) == peers_parts(entry)
            others = [backend for backend in BackendKind if backend.value != backend_name]
            assert not [backend for backend in others if python_dependency(name, backend)]


def test_all_missing_dependencies_are_one_error_with_one_command() -> None:
    with pytest.raises(MissingDependencyError) as caught:
        check_dependencies(metadata("einops", "tvm-ffi", "nvidia-cutlass-dsl"), importable=nothing)
    assert caught.value.distributions == ("einops", "apache-tvm-ffi", "nvidia-cutlass-dsl")
    assert caught.value.hint() == "pip install einops apache-tvm-ffi nvidia-cutlass-dsl"
    assert "axpy" in str(caught.value)


def test_only_what_is_missing_is_named() -> None:
    missing = missing_dependencies(metadata("einops", "helion", "einops"), importable=lambda module: module != "helion")
    assert [dependency.name for dependency in missing] == ["helion"]


def test_a_repeated_dependency_is_named_once() -> None:
    assert len(missing_dependencies(metadata("einops", "einops"), importable=nothing)) == 1


def test_a_dependency_without_a_module_cannot_be_missing() -> None:
    assert missing_dependencies(metadata("onednn", backend=BackendKind.XPU), importable=nothing) == ()


def test_nothing_named_is_nothing_missing() -> None:
    check_dependencies(metadata(), importable=nothing)


@pytest.mark.parametrize(
    ("name", "backend"), [("numpy", BackendKind.CUDA), ("nki", BackendKind.CUDA), ("", BackendKind.CPU)]
)
def test_a_name_outside_the_list_is_a_fault_of_the_metadata(name: str, backend: BackendKind) -> None:
    with pytest.raises(InvalidDocumentError, match="axpy") as caught:
        check_dependencies(metadata("einops", name, backend=backend), importable=lambda module: True)
    assert caught.value.location == "python-depends[1]"
    assert repr(name) in caught.value.problem


def test_an_unknown_name_says_which_client_the_build_asks_for() -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        check_dependencies(metadata("flashy", **{"kernels-minver": "0.20.0"}))
    assert "kernels >= 0.20.0" in caught.value.hint()


@pytest.mark.parametrize(
    ("module", "there"), [("json", True), ("no_such_module_anywhere", False), ("", False), ("..x", False)]
)
def test_a_module_is_looked_for_without_importing_it(module: str, there: bool) -> None:
    assert is_importable(module) is there


def test_a_loaded_module_without_a_spec_counts_as_there() -> None:
    import sys
    from types import ModuleType

    sys.modules["kernel_without_spec"] = ModuleType("kernel_without_spec")
    try:
        assert is_importable("kernel_without_spec")
    finally:
        del sys.modules["kernel_without_spec"]
