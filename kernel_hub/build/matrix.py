"""Recipes x machine -> jobs: which builds a kernel has here, and why it has not the others.

Pure. Labels follow the repository format, section (a): the stable ABI's number is the target that the recipe names, not
the torch of the build machine; a classic torch build is for exactly that torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import assert_never

from packaging.version import Version

from kernel_hub.build.cuda import CUDA_SUFFIX, chosen_archs, foreign_to_clang, listed_archs
from kernel_hub.build.jobs import Job, Matrix, NativeJob, NoarchJob, Omission
from kernel_hub.build.machine import HeaderLibrary, Machine, TorchSdk, TvmFfiSdk
from kernel_hub.build.recipe import BackendRules, Component, NoarchFramework, Recipe, TorchFramework, TvmFfiFramework
from kernel_hub.build.rocm import HIP_SUFFIXES
from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.framework import Framework, Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.variant import ArchLabel, NoarchLabel

__all__ = ["FETCHABLE_HEADERS", "Job", "Matrix", "NativeJob", "NoarchJob", "Omission", "plan"]

FETCHABLE_HEADERS = ("cutlass_3_5", "cutlass_3_6", "cutlass_3_8")
_TOOLCHAINS = {
    BackendKind.XPU: "Intel's icpx",
    BackendKind.METAL: "Xcode on macOS",
}


def plan(recipes: Mapping[str, Recipe], machine: Machine) -> Matrix:
    """The jobs of a kernel's recipes on a machine.

    Args:
        recipes: By file name.
        machine: Where they are built.
    """
    jobs: list[Job] = []
    omissions: list[Omission] = []
    for document, recipe in recipes.items():
        for backend in recipe.backends:
            found = list(_of_backend(document, recipe, backend, machine))
            jobs += [item for item in found if not isinstance(item, Omission)]
            omissions += [item for item in found if isinstance(item, Omission)]
    return Matrix(tuple(sorted(jobs, key=lambda job: str(job.label))), tuple(omissions))


def _of_backend(document: str, recipe: Recipe, backend: BackendKind, machine: Machine) -> Iterator[Job | Omission]:
    match recipe.framework:
        case NoarchFramework() as framework:
            archs = {BackendKind.CUDA: framework.cuda_archs, BackendKind.ROCM: framework.rocm_archs}
            yield NoarchJob(NoarchLabel(backend.value), document, recipe, backend, archs.get(backend, ()))
        case TvmFfiFramework():
            found = _tvm_ffi_target(machine)
            yield from _of_compiled(document, recipe, backend, machine, found)
        case TorchFramework() as framework:
            found = _torch_target(framework, backend, machine)
            yield from _of_compiled(document, recipe, backend, machine, found)
        case _:
            assert_never(recipe.framework)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a build is compiled against, and the part of its label that says so."""

    sdk: TorchSdk | TvmFfiSdk
    framework: Framework


@dataclass(frozen=True, slots=True)
class _Unmet:
    """Why there is nothing to compile against, and what to do about it."""

    reason: str
    remedy: str = ""


def _lacking(machine: Machine, name: str) -> _Unmet:
    called = {"cuda": "CUDA toolkit", "rocm": "hipcc of ROCm"}.get(name, name)
    return _Unmet(machine.absent.get(name, f"there is no {called} here"), machine.remedies.get(name, ""))


def _tvm_ffi_target(machine: Machine) -> _Target | _Unmet:
    for name, found in (("compiler", machine.compiler), ("tvm-ffi", machine.tvm_ffi)):
        if found is None:
            return _lacking(machine, name)
    assert machine.tvm_ffi is not None
    return _Target(machine.tvm_ffi, TvmFfi(machine.tvm_ffi.version))


def _torch_target(framework: TorchFramework, backend: BackendKind, machine: Machine) -> _Target | _Unmet:
    for name, found in (("compiler", machine.compiler), ("torch", machine.torch), ("python", machine.python_include)):
        if found is None:
            return _lacking(machine, name)
    torch = machine.torch
    assert torch is not None
    target = framework.stable_abi.get(backend)
    problem = _torch_problem(framework, torch, target)
    if problem:
        return _Unmet(problem)
    return _Target(torch, TorchStableAbi(target) if target else Torch(torch.version, torch.cxx11_abi))


def _of_compiled(
    document: str, recipe: Recipe, backend: BackendKind, machine: Machine, target: _Target | _Unmet
) -> Iterator[Job | Omission]:
    """The builds against a target, or why there are none."""
    unmet = _unmet(recipe, backend, machine)
    if isinstance(target, _Unmet):
        yield Omission(document, backend, target.reason, target.remedy)
    elif unmet is not None:
        yield Omission(document, backend, unmet.reason, unmet.remedy)
    elif backend is BackendKind.CPU:
        yield from _of_cpu(document, recipe, target, machine)
    elif backend is BackendKind.CUDA:
        yield from _of_cuda(document, recipe, target, machine)
    elif backend is BackendKind.ROCM:
        yield _of_rocm(document, recipe, target, machine)
    else:
        tool = _TOOLCHAINS.get(backend)
        reason = f"needs {tool}, which this release does not drive" if tool else "has no compiled builds"
        yield Omission(document, backend, reason)


def _of_cpu(document: str, recipe: Recipe, target: _Target, machine: Machine) -> Iterator[Job | Omission]:
    """The build for this machine's processor, and those for which there is a compiler that runs here."""
    kind = BackendKind.CPU
    components = recipe.components_of(kind)
    headers = _used_headers(components, machine)
    label = ArchLabel(target.framework, Backend(kind), machine.cpu, machine.os)
    yield NativeJob(label, document, recipe, components, target.sdk, headers=headers)
    for cpu, compiler in machine.cross.items():
        foreign = ArchLabel(target.framework, Backend(kind), cpu, machine.os)
        own = sorted({flag for item in components for flag in item.cxx_flags if flag.startswith("-m")})
        if isinstance(target.framework, Torch):
            reason = f"{foreign} would be linked with a torch for {cpu}, and only the stable ABI does without"
            yield Omission(document, kind, reason)
        elif own:
            yield Omission(document, kind, f"{foreign} is not built: {', '.join(own)} are flags for one processor")
        else:
            yield NativeJob(foreign, document, recipe, components, target.sdk, headers=headers, cross=compiler)


def _unmet(recipe: Recipe, backend: BackendKind, machine: Machine) -> _Unmet | None:
    """Why a backend's components can't be compiled, if they depend on headers that are not here."""
    if backend in _TOOLCHAINS:
        return None
    here = {"torch", *(library.name for library in machine.headers)}
    for component in recipe.components_of(backend):
        others = [name for name in component.depends if name not in here]
        if others:
            remedy = "name the folder of that CUTLASS in CUTLASS_HOME"
            if any(name in FETCHABLE_HEADERS for name in others):
                remedy += f", or fetch it: kernel-hub build --fetch-toolkit {others[0]}"
            elif not all(name.startswith("cutlass_") for name in others):
                remedy = ""
            why = machine.absent.get("headers")
            reason = f"component {component.name} needs {', '.join(others)}, whose headers are not here"
            return _Unmet(f"{reason}: {why}" if why else reason, remedy)
    return None


def _used_headers(components: tuple[Component, ...], machine: Machine) -> tuple[HeaderLibrary, ...]:
    named = {name for component in components for name in component.depends}
    return tuple(library for library in machine.headers if library.name in named)


def _of_cuda(document: str, recipe: Recipe, target: _Target, machine: Machine) -> Iterator[Job | Omission]:
    kind = BackendKind.CUDA
    if not machine.cuda:
        unmet = _lacking(machine, "cuda")
        yield Omission(document, kind, unmet.reason, unmet.remedy)
    for toolkit in machine.cuda:
        components = tuple(
            item for item in recipe.components_of(kind) if not item.cuda_minver or item.cuda_minver <= toolkit.version
        )
        # A component without device code is compiled for no architecture, whatever it asks for.
        devices = [item for item in components if any(source.endswith(CUDA_SUFFIX) for source in item.src)]
        archs = [chosen_archs(item.archs, toolkit.version) for item in devices]
        foreign = foreign_to_clang(flag for item in devices for flag in item.device_flags)
        problem = _cuda_problem(recipe.rules.get(kind, BackendRules()), target, toolkit.version)
        unmade = [item.name for item, chosen in zip(devices, archs, strict=True) if not chosen]
        if problem:
            yield Omission(document, kind, problem)
        elif toolkit.clang_headers is not None and foreign:
            said = f"CUDA {toolkit.version} is here through clang alone, which does not take {', '.join(foreign)}"
            yield Omission(document, kind, said, "install that toolkit with its nvcc, and name it in CUDA_HOME")
        elif unmade:
            yield Omission(
                document,
                kind,
                f"CUDA {toolkit.version} compiles nothing for the cuda-capabilities of {', '.join(unmade)}",
            )
        else:
            label = ArchLabel(target.framework, Backend(kind, toolkit.version), machine.cpu, machine.os)
            listed = listed_archs(arch for chosen in archs for arch in chosen)
            headers = _used_headers(components, machine)
            yield NativeJob(label, document, recipe, components, target.sdk, listed, toolkit, headers)


def _of_rocm(document: str, recipe: Recipe, target: _Target, machine: Machine) -> Job | Omission:
    kind, toolkit = BackendKind.ROCM, machine.rocm
    if toolkit is None:
        unmet = _lacking(machine, "rocm")
        return Omission(document, kind, unmet.reason, unmet.remedy)
    if isinstance(target.framework, Torch):
        return Omission(document, kind, "only builds on the stable ABI do without a torch for ROCm")
    if toolkit.version.minor > 9:
        return Omission(document, kind, f"ROCm {toolkit.version} has no label: its minor version has two digits")
    components = recipe.components_of(kind)
    label = ArchLabel(target.framework, Backend(kind, toolkit.version), machine.cpu, machine.os)
    headers = _used_headers(components, machine)
    job = NativeJob(label, document, recipe, components, target.sdk, headers=headers, rocm=toolkit)
    unmade = [item.name for item in components if _has_device_code(item) and not job.archs_of(item)]
    if unmade:
        return Omission(document, kind, f"builds are made for none of the rocm-archs of {', '.join(unmade)}")
    return replace(job, archs=listed_archs(arch for item in components for arch in job.archs_of(item)))


def _has_device_code(component: Component) -> bool:
    return any(PurePosixPath(source).suffix in HIP_SUFFIXES for source in component.src)


def _cuda_problem(rules: BackendRules, target: _Target, toolkit: Version) -> str | None:
    if rules.minver is not None and toolkit < rules.minver:
        return f"CUDA {toolkit} is here, the recipe asks for {rules.minver} or newer"
    if rules.maxver is not None and toolkit > rules.maxver:
        return f"CUDA {toolkit} is here, the recipe asks for {rules.maxver} or older"
    if toolkit.minor > 9:
        return f"CUDA {toolkit} has no label: its minor version has two digits"
    torch = target.sdk
    if isinstance(target.framework, Torch) and isinstance(torch, TorchSdk) and torch.cuda != toolkit:
        built = f"CUDA {torch.cuda}" if torch.cuda else "CPU only"
        return f"the torch here is for {built}, and only builds on the stable ABI do without one for CUDA {toolkit}"
    return None


def _torch_problem(framework: TorchFramework, torch: TorchSdk, target: Version | None) -> str | None:
    if target is not None:
        # Headers of an older torch do not declare what a newer stable ABI has.
        return (
            f"torch {torch.version} is here, the stable ABI {target} needs its own or a newer one"
            if (torch.version < target)
            else None
        )
    if framework.minver is not None and torch.version < framework.minver:
        return f"torch {torch.version} is here, the recipe asks for {framework.minver} or newer"
    if framework.maxver is not None and torch.version > framework.maxver:
        return f"torch {torch.version} is here, the recipe asks for {framework.maxver} or older"
    return None
