"""Jobs: the builds that a kernel has on a machine, as values, and what is left out. Planned by `kernel_hub.build.matrix`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from packaging.version import Version

from kernel_hub.build import rocm
from kernel_hub.build.cuda import CUDA_SUFFIX, chosen_archs
from kernel_hub.build.machine import Compiler, CudaToolkit, HeaderLibrary, RocmToolkit, TorchSdk, TvmFfiSdk
from kernel_hub.build.recipe import Component, Recipe
from kernel_hub.build.rocm import HIP_SUFFIXES
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.framework import TorchStableAbi
from kernel_hub.model.variant import ArchLabel, NoarchLabel


@dataclass(frozen=True, slots=True)
class NativeJob:
    """A compiled build to make.

    Attributes:
        label: What it is called.
        document: The recipe's file name.
        recipe: The recipe.
        components: What is compiled, beside the framework's own sources.
        sdk: The torch or tvm-ffi whose headers are used.
        archs: The GPU architectures of the build, as metadata lists them.
        toolkit: The CUDA toolkit, for CUDA.
        headers: The libraries of headers that components depend on.
        rocm: The installation of ROCm, for ROCm.
        cross: The compiler for the label's processor, if that is not this machine's.
    """

    label: ArchLabel
    document: str
    recipe: Recipe
    components: tuple[Component, ...]
    sdk: TorchSdk | TvmFfiSdk
    archs: tuple[str, ...] = ()
    toolkit: CudaToolkit | None = None
    headers: tuple[HeaderLibrary, ...] = ()
    rocm: RocmToolkit | None = None
    cross: Compiler | None = None

    @property
    def remark(self) -> str:
        """What a reader of the plan should know of how it is built."""
        through_clang = self.toolkit is not None and self.toolkit.clang_headers is not None
        return "through clang, experimental" if through_clang else ""

    def archs_of(self, component: Component) -> tuple[str, ...]:
        """The architectures that one component is compiled for; none if it has no device code."""
        suffixes = {PurePosixPath(source).suffix for source in component.src}
        if self.toolkit is not None and CUDA_SUFFIX in suffixes:
            return chosen_archs(component.archs, self.toolkit.version)
        if self.rocm is not None and suffixes & HIP_SUFFIXES:
            return rocm.chosen_archs(component.archs)
        return ()

    def headers_of(self, component: Component) -> tuple[HeaderLibrary, ...]:
        """Those that one component depends on."""
        return tuple(library for library in self.headers if library.name in component.depends)

    @property
    def backend(self) -> BackendKind:
        return self.label.backend.kind

    @property
    def stable_abi(self) -> Version | None:
        """The stable ABI it targets; None for a build for one torch release."""
        framework = self.label.framework
        return framework.version if isinstance(framework, TorchStableAbi) else None


@dataclass(frozen=True, slots=True)
class NoarchJob:
    """A build without compiled code; the fields are those of `NativeJob`."""

    label: NoarchLabel
    document: str
    recipe: Recipe
    backend: BackendKind
    archs: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """As `NativeJob.remark`."""
        return ""


Job: TypeAlias = NativeJob | NoarchJob


@dataclass(frozen=True, slots=True)
class Omission:
    """A backend of a recipe that is not built here.

    Attributes:
        document: The recipe's file name.
        backend: Which one.
        reason: Why.
        remedy: What to do about it; "" where nothing helps on this machine.
    """

    document: str
    backend: BackendKind
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.backend.value} of {self.document}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Every build of a kernel on one machine: jobs in order of their labels, and what is left out."""

    jobs: tuple[Job, ...]
    omissions: tuple[Omission, ...]

    @property
    def unmade(self) -> tuple[Omission, ...]:
        """Why backends have no build at all; one that is built with one CUDA toolkit and not with another has one."""
        made = {(job.document, job.backend) for job in self.jobs}
        return tuple(item for item in self.omissions if (item.document, item.backend) not in made)
