"""Other kernels that a kernel names in its metadata, offered to it while it loads.

The ecosystem's kernels ask for them with `from kernels import get_kernel_dep`. Whether that client is installed or not, code
of a kernel that is loading here gets our answer: its modules see an `__import__` that knows the name `kernels`, and nobody
else's modules do.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from kernel_hub.errors import KernelImportError

_CLIENT = "kernels"
_offered: ContextVar[Mapping[str, ModuleType] | None] = ContextVar("offered_kernels", default=None)


@contextmanager
def offering(kernels: Mapping[str, ModuleType]) -> Iterator[None]:
    """Offer loaded kernels, by repository, to the kernel that is imported inside the `with` block."""
    token = _offered.set(kernels)
    try:
        yield
    finally:
        _offered.reset(token)


def get_kernel_dep(repo_id: str) -> ModuleType:
    """A kernel that the calling kernel depends on. Works only while the calling kernel loads.

    Args:
        repo_id: The repository, as the metadata's `kernel-depends` names it; version or revision stand there too.

    Raises:
        KernelImportError: If no kernel is loading, or its metadata does not name the repository.
    """
    kernels = _offered.get()
    if kernels is None:
        raise KernelImportError(
            f"get_kernel_dep({repo_id!r}) was called while no kernel is loading",
            hint="call it in the body of a module of the kernel, and keep the result",
        )
    if repo_id not in kernels:
        named = ", ".join(sorted(kernels)) or "none"
        raise KernelImportError(
            f"the kernel that is loading does not depend on {repo_id!r}; its metadata names: {named}",
            hint="add it to kernel-depends in build.toml and build the kernel again",
        )
    return kernels[repo_id]


def prepare(module: ModuleType) -> None:
    """Let a kernel's module find `get_kernel_dep` where the ecosystem has it. Called before its body runs."""
    if _offered.get():
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": _import}


def _import(
    name: str,
    namespace: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
    wanted: Sequence[str] = (),
    level: int = 0,
) -> ModuleType:
    if name == _CLIENT and level == 0:
        return _CLIENT_MODULE
    return builtins.__import__(name, namespace, local, wanted, level)


class _Client(ModuleType):
    """What a kernel sees as `kernels`: our `get_kernel_dep`, and the rest of the client if it is installed."""

    def __getattr__(self, name: str) -> Any:
        try:
            client = importlib.import_module(_CLIENT)
        except ModuleNotFoundError:
            raise AttributeError(
                f"{name!r} of the module 'kernels' is not offered, and that client is not installed"
            ) from None
        return getattr(client, name)


_CLIENT_MODULE = _Client(_CLIENT)
_CLIENT_MODULE.__dict__["get_kernel_dep"] = get_kernel_dep
