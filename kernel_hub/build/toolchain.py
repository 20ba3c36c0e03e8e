"""Finding what the build machine offers: the compiler, torch's headers without importing torch, Python's headers.

Leaves out: installing anything.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from packaging.version import InvalidVersion, Version

from kernel_hub.build.machine import (
    Compiler,
    CompilerCache,
    Machine,
    TorchSdk,
    TvmFfiSdk,
)
from kernel_hub.build.toolkits import fetched_cutlass
from kernel_hub.build.vendors import ask, find_cuda, find_cutlass, find_rocm
from kernel_hub.errors import ToolchainError
from kernel_hub.settings import BuildSettings, load_build_settings

_CPUS = {"amd64": "x86_64", "arm64": "aarch64"}
_TORCH_VERSION = re.compile(r"^__version__ = '([^']+)'", re.MULTILINE)
_TORCH_CUDA = re.compile(r"^cuda: [^=]*= (?:'([^']+)'|None)", re.MULTILINE)
_CXX11_ABI = re.compile(r"_GLIBCXX_USE_CXX11_ABI=([01])")

_Found = TypeVar("_Found")


def find_machine(settings: BuildSettings | None = None) -> Machine:
    """Look around on this machine. What is missing is a fact of the value, not an error.

    The C++ compiler is the one that `CXX` names, else the `g++` on the search path. CUDA toolkits are those that
    `CUDA_HOME` names, else the one of the `nvcc` on the search path and those in the usual places; and those that were
    fetched. Of two toolkits of one release the first in that order counts.

    Args:
        settings: What the environment says; by default that of this process.
    """
    said = settings or load_build_settings()
    absent: dict[str, str] = {}
    remedies: dict[str, str] = {}
    cpu = platform.machine().lower()

    def attempt(name: str, find: Callable[[], _Found]) -> _Found | None:
        try:
            return find()
        except ToolchainError as error:
            absent[name] = error.message
            remedies[name] = error.hint()
            return None

    return Machine(
        cpu=_CPUS.get(cpu, cpu),
        os=platform.system().lower(),
        compiler=attempt("compiler", lambda: _find_compiler(said.compiler)),
        torch=attempt("torch", find_torch),
        tvm_ffi=attempt("tvm-ffi", find_tvm_ffi),
        python_include=attempt("python", _find_python),
        cuda=attempt("cuda", lambda: find_cuda(said)) or (),
        rocm=attempt("rocm", lambda: find_rocm(said.rocm_home)),
        headers=attempt("headers", lambda: find_cutlass((*said.cutlass_homes, *fetched_cutlass(said.toolkits)))) or (),
        cross=_find_cross(_CPUS.get(cpu, cpu)),
        compiler_cache=_find_compiler_cache(said),
        absent=absent,
        remedies=remedies,
    )


def library_finder(compiler: Compiler) -> Callable[[str], Path]:
    """A function from a library's file name to the file that the compiler would link."""

    def find(name: str) -> Path:
        answer = Path(ask((str(compiler.path), f"-print-file-name={name}")).strip())
        # A compiler that does not find the file answers with the name alone.
        if not answer.is_absolute() or not answer.is_file():
            raise ToolchainError(
                f"{compiler.path} does not find {name}", hint="install the C library's development files (libc6-dev)"
            )
        return answer.resolve()

    return find


def child_environment(folder: Path, *programs: Path) -> dict[str, str]:
    """The environment of compilers: what they need, and nothing that would leak into their output.

    Args:
        folder: Where they may put temporary files.
        programs: Programs whose folders are searched first.
    """
    search = [str(program.parent) for program in programs]
    return {
        "PATH": os.pathsep.join(dict.fromkeys([*search, "/usr/local/bin", "/usr/bin", "/bin"])),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(folder),
        # __DATE__ and __TIME__ follow it.
        "SOURCE_DATE_EPOCH": "0",
    }


def _find_compiler(named: str) -> Compiler:
    found = shutil.which(named or "g++")
    if found is None and named:
        raise ToolchainError(
            f"CXX names {named!r}, which is no program here",
            hint="name one program, without arguments; flags belong into the recipe",
        )
    if found is None:
        raise ToolchainError("there is no C++ compiler g++", hint="install g++ (apt install g++)")
    return _compiler_at(Path(found))


def _compiler_at(found: Path) -> Compiler:
    # Resolving links would lose the name, by which some compilers know what they are.
    path = found.absolute()
    return Compiler(path, ask((str(path), "--version")).partition("\n")[0].strip())


def _find_cross(cpu: str) -> dict[str, Compiler]:
    """Compilers for other processors, by the names that distributions give them."""
    if platform.system() != "Linux":
        return {}
    found = {}
    for other in sorted({"aarch64", "x86_64"} - {cpu}):
        path = shutil.which(f"{other}-linux-gnu-g++")
        if path is not None:
            found[other] = _compiler_at(Path(path))
    return found


def _find_compiler_cache(said: BuildSettings) -> CompilerCache | None:
    """ccache, if it is on the search path."""
    found = shutil.which("ccache")
    if found is None:
        return None
    # A compiler is known by its content, as everywhere here; its date would differ between machines that share a cache.
    usual = {"CCACHE_DIR": str(said.toolkits.with_name("ccache")), "CCACHE_COMPILERCHECK": "content"}
    return CompilerCache(Path(found).absolute(), usual | dict(said.compiler_cache))


def find_torch() -> TorchSdk:
    """The torch that is installed here, found without importing it.

    Raises:
        ToolchainError: If there is none, or it can't be built with.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("torch is not installed", hint='pip install "kernel-hub[torch]"')
    root = Path(spec.submodule_search_locations[0])
    try:
        text = (root / "version.py").read_text("utf-8")
        config = (root / "share" / "cmake" / "Torch" / "TorchConfig.cmake").read_text("utf-8")
        found = _TORCH_VERSION.search(text)
        version = Version(found[1]) if found else None
    except (OSError, UnicodeDecodeError, InvalidVersion) as error:
        raise ToolchainError(f"the torch in {root} has no headers to build with: {error}") from error
    if version is None:
        raise ToolchainError(f"the torch in {root} does not state its version")
    cuda = _TORCH_CUDA.search(text)
    abi = _CXX11_ABI.search(config)
    return TorchSdk(
        version=Version(f"{version.major}.{version.minor}"),
        root=root,
        cuda=Version(cuda[1]) if cuda and cuda[1] else None,
        # Releases that no longer state it have the newer layout, where there are two at all.
        cxx11_abi=abi[1] == "1" if abi else True if platform.system() == "Linux" else None,
    )


def find_tvm_ffi() -> TvmFfiSdk:
    """The tvm-ffi that is installed here, found without importing it.

    Raises:
        ToolchainError: If there is none, or it does not state its version.
    """
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("tvm-ffi is not installed", hint="pip install apache-tvm-ffi")
    root = Path(spec.submodule_search_locations[0])
    try:
        version = Version(importlib.metadata.version("apache-tvm-ffi"))
    except (importlib.metadata.PackageNotFoundError, InvalidVersion) as error:
        raise ToolchainError(f"the tvm-ffi in {root} does not state its version") from error
    return TvmFfiSdk(Version(f"{version.major}.{version.minor}"), root)


def _find_python() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        raise ToolchainError(f"Python.h is not in {folder}", hint="install Python's development files (python3-dev)")
    return folder
