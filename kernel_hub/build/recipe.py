"""A kernel's build recipe, `build.toml` edition 5, as a value.

Repository format, section (e). Every key of the edition is read, an unknown one is an error, and the faults that the
ecosystem's own reader only meets later are found here: no backend, a component for a backend that the kernel does not
have, a Python dependency outside the curated list, a path that leaves the kernel's folder.

Leaves out: reading files (see `kernel_hub.build.project`), older editions (see `kernel_hub.build.editions`), and what to
build from a recipe (see `kernel_hub.build.matrix`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from packaging.version import Version

from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import KernelDependency, python_name
from kernel_hub.model.requirement import RepoId

EDITION = 5


@dataclass(frozen=True, slots=True)
class BackendRules:
    """What `[general.<backend>]` says.

    Attributes:
        minver: The oldest toolkit version to build with (CUDA only).
        maxver: The newest one (CUDA only).
        python_depends: Python dependencies of this backend's builds, beside the general ones.
        kernel_depends: Kernel dependencies of this backend's builds, beside the general ones.
    """

    minver: Version | None = None
    maxver: Version | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()


@dataclass(frozen=True, slots=True)
class Home:
    """Where the kernel is published, as `[general.hub]` says."""

    repo: RepoId | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class TorchFramework:
    """`[torch]`: compiled against torch.

    Attributes:
        src: The sources that bind the operators, compiled into every build.
        include: Folders to search for headers.
        pyext: Extensions of files to copy beside the Python sources.
        minver: The oldest torch to build for; says nothing about the stable ABI.
        maxver: The newest one.
        cxx_flags: Additional flags for `src`.
        stable_abi: The stable ABI to target, by backend; a backend that is not in it is built for one torch release.
    """

    src: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    pyext: tuple[str, ...] = ()
    minver: Version | None = None
    maxver: Version | None = None
    cxx_flags: tuple[str, ...] = ()
    stable_abi: Mapping[BackendKind, Version] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TvmFfiFramework:
    """`[tvm-ffi]`: compiled against tvm-ffi. The fields are those of `TorchFramework`."""

    src: tuple[str, ...]
    include: tuple[str, ...] = ()
    pyext: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoarchFramework:
    """`[torch-noarch]`: Python only; one build for each backend.

    Attributes:
        pyext: As `TorchFramework`; everything but bytecode is copied anyway.
        cuda_archs: Which CUDA devices the kernel supports; empty for all.
        rocm_archs: Which ROCm devices it supports; empty for all.
    """

    pyext: tuple[str, ...] = ()
    cuda_archs: tuple[str, ...] = ()
    rocm_archs: tuple[str, ...] = ()


Framework: TypeAlias = TorchFramework | TvmFfiFramework | NoarchFramework


@dataclass(frozen=True, slots=True)
class Component:
    """`[kernel.<name>]`: sources that share a backend and flags; a build links all of its backend's components.

    Attributes:
        name: The table's name.
        backend: Which builds it belongs to.
        depends: Libraries whose headers it needs.
        src: Its sources, relative to the kernel's folder.
        include: Folders to search for headers, relative to the kernel's folder.
        cxx_flags: Additional flags of the C++ compiler.
        archs: The GPU architectures it is limited to; empty for the toolkit's defaults.
        device_flags: Additional flags of the device compiler (`cuda-flags`, `hip-flags` or `sycl-flags`).
        cuda_minver: The oldest CUDA toolkit it compiles with; older builds leave the component out.
    """

    name: str
    backend: BackendKind
    depends: tuple[str, ...]
    src: tuple[str, ...]
    include: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    device_flags: tuple[str, ...] = ()
    cuda_minver: Version | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """One `build.toml`.

    Attributes:
        name: The kernel's name.
        version: The kernel's major version.
        license: A licence id of the Hub.
        backends: What it is built for, in the recipe's order.
        framework: Its one framework table.
        components: Its `[kernel.*]` tables, in the recipe's order.
        upstream: The git repository it was taken from.
        source: The git repository of these sources.
        python_depends: Python dependencies of every build.
        kernel_depends: Kernel dependencies of every build.
        rules: What is said for single backends.
        home: Where it is published.
        notes: What a reader should know, such as an older edition.
    """

    name: str
    version: int
    license: str
    backends: tuple[BackendKind, ...]
    framework: Framework
    components: tuple[Component, ...] = ()
    upstream: str | None = None
    source: str | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    rules: Mapping[BackendKind, BackendRules] = field(default_factory=dict)
    home: Home = Home()
    notes: tuple[str, ...] = ()

    @property
    def python_name(self) -> str:
        """The name of the kernel's Python package."""
        return python_name(self.name)

    def python_depends_of(self, backend: BackendKind) -> tuple[str, ...]:
        """The Python dependencies of a build: the general ones, then the backend's own."""
        return tuple(dict.fromkeys((*self.python_depends, *self._rules_of(backend).python_depends)))

    def kernel_depends_of(self, backend: BackendKind) -> tuple[KernelDependency, ...]:
        """The kernel dependencies of a build: the general ones, then the backend's own."""
        return tuple(dict.fromkeys((*self.kernel_depends, *self._rules_of(backend).kernel_depends)))

    def components_of(self, backend: BackendKind) -> tuple[Component, ...]:
        """The components of a backend's builds."""
        return tuple(component for component in self.components if component.backend is backend)

    def paths(self) -> tuple[str, ...]:
        """Every file and folder that the recipe names, relative to the kernel's folder."""
        named: list[str] = []
        if not isinstance(self.framework, NoarchFramework):
            named += [*self.framework.src, *self.framework.include]
        for component in self.components:
            named += [*component.src, *component.include]
        return tuple(dict.fromkeys(named))

    def _rules_of(self, backend: BackendKind) -> BackendRules:
        return self.rules.get(backend, BackendRules())
