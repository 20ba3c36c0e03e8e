"""What a build machine offers, as a value: compilers, torch's headers, CUDA toolkits.

Found by `kernel_hub.build.toolchain`, handed to `kernel_hub.build.matrix` and `kernel_hub.build.command`, which therefore
are tested for machines that are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that understands GCC's options.

    Attributes:
        path: The program.
        version: Its version as it prints it.
    """

    path: Path
    version: str


@dataclass(frozen=True, slots=True)
class CompilerCache:
    """A program that runs a C++ compiler only if it has not compiled the same before (ccache).

    Attributes:
        path: The program, which is given the compiler's whole command.
        environment: The variables it reads.
    """

    path: Path
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TorchSdk:
    """An installed torch, as far as building against it goes.

    Attributes:
        version: Its release line, major.minor.
        root: The folder of the package.
        cuda: The CUDA release it was built for; None for a build without CUDA.
        cxx11_abi: Whether it uses libstdc++'s newer string layout; None where that question does not arise.
    """

    version: Version
    root: Path
    cuda: Version | None = None
    cxx11_abi: bool | None = True

    @property
    def includes(self) -> tuple[Path, ...]:
        """Where its headers lie."""
        base = self.root / "include"
        return base, base / "torch" / "csrc" / "api" / "include"

    @property
    def libraries(self) -> Path:
        """Where its shared libraries lie."""
        return self.root / "lib"


@dataclass(frozen=True, slots=True)
class TvmFfiSdk:
    """An installed tvm-ffi, as far as building against it goes.

    Attributes:
        version: Its release line, major.minor.
        root: The folder of the package.
    """

    version: Version
    root: Path

    @property
    def includes(self) -> tuple[Path, ...]:
        """Where its headers lie."""
        return (self.root / "include",)

    @property
    def libraries(self) -> Path:
        """Where its shared library lies."""
        return self.root / "lib"


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """A CUDA toolkit.

    Attributes:
        version: Its release, major.minor.
        root: Its folder, with `include/` and the libraries.
        nvcc: Its compiler, which with `clang_headers` is not NVIDIA's.
        libraries: The folder that holds `libcudart.so`.
        clang_headers: Clang's own folder of headers, where clang stands in for nvcc; None for NVIDIA's own compiler.
    """

    version: Version
    root: Path
    nvcc: Path
    libraries: Path
    clang_headers: Path | None = None


@dataclass(frozen=True, slots=True)
class RocmToolkit:
    """An installation of ROCm.

    Attributes:
        version: Its release, major.minor.
        root: Its folder, with `include/`.
        hipcc: Its compiler.
        libraries: The folder that holds `libamdhip64.so`.
    """

    version: Version
    root: Path
    hipcc: Path
    libraries: Path


@dataclass(frozen=True, slots=True)
class HeaderLibrary:
    """A library that is headers alone, such as CUTLASS.

    Attributes:
        name: As a component's `depends` names it, e.g. "cutlass_3_8".
        version: Its release.
        root: Its folder.
        includes: The folders to search for headers.
    """

    name: str
    version: str
    root: Path
    includes: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A build machine.

    Attributes:
        cpu: As labels write it.
        os: As labels write it.
        compiler: The C++ compiler.
        torch: The torch to build against.
        tvm_ffi: The tvm-ffi to build against.
        python_include: Where Python.h lies.
        cuda: CUDA toolkits, oldest first.
        rocm: The installation of ROCm.
        headers: Libraries of headers, one of each name.
        cross: C++ compilers for other processors, by the processor.
        compiler_cache: What C++ sources are compiled through; None to compile them at once.
        absent: Why something is missing, by its name: "compiler", "torch", "tvm-ffi", "python", "cuda", "rocm".
        remedies: What to do about it, by the same names.
    """

    cpu: str
    os: str
    compiler: Compiler | None = None
    torch: TorchSdk | None = None
    tvm_ffi: TvmFfiSdk | None = None
    python_include: Path | None = None
    cuda: tuple[CudaToolkit, ...] = ()
    rocm: RocmToolkit | None = None
    headers: tuple[HeaderLibrary, ...] = ()
    cross: Mapping[str, Compiler] = field(default_factory=dict)
    compiler_cache: CompilerCache | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    remedies: Mapping[str, str] = field(default_factory=dict)
