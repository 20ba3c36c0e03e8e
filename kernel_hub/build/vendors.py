"""Finding vendors' toolkits on the build machine: CUDA, ROCm, CUTLASS; and asking programs what they are.

Leaves out: installing any (see `kernel_hub.build.toolkits`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from packaging.version import Version

from kernel_hub.build.machine import CudaToolkit, HeaderLibrary, RocmToolkit
from kernel_hub.build.toolkits import fetched_clang, fetched_homes
from kernel_hub.errors import ToolchainError
from kernel_hub.settings import BuildSettings

_CUDA_RELEASE = re.compile(r"release (\d+)\.(\d+)")
_HIP_RELEASE = re.compile(r"HIP version: (\d+)\.(\d+)")
_CUTLASS_NUMBER = re.compile(r"^#define CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)
_NVCC_TOP = re.compile(r"^#\$ TOP=(.+)$", re.MULTILINE)
_PROBE_TIMEOUT_S = 60


def usual_cuda_homes() -> tuple[Path, ...]:
    """Where CUDA toolkits usually are on this machine."""
    found = []
    nvcc = shutil.which("nvcc")
    if nvcc:
        # It may be a script that calls the real one, which alone knows where it is.
        top = _NVCC_TOP.search(ask((nvcc, "--dryrun", "-E", "-x", "cu", os.devnull), errors=True))
        found.append(Path(top[1]).resolve() if top else Path(nvcc).resolve().parent.parent)
    local = Path("/usr/local")
    found += sorted(path.resolve() for path in local.glob("cuda-*") if (path / "bin" / "nvcc").is_file())
    return tuple(dict.fromkeys(found))


def find_cuda(said: BuildSettings) -> tuple[CudaToolkit, ...]:
    fetched = fetched_homes(said.toolkits)
    if said.cuda_homes:
        return _with_clang(find_toolkits((*said.cuda_homes, *fetched)), said)
    try:
        return _with_clang(find_toolkits((*usual_cuda_homes(), *fetched)), said)
    except ToolchainError:
        # What nobody named may be incomplete; whoever fetched a toolkit builds with that.
        if not fetched and not fetched_clang(said.toolkits):
            raise
        return _with_clang(find_toolkits(fetched) if fetched else (), said)


def _with_clang(found: tuple[CudaToolkit, ...], said: BuildSettings) -> tuple[CudaToolkit, ...]:
    """Toolkits, and those that were fetched for clang of releases that are not among them."""
    by_release = {toolkit.version: toolkit for toolkit in found}
    for release, root, program, headers in fetched_clang(said.toolkits):
        toolkit = CudaToolkit(Version(release), root, program, root / "lib", headers)
        by_release.setdefault(toolkit.version, toolkit)
    return tuple(by_release[version] for version in sorted(by_release))


def find_toolkits(homes: Iterable[Path]) -> tuple[CudaToolkit, ...]:
    """The CUDA toolkits in folders, oldest first, one of each release.

    Raises:
        ToolchainError: If there is none, or one lacks a part that building needs.
    """
    found: dict[Version, CudaToolkit] = {}
    for home in homes:
        nvcc = home / "bin" / "nvcc"
        release = _CUDA_RELEASE.search(ask((str(nvcc), "--version")))
        if release is None:
            raise ToolchainError(f"{nvcc} does not state its release")
        folders = [home / "lib64", home / "lib", *sorted(home.glob("targets/*/lib"))]
        libraries = next((folder for folder in folders if (folder / "libcudart.so").exists()), None)
        if libraries is None:
            raise ToolchainError(
                f"the CUDA toolkit in {home} has no libcudart.so",
                hint="install its runtime library, or link lib/libcudart.so to the numbered file beside it",
            )
        version = Version(f"{release[1]}.{release[2]}")
        found.setdefault(version, CudaToolkit(version, home, nvcc, libraries))
    if not found:
        raise ToolchainError(
            "there is no CUDA toolkit here",
            hint="install one and name its folder in CUDA_HOME, or fetch one: kernel-hub build --fetch-toolkit",
        )
    return tuple(found[version] for version in sorted(found))


def find_rocm(named: Path | None) -> RocmToolkit:
    """The installation of ROCm: the one that is named, else the one of the `hipcc` on the search path, else the usual one.

    Raises:
        ToolchainError: If there is none, or it lacks a part that building needs.
    """
    program = shutil.which("hipcc")
    root = named or (Path(program).resolve().parent.parent if program else Path("/opt/rocm"))
    hipcc = root / "bin" / "hipcc"
    if not hipcc.is_file():
        raise ToolchainError(
            "there is no hipcc of ROCm here" if named is None else f"ROCM_PATH names {root}, which holds no bin/hipcc",
            hint="install ROCm and name its folder in ROCM_PATH; there is none among Python packages",
        )
    release = _HIP_RELEASE.search(ask((str(hipcc), "--version")))
    if release is None:
        raise ToolchainError(f"{hipcc} does not state its release")
    if not (root / "lib" / "libamdhip64.so").exists():
        raise ToolchainError(f"the ROCm in {root} has no lib/libamdhip64.so", hint="install its HIP runtime")
    return RocmToolkit(Version(f"{release[1]}.{release[2]}"), root, hipcc, root / "lib")


def find_cutlass(homes: Iterable[Path]) -> tuple[HeaderLibrary, ...]:
    """The copies of CUTLASS in folders, one of each release line.

    Raises:
        ToolchainError: If a folder holds none.
    """
    found: dict[str, HeaderLibrary] = {}
    for home in homes:
        try:
            text = (home / "include" / "cutlass" / "version.h").read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ToolchainError(f"{home} is no copy of CUTLASS: {error}") from error
        numbers = dict(_CUTLASS_NUMBER.findall(text))
        if not {"MAJOR", "MINOR", "PATCH"} <= set(numbers):
            raise ToolchainError(f"the CUTLASS in {home} does not state its release")
        includes = tuple(path for path in (home / "include", home / "tools" / "util" / "include") if path.is_dir())
        version = ".".join(numbers[key] for key in ("MAJOR", "MINOR", "PATCH"))
        name = f"cutlass_{numbers['MAJOR']}_{numbers['MINOR']}"
        found.setdefault(name, HeaderLibrary(name, version, home, includes))
    return tuple(found[name] for name in sorted(found))


def ask(argv: tuple[str, ...], *, errors: bool = False) -> str:
    """What a program says, or with `errors` what it says on its error output."""
    try:
        answer = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=_PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise ToolchainError(f"{argv[0]} does not answer: {error}") from error
    return answer.stderr if errors else answer.stdout
