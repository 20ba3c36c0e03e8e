"""Fetching CUDA toolkits: which, from what, and what is left when it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.build.matrix import FETCHABLE_HEADERS
from kernel_hub.build.toolkits import (
    fetch_toolkit,
    fetched_clang,
    fetched_homes,
    known_pins,
    requirements,
    wanted_toolkits,
)
from kernel_hub.build.vendors import find_cuda
from kernel_hub.errors import InvalidDocumentError, ToolchainError
from kernel_hub.settings import BuildSettings
from tests.unit.build.machines import machine

PINS = {"13.2": {"nvidia-cuda-nvcc==13.2.86": {"x86_64": "aa", "aarch64": "bb"}}}
RELEASE = "13.2"


def toolkit_in(stage: Path) -> None:
    """What NVIDIA's packages put into a folder, as far as it matters."""
    home = stage / "nvidia" / "cu13"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    (home / "lib").mkdir()
    (home / "lib" / "libcudart.so.13").touch()


def installing(asked: list[str], make: Callable[[Path], None] = toolkit_in) -> Callable[[str, Path], None]:
    def install(text: str, folder: Path) -> None:
        asked.append(text)
        make(folder)

    return install


def test_a_toolkit_is_installed_once_with_the_link_that_linkers_need(tmp_path: Path) -> None:
    asked: list[str] = []
    home = fetch_toolkit(RELEASE, tmp_path, pins=PINS, install=installing(asked))
    assert home == tmp_path / "cuda-13.2" / "nvidia" / "cu13"
    assert (home / "lib" / "libcudart.so").readlink() == Path("libcudart.so.13")
    assert fetch_toolkit(RELEASE, tmp_path, pins=PINS, install=installing(asked), offline=True) == home
    assert asked == ["nvidia-cuda-nvcc==13.2.86 --hash=sha256:aa --hash=sha256:bb\n"]
    assert fetched_homes(tmp_path) == (home,)


def test_a_failed_install_leaves_nothing_that_looks_like_a_toolkit(tmp_path: Path) -> None:
    def half(stage: Path) -> None:
        toolkit_in(stage)
        raise ToolchainError("the network went away")

    with pytest.raises(ToolchainError, match="the network went away"):
        fetch_toolkit(RELEASE, tmp_path, pins=PINS, install=installing([], half))
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_packages_without_a_compiler_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="no CUDA compiler"):
        fetch_toolkit(RELEASE, tmp_path, pins=PINS, install=installing([], lambda stage: None))
    assert not (tmp_path / "cuda-13.2").exists()


def test_an_unknown_release_and_an_offline_machine_are_refused_before_anything_is_asked(tmp_path: Path) -> None:
    asked: list[str] = []
    with pytest.raises(ToolchainError, match=r"CUDA 12\.6 cannot be fetched") as caught:
        fetch_toolkit("12.6", tmp_path, pins=PINS, install=installing(asked))
    assert "what can be: 13.2" in caught.value.hint()
    with pytest.raises(ToolchainError, match="offline by its settings"):
        fetch_toolkit(RELEASE, tmp_path, pins=PINS, install=installing(asked), offline=True)
    assert asked == []


def test_every_known_release_pins_whole_compilers_for_both_processors() -> None:
    names = {"nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-cuda-runtime", "nvidia-nvvm"}
    for release, packages in known_pins().items():
        if release.startswith(("cutlass_", "12.")):
            continue
        assert {name.partition("==")[0] for name in packages} == names, release
        for digests in packages.values():
            assert sorted(digests) == ["aarch64", "x86_64"]
            assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests.values())
    assert "--hash=sha256:" in requirements(known_pins()["13.0"])


@pytest.mark.parametrize(
    ("written", "labels", "here", "wanted"),
    [
        ([""], [], [], ["13.0", "13.2"]),
        ([""], [], ["13.0"], ["13.2"]),
        ([""], ["torch-stable-abi211-cu134-x86_64-linux", "torch-cpu"], ["13.0"], ["13.4"]),
        (["13.5", "13.1"], [], [], ["13.1", "13.5"]),
        (["13.0"], [], ["13.0"], []),
        (["cutlass_3_8", "13.2"], [], ["13.0"], ["13.2", "cutlass_3_8"]),
    ],
)
def test_what_is_wanted_and_not_here_is_fetched(
    written: list[str], labels: list[str], here: list[str], wanted: list[str]
) -> None:
    assert list(wanted_toolkits(written, labels, machine(cuda=tuple(here)))) == wanted


def test_every_cutlass_that_a_refusal_offers_is_pinned() -> None:
    pinned = {name: packages for name, packages in known_pins().items() if name.startswith("cutlass_")}
    assert tuple(pinned) == FETCHABLE_HEADERS
    for name, packages in pinned.items():
        [(requirement, digests)] = packages.items()
        assert requirement.startswith(f"nvidia-cutlass=={name.removeprefix('cutlass_').replace('_', '.')}.")
        assert re.fullmatch(r"[0-9a-f]{64}", digests["any"])


def test_what_clang_needs_of_cuda_12_is_merged_and_kept_apart_from_toolkits_with_nvcc(tmp_path: Path) -> None:
    def packages(stage: Path) -> None:
        files = (
            "ziglang/zig", "clangd/data/lib/clang/22/include/x.h", "nvidia/cuda_nvcc/bin/ptxas",
            "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", "nvidia/cuda_runtime/include/cuda.h",
            "nvidia/cuda_runtime/lib/libcudart.so.12", "nvidia/cuda_cccl/include/cub.h", "nvidia/cu13/bin/fatbinary",
            "nvidia/cu13/bin/nvcc",
        )  # fmt: skip
        for name in files:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).touch()

    home = fetch_toolkit("12.6", tmp_path, pins={"12.6": {}}, install=installing([], packages))
    place = tmp_path / "clang-cuda-12.6"
    assert home == place / "toolkit"
    assert fetched_clang(tmp_path) == (("12.6", home, place / "ziglang" / "zig", place / "clangd/data/lib/clang/22"),)
    assert fetched_homes(tmp_path) == ()
    there = {path.relative_to(home).as_posix() for path in home.rglob("*") if not path.is_dir()}
    assert there == {
        "bin/ptxas", "bin/fatbinary", "nvvm/libdevice/libdevice.10.bc", "include/cuda.h", "include/cub.h",
        "include/curand_mtgp32_kernel.h", "lib/libcudart.so.12", "lib/libcudart.so",
    }  # fmt: skip
    found = [toolkit for toolkit in find_cuda(BuildSettings("", (), tmp_path)) if toolkit.clang_headers]
    assert [(str(toolkit.version), toolkit.root) for toolkit in found] == [("12.6", home)]


@pytest.mark.parametrize("text", ["registry/flash-attn", "13", "13.2.2", "cu132", "13.12"])
def test_what_is_not_a_release_is_refused(text: str) -> None:
    with pytest.raises(InvalidDocumentError, match="is not a release of CUDA"):
        wanted_toolkits([text], [], machine())
