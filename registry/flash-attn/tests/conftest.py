"""Where the tests get the kernel from: a finished build if one is named, else one made here.

FLASH_ATTN_BUILD names a `build/` folder; its variants are loaded as users load them. Without it the development builder
compiles the sources into the temporary folder.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

# Triton decides when it is first imported whether functions are interpreted, so this precedes every import of it.
os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch

from registry._harness import dev_build

KERNEL = Path(__file__).resolve().parents[1]


def load_build(variant: str) -> ModuleType:
    """Return the package of `variant`: "native" or "triton"."""
    named = os.environ.get("FLASH_ATTN_BUILD")
    if named is None:
        return dev_build.load_package(
            dev_build.build_native(KERNEL) if variant == "native" else dev_build.build_noarch(KERNEL)
        )
    if variant == "triton":
        # No GPU is needed to interpret the kernel, so it is not selected by host but loaded by its folder.
        return dev_build.load_package(Path(named) / "torch-cuda")
    import kernel_hub

    return kernel_hub.get_local_kernel(Path(named))


@dataclass(frozen=True)
class Kernel:
    """A build under test. Calls run with uninitialised memory filled with NaN and numpy's warnings silenced."""

    variant: str
    module: ModuleType

    @property
    def ops(self) -> Any:
        return sys.modules[f"{self.module.__name__}._ops"].ops

    def submodule(self, name: str) -> ModuleType:
        return sys.modules[f"{self.module.__name__}.{name}"]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        with self.interpreting(args):
            return getattr(self.module, name)(*args, **kwargs)

    def gradients(self, out: torch.Tensor, inputs: list[torch.Tensor], grad_out: torch.Tensor) -> Any:
        with self.interpreting(inputs):
            return torch.autograd.grad(out, inputs, grad_out)

    @contextmanager
    def interpreting(self, tensors: Iterable[Any]) -> Iterator[None]:
        if self.variant == "native":
            yield
            return
        from registry._harness.triton_bfloat16 import corrected_bfloat16

        bfloat16 = any(isinstance(tensor, torch.Tensor) and tensor.dtype == torch.bfloat16 for tensor in tensors)
        with warnings.catch_warnings(), np.errstate(all="ignore"), corrected_bfloat16() if bfloat16 else nullcontext():
            warnings.filterwarnings("ignore", message="All-NaN slice encountered", category=RuntimeWarning)
            yield


@pytest.fixture(scope="session")
def native() -> Kernel:
    return Kernel("native", load_build("native"))


@pytest.fixture(scope="session")
def triton() -> Kernel:
    return Kernel("triton", load_build("triton"))


@pytest.fixture(params=["native", "triton"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fill new memory with NaN, so that an element the kernel forgets to write is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert bool(torch.empty(8).isnan().all())
    yield
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.use_deterministic_algorithms(before)
