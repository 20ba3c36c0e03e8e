"""What a new kernel's project is to be: its name, what it is written for, and against what. Pure.

Leaves out the files themselves (see `kernel_hub.build.scaffold`).
"""

from __future__ import annotations

import keyword
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.metadata import NAME_RULE, is_kernel_name, python_name

_DOCUMENT = "new kernel"
_Choice = TypeVar("_Choice", bound=StrEnum)
# What kernels and their loaders import.
_IMPORTED = frozenset({"torch", "triton", "tvm_ffi", "kernel_hub", "kernels", "numpy"})
# Modules of a new project, which no package around them may be called like.
_OWN = frozenset({"functional", "layers", "triton_kernel"})


class Part(StrEnum):
    """What a kernel can be written for."""

    CPU = "cpu"
    CUDA = "cuda"
    TRITON = "triton"


class Abi(StrEnum):
    """What compiled parts can be written against."""

    STABLE = "stable"
    CLASSIC = "classic"
    TVM_FFI = "tvm-ffi"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A project to make.

    Attributes:
        name: The kernel's name.
        parts: What it is written for, in the order of `Part`.
        abi: What its compiled parts are written against.
        license: A licence id.
    """

    name: str
    parts: tuple[Part, ...]
    abi: Abi
    license: str = "Apache-2.0"

    @classmethod
    def parse(cls, name: str, parts: Sequence[str], abi: str, license: str = "Apache-2.0") -> Blueprint:
        """A blueprint from what a user wrote.

        Raises:
            InvalidDocumentError: Naming the part at fault.
        """
        chosen = [_choice(Part, text, "backends") for text in parts]
        if not chosen:
            raise InvalidDocumentError(_DOCUMENT, f"is none; there are {_listed(Part)}", location="backends")
        if not license or not license.isascii() or any(not (char.isalnum() or char in "-.+") for char in license):
            raise InvalidDocumentError(_DOCUMENT, f"{license!r} is not the id of a licence", location="license")
        return cls(
            _checked_name(name), tuple(part for part in Part if part in chosen), _choice(Abi, abi, "abi"), license
        )

    @property
    def python_name(self) -> str:
        """The name of the kernel's Python package."""
        return python_name(self.name)

    @property
    def compiled(self) -> tuple[Part, ...]:
        """What is compiled in advance."""
        return tuple(part for part in self.parts if part is not Part.TRITON)

    @property
    def triton_backends(self) -> tuple[str, ...]:
        """The backends of the Triton builds: every one that Triton knows and that has no compiled build."""
        if Part.TRITON not in self.parts:
            return ()
        return ("rocm", "xpu") if Part.CUDA in self.parts else ("cuda", "rocm", "xpu")


def is_reserved(module: str) -> bool:
    """Whether a Python package may not have this name: Python, or what kernels import, has another use for it."""
    return keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _IMPORTED


def _checked_name(name: str) -> str:
    if not is_kernel_name(name):
        raise InvalidDocumentError(_DOCUMENT, f"{name!r} is not a kernel name: {NAME_RULE}", location="name")
    module = python_name(name)
    if is_reserved(module) or module in _OWN:
        raise InvalidDocumentError(
            _DOCUMENT,
            f"{name!r} would be the Python package {module!r}, and that name means something else",
            location="name",
            hint=f"choose another, such as {name}-kernel",
        )
    return name


def _choice(kind: type[_Choice], text: str, location: str) -> _Choice:
    try:
        return kind(text)
    except ValueError:
        raise InvalidDocumentError(_DOCUMENT, f"{text!r} is none of {_listed(kind)}", location=location) from None


def _listed(kind: type[StrEnum]) -> str:
    return ", ".join(item.value for item in kind)
