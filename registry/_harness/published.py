"""Where a kernel's tests get it from: built from its recipes, published to a registry folder, loaded back by name.

The variable KERNEL_NAME_BUILD (the kernel's name in capitals) names a finished `build/` folder to publish instead.
Importing this module makes Triton interpret its functions, so it precedes every import of Triton.
"""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

# Triton decides when it is first imported whether functions are interpreted.
os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import pytest
import torch

import kernel_hub
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from registry._harness import dev_build


@lru_cache
def builds(kernel: Path) -> Path:
    """The builds under test. They are kept between runs, because what has not changed is not compiled again."""
    named = os.environ.get(f"{kernel.name.upper().replace('-', '_')}_BUILD")
    if named is not None:
        return Path(named)
    output = Path(tempfile.gettempdir()) / f"kernel-hub-tests-of-{getpass.getuser()}" / kernel.name / "build"
    return build(kernel, output=output).output


def load_build(kernel: Path, variant: str) -> ModuleType:
    """Return the package of `variant`: "native" or "triton"."""
    if variant == "triton":
        # No GPU is needed to interpret the kernel, so it is not selected by host but loaded by its folder.
        return _load_folder(kernel, builds(kernel) / "torch-cuda")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        registry = DirectoryRegistry.create(Path(folder) / "registry")
        publish(builds(kernel), registry, RepoId("local", kernel.name), allow_dirty=True)
        patch.setenv("KERNEL_HUB_REGISTRIES", f"local={(Path(folder) / 'registry').as_uri()}")
        # What is imported stays where it lies, so the home outlives this function.
        patch.setenv("KERNEL_HUB_HOME", tempfile.mkdtemp(prefix="kernel-hub-tests-"))
        return kernel_hub.get_kernel(f"local/{kernel.name}", version=1)


def _load_folder(kernel: Path, folder: Path) -> ModuleType:
    # The builds of two kernels are folders of one name, and a package is imported once under its folder's name.
    named = Path(tempfile.mkdtemp(prefix="kernel-hub-tests-")) / f"triton_{kernel.name.replace('-', '_')}"
    named.symlink_to(folder, target_is_directory=True)
    return dev_build.load_package(named)


@dataclass(frozen=True)
class Kernel:
    """A build under test. Calls run with numpy's warnings about the interpreter's arithmetic silenced."""

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


def kernel_of(folder: Path, variant: str) -> Kernel:
    """Build, publish and load the kernel of a folder."""
    return Kernel(variant, load_build(folder, variant))


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill new memory with NaN, so that an element the kernel forgets to write is seen."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert bool(torch.empty(8).isnan().all())
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fill
        torch.use_deterministic_algorithms(before)
