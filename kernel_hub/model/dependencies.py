"""The curated Python dependencies that metadata may name, and what to import and to install for each.

Repository format, section (i). The list is the ecosystem's; names outside it are errors at load.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernel_hub.model.backend import BackendKind
from kernel_hub.model.value import dataclass


@dataclass(frozen=True, slots=True)
class PythonDependency:
    """One curated dependency.

    Attributes:
        name: As metadata writes it.
        distribution: What pip installs.
        module: What is imported; None if presence cannot be told by an import.
    """

    name: str
    distribution: str
    module: str | None


_GENERAL = {
    "einops": PythonDependency("einops", "einops", "einops"),
    "helion": PythonDependency("helion", "helion", "helion"),
    "tvm-ffi": PythonDependency("tvm-ffi", "apache-tvm-ffi", "tvm_ffi"),
}
_BY_BACKEND: Mapping[BackendKind, Mapping[str, PythonDependency]] = MappingProxyType(
    {
        BackendKind.CUDA: {
            "nvidia-cutlass-dsl": PythonDependency("nvidia-cutlass-dsl", "nvidia-cutlass-dsl", "cutlass")
        },
        BackendKind.NEURON: {"nki": PythonDependency("nki", "nki", "nki")},
        BackendKind.XPU: {"onednn": PythonDependency("onednn", "onednn-devel", None)},
    }
)


def python_dependency(name: str, backend: BackendKind) -> PythonDependency | None:
    """The curated dependency called `name` for a build of `backend`, or None if the list has none."""
    return _GENERAL.get(name) or _BY_BACKEND.get(backend, {}).get(name)
