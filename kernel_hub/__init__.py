"""kernel_hub: resolve, select, fetch, verify and import compute kernels. The public names, loaded on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_hub.api import (
        explain,
        get_kernel,
        get_local_kernel,
        get_locked_kernel,
        has_kernel,
        load_kernel,
        loaded_kernels,
    )
    from kernel_hub.errors import KernelHubError
    from kernel_hub.fallback import KernelOrFallback, get_kernel_or_fallback
    from kernel_hub.importer import LoadedKernel, get_kernel_dep
    from kernel_hub.model.host import Host
    from kernel_hub.plan import Availability, Plan

__version__ = "0.1.0"

__all__ = [
    "Availability",
    "Host",
    "KernelHubError",
    "KernelOrFallback",
    "LoadedKernel",
    "Plan",
    "explain",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_or_fallback",
    "get_local_kernel",
    "get_locked_kernel",
    "has_kernel",
    "load_kernel",
    "loaded_kernels",
]

_HOMES = {
    "Availability": "kernel_hub.plan",
    "Host": "kernel_hub.model.host",
    "KernelHubError": "kernel_hub.errors",
    "KernelOrFallback": "kernel_hub.fallback",
    "LoadedKernel": "kernel_hub.importer",
    "Plan": "kernel_hub.plan",
    "explain": "kernel_hub.api",
    "get_kernel": "kernel_hub.api",
    "get_kernel_dep": "kernel_hub.importer",
    "get_kernel_or_fallback": "kernel_hub.fallback",
    "get_local_kernel": "kernel_hub.api",
    "get_locked_kernel": "kernel_hub.api",
    "has_kernel": "kernel_hub.api",
    "load_kernel": "kernel_hub.api",
    "loaded_kernels": "kernel_hub.api",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
