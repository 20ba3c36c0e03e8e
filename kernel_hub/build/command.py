"""The argument vectors that compile and link a build. Pure; never a shell.

Repository format, section (e), "Build behaviour a compatible builder must keep": the defines that sources rely on, the
C++ standard by torch release, the limited API of Python 3.9, no process-unique symbols, no run path. Everything else is
there to make the output depend on nothing but the sources: hidden symbols, no build paths, no debugging sections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from packaging.version import Version

from kernel_hub.build import rocm
from kernel_hub.build.cuda import CUDA_SUFFIX, clang_options, device_options, for_host
from kernel_hub.build.machine import CudaToolkit, TorchSdk
from kernel_hub.build.matrix import NativeJob
from kernel_hub.build.recipe import Component, NoarchFramework
from kernel_hub.build.rocm import HIP_SUFFIXES
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi

LIMITED_API = "0x03090000"
MODULE_DEFINE = "TORCH_EXTENSION_NAME"
TVM_MODULE_DEFINE = "TVM_FFI_EXTENSION_NAME"
_CXX20_SINCE = Version("2.12")
_DEFINES = {
    BackendKind.CPU: ("CPU_KERNEL",),
    BackendKind.CUDA: ("CUDA_KERNEL", "USE_CUDA=1"),
    BackendKind.ROCM: ("ROCM_KERNEL", "USE_ROCM=1"),
    BackendKind.METAL: ("METAL_KERNEL",),
    BackendKind.XPU: ("XPU_KERNEL", "USE_XPU"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a build's inputs and outputs lie.

    Attributes:
        folder: The kernel's folder; compilers run in it.
        generated: The generated headers.
        objects: Where object files go.
        library: The native module to make.
    """

    folder: Path
    generated: Path
    objects: Path
    library: Path


@dataclass(frozen=True, slots=True)
class Floor:
    """What a link uses so that its result runs on older systems (see `kernel_hub.build.floor`).

    Attributes:
        archive: Code for what older systems' libraries lack.
        stubs: Libraries to link with in place of the machine's own, in order.
        tail: What follows them, such as the part of the C library that is always linked in.
    """

    archive: Path
    stubs: tuple[Path, ...]
    tail: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One program run.

    Attributes:
        name: For progress and the log's name.
        argv: The argument vector.
        folder: Where it runs.
        output: The file it makes.
        depfile: Where it lists the headers it read; None if it does not.
        launcher: What is put before the arguments to run them; the output does not depend on it.
    """

    name: str
    argv: tuple[str, ...]
    folder: Path
    output: Path
    depfile: Path | None = None
    launcher: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """All that is run."""
        return self.launcher + self.argv


def compile_steps(
    job: NativeJob,
    module_id: str,
    layout: Layout,
    compiler: Path,
    python_include: Path | None,
    *,
    launcher: tuple[str, ...] = (),
) -> tuple[Step, ...]:
    """One step for each source of a job, in the recipe's order; headers among the sources are left out.

    Args:
        job: What is built.
        module_id: The name of the native module and operator namespace.
        layout: Where things lie.
        compiler: The C++ compiler.
        python_include: Where Python.h lies; None if the framework does without.
        launcher: What the C++ compiler, and only that, is run through.
    """
    flags = _Flags(job, module_id, layout, python_include)
    steps = []
    for component in (_binding(job), *job.components):
        for source in component.src:
            suffix = Path(source).suffix
            output = layout.objects / component.name / f"{source}.o"
            depfile = output.with_name(f"{output.name}.d")
            files = ("-c", source, "-o", str(output), "-MD", "-MF", str(depfile))
            includes = [f"-I{folder}" for folder in component.include]
            libraries = [folder for library in job.headers_of(component) for folder in library.includes]
            includes += [part for folder in libraries for part in ("-isystem", str(folder))]
            through: tuple[str, ...] = ()
            if suffix in _CXX_SUFFIXES:
                through = launcher
                argv = (str(compiler), *files, *includes, *flags.common, *flags.host, *component.cxx_flags)
            elif suffix == CUDA_SUFFIX and job.toolkit is not None:
                argv = _cuda_arguments(job, job.toolkit, component, source, (*files, *includes), flags, compiler)
            elif suffix in HIP_SUFFIXES and job.rocm is not None:
                argv = (
                    str(job.rocm.hipcc), *rocm.device_options(job.archs_of(component)), *files, *includes,
                    *flags.common, *flags.clang, *component.device_flags,
                )  # fmt: skip
            else:
                continue
            name = "binding" if component.name == _BINDING else component.name
            steps.append(Step(f"{name}: {source}", argv, layout.folder, output, depfile, through))
    return tuple(steps)


def _cuda_arguments(
    job: NativeJob,
    toolkit: CudaToolkit,
    component: Component,
    source: str,
    paths: Sequence[str],
    flags: _Flags,
    compiler: Path,
) -> tuple[str, ...]:
    archs = job.archs_of(component)
    if toolkit.clang_headers is not None:
        gcc = compiler.parent.parent
        device = clang_options(toolkit.root, toolkit.clang_headers, gcc, job.label.cpu, archs)
        return (
            str(toolkit.nvcc), "clang", *device, *paths, *flags.common, *flags.clang, *component.device_flags,
        )  # fmt: skip
    return (
        str(toolkit.nvcc), *paths, *flags.common, *for_host(flags.host), *device_options(compiler, source, archs),
        *component.device_flags,
    )  # fmt: skip


def framework_libraries(job: NativeJob) -> tuple[str, ...]:
    """The framework's libraries that a job's native module names, without `lib` and `.so`."""
    match job.label.framework:
        case TorchStableAbi():
            return "torch", "torch_cpu"
        case Torch():
            return "torch", "torch_cpu", "c10"
        case TvmFfi():
            return ("tvm_ffi",)


def link_step(
    job: NativeJob, layout: Layout, objects: Sequence[Path], compiler: Path, floor: Floor, libraries: Path
) -> Step:
    """The step that links a job's objects into its native module.

    Args:
        job: What is built.
        layout: Where things lie.
        objects: What is linked.
        compiler: The C++ compiler.
        floor: What is linked with in place of the machine's own libraries.
        libraries: Where the framework's libraries lie.
    """
    offered = [f"-l{name}" for name in framework_libraries(job)]
    device: tuple[str, ...] = ()
    if job.toolkit is not None:
        device = (f"-L{job.toolkit.libraries}", "-lcudart")
    elif job.rocm is not None:
        device = (f"-L{job.rocm.libraries}", "-lamdhip64")
    argv = (
        str(compiler), "-shared", "-nodefaultlibs", "-o", str(layout.library),
        *map(str, objects), str(floor.archive), f"-Wl,--exclude-libs,{floor.archive.name}",
        # Lazy binding, so that a build can be imported where its device's libraries are absent; older distributions'
        # compilers differ in this default and in those that follow.
        "-Wl,-z,lazy", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,--build-id=sha1", "-Wl,--hash-style=gnu",
        # Torch's libraries carry newer parts of the C++ library and offer them to everyone. Asked last, they can't be
        # where a build finds what the floor lacks.
        "-Wl,--gc-sections", "-Wl,--as-needed", "-lstdc++", *map(str, floor.stubs), *map(str, floor.tail),
        "-lgcc_s", "-lgcc",
        # They are loaded without offering their symbols to later libraries, so the module has to name them even where
        # a linker would find nothing that needs them.
        f"-L{libraries}", "-Wl,--no-as-needed", *offered, *device,
    )  # fmt: skip
    return Step("link", argv, layout.folder, layout.library)


_CXX_SUFFIXES = frozenset({".cc", ".cpp", ".cxx"})
# No component of a recipe can be called so.
_BINDING = "-"


def _binding(job: NativeJob) -> Component:
    """The framework's own sources as a component."""
    framework = job.recipe.framework
    if isinstance(framework, NoarchFramework):
        return Component(_BINDING, job.backend, (), ())
    return Component(_BINDING, job.backend, (), framework.src, framework.include, framework.cxx_flags)


class _Flags:
    """The flags that all sources of a job share.

    Attributes:
        common: Those that every compiler understands.
        host: Those that the C++ compiler understands, also behind nvcc.
        clang: What of them clang understands, which is behind hipcc.
    """

    def __init__(self, job: NativeJob, module_id: str, layout: Layout, python_include: Path | None) -> None:
        system = [*job.sdk.includes, *([python_include] if python_include else [])]
        system += [toolkit.root / "include" for toolkit in (job.toolkit, job.rocm) if toolkit is not None]
        self.common = (
            *dialect_flags(job, module_id), f"-I{layout.generated}",
            *(part for folder in system for part in ("-isystem", str(folder))),
        )  # fmt: skip
        self.host = (*host_flags(), *_prefix_maps(job, layout))
        # Clang makes no process-unique symbols and knows no option against them.
        self.clang = tuple(flag for flag in self.host if flag != "-fno-gnu-unique")


def dialect_flags(job: NativeJob, module_id: str) -> tuple[str, ...]:
    """The flags that all of a job's compilers get, but for folders."""
    standard, defines = _dialect(job, module_id)
    return f"-std={standard}", "-O3", "-DNDEBUG", *(f"-D{define}" for define in defines)


def host_flags() -> tuple[str, ...]:
    """The flags that the C++ compiler gets for every source, but for folders."""
    return "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", "-fno-gnu-unique", "-fno-ident"


def _dialect(job: NativeJob, module_id: str) -> tuple[str, list[str]]:
    """The C++ standard and the defines that a job's sources are written for."""
    own = list(_DEFINES[job.backend])
    framework = job.label.framework
    match framework:
        case TvmFfi():
            return "c++17", [f"{TVM_MODULE_DEFINE}={module_id}", *own]
        case TorchStableAbi(version=release):
            more = f"TORCH_TARGET_VERSION={target_version(release)}"
        case Torch(version=release):
            abi = isinstance(job.sdk, TorchSdk) and job.sdk.cxx11_abi
            more = f"_GLIBCXX_USE_CXX11_ABI={int(bool(abi))}"
        case _:
            assert_never(framework)
    standard = "c++20" if release >= _CXX20_SINCE else "c++17"
    return standard, [f"{MODULE_DEFINE}={module_id}", *own, f"Py_LIMITED_API={LIMITED_API}", more]


def target_version(abi: Version) -> str:
    """TORCH_TARGET_VERSION: the major version in the highest byte, the minor one in the next."""
    return f"0x{abi.major:02x}{abi.minor:02x}000000000000"


def _prefix_maps(job: NativeJob, layout: Layout) -> list[str]:
    """Options that keep this machine's folders out of the output (`__FILE__` in torch's checks would bring them in)."""
    named = [(layout.folder, "."), (job.sdk.root, job.sdk.root.name), (layout.generated, "generated")]
    named += [(library.root, library.name) for library in job.headers]
    # The option splits at the first '='; a folder with one in its name can't be mapped, and needs not be where sources
    # are named relative to it.
    return [f"-ffile-prefix-map={folder}={name}" for folder, name in named if "=" not in str(folder)]
