"""Opting in to something else where a kernel cannot be had, without losing sight of it.

A `try` around `get_kernel` with a broad `except` hides why a slow path is taken. Here the reason is on the record that is
returned and in the log. Only "there is none for this machine", "there is none of that name" and "it cannot be fetched" give
way to the fallback; what fails verification, is not trusted or breaks on import is an error as ever.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kernel_hub.api import get_kernel
from kernel_hub.errors import FetchError, KernelHubError, MissingDependencyError, ResolutionError, SelectionError
from kernel_hub.model.loaded import LoadedKernel

_LOG = logging.getLogger("kernel_hub")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class KernelOrFallback(Generic[_T]):
    """What is in use.

    Attributes:
        module: The kernel's module, or the fallback.
        kernel: The record of the kernel; None if the fallback is in use.
        reason: Why the fallback is in use; empty if the kernel is.
        error: What loading raised.
    """

    module: Any | _T
    kernel: LoadedKernel | None
    reason: str = ""
    error: KernelHubError | None = None

    @property
    def is_fallback(self) -> bool:
        """Whether the fallback is in use."""
        return self.kernel is None


def get_kernel_or_fallback(repo_id: str, fallback: _T, **options: Any) -> KernelOrFallback[_T]:
    """Load a kernel, or take something else if it cannot be had here.

    Args:
        repo_id: As for `get_kernel`.
        fallback: What to use instead: a module, or anything with the functions that the caller needs.
        options: The keywords of `get_kernel`.

    Returns:
        What is in use, with the reason if it is the fallback. A fallback is logged as a warning, too.

    Raises:
        KernelHubError: If the kernel is there but must not be used: not trusted, not what was published, broken.
    """
    try:
        module = get_kernel(repo_id, **options)
    except (SelectionError, ResolutionError, FetchError, MissingDependencyError) as error:
        _LOG.warning("%s is not in use, its fallback is: %s", repo_id, error.message)
        return KernelOrFallback(fallback, None, error.message, error)
    return KernelOrFallback(module, module.__kernel_hub__)
