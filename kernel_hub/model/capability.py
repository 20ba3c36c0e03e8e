"""GPU architectures: what a build was compiled for, and which devices can run it.

CUDA architecture text is `M.m[a|f][+PTX]`. "Runs on" follows NVIDIA's compatibility rules (CUDA Programming Guide,
"Application Compatibility"): a plain cubin runs on its major version at the same or a later minor one; an
architecture-specific (`a`) cubin on exactly its device; a family-specific (`f`) one on its major version from its minor
on; PTX on every device that is not older. ROCm code objects name one `gfx` target and run on that target.

Unknown text is kept as `UnknownArch`: it is allowed, with a note, because refusing what one cannot read would lock users
out of every future architecture.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeAlias

from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

_CUDA = Pattern(r"([0-9]{1,3})\.([0-9])([af]?)(\+PTX)?")
_CUDA_DEVICE = Pattern(r"([0-9]{1,3})\.([0-9])")
_ROCM = Pattern(r"gfx[0-9a-f]{3,5}(?:-generic)?")


@dataclass(frozen=True, slots=True, order=True)
class CudaCapability:
    """A CUDA device's compute capability, e.g. 9.0 for an H100."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True)
class CudaArch:
    """One entry of a CUDA build's architecture list.

    Attributes:
        capability: The compute capability it was compiled for.
        suffix: "" for portable, "a" for architecture-specific, "f" for family-specific code.
        ptx: Whether PTX, which the driver compiles for newer devices, is included.
    """

    capability: CudaCapability
    suffix: str = ""
    ptx: bool = False

    def native_on(self, device: CudaCapability) -> bool:
        """Whether machine code for `device` is included."""
        if self.suffix == "a":
            return device == self.capability
        return device.major == self.capability.major and device.minor >= self.capability.minor

    def runs_on(self, device: CudaCapability) -> bool:
        """Whether `device` can run it, as machine code or through PTX."""
        return self.native_on(device) or (self.ptx and device >= self.capability)

    def __str__(self) -> str:
        return f"{self.capability}{self.suffix}{'+PTX' if self.ptx else ''}"


@dataclass(frozen=True, slots=True)
class RocmArch:
    """A `gfx` target; it names devices and builds alike."""

    target: str

    def __str__(self) -> str:
        return self.target


@dataclass(frozen=True, slots=True)
class UnknownArch:
    """Architecture text that this release does not understand."""

    text: str

    def __str__(self) -> str:
        return self.text


Arch: TypeAlias = CudaArch | RocmArch | UnknownArch
Capability: TypeAlias = CudaCapability | RocmArch | UnknownArch


class Fit(IntEnum):
    """How well a build suits a device; larger is better."""

    NONE = 0
    UNKNOWN = 1
    PTX = 2
    NATIVE = 3


def parse_arch(text: str) -> Arch:
    """Read one architecture of a build. Never fails: text it does not know becomes an `UnknownArch`."""
    found = _CUDA.fullmatch(text)
    if found:
        return CudaArch(CudaCapability(int(found[1]), int(found[2])), found[3], found[4] is not None)
    if _ROCM.fullmatch(text):
        return RocmArch(text)
    return UnknownArch(text)


def parse_capability(text: str) -> Capability:
    """Read a device's architecture: `9.0`, or a `gfx` name whose features after ':' are dropped."""
    found = _CUDA_DEVICE.fullmatch(text)
    if found:
        return CudaCapability(int(found[1]), int(found[2]))
    target = text.partition(":")[0]
    return RocmArch(target) if _ROCM.fullmatch(target) else UnknownArch(text)


def fit(archs: Iterable[Arch], device: Capability) -> Fit:
    """The best way in which one of `archs` suits `device`.

    An empty list says nothing about architectures and fits everywhere natively. `UNKNOWN` means that nothing known fits
    but something could not be read.
    """
    best = Fit.NONE
    empty = True
    for arch in archs:
        empty = False
        best = max(best, _fit_one(arch, device))
    return Fit.NATIVE if empty else best


def _fit_one(arch: Arch, device: Capability) -> Fit:
    if isinstance(arch, UnknownArch) or isinstance(device, UnknownArch):
        return Fit.UNKNOWN
    if isinstance(arch, CudaArch) and isinstance(device, CudaCapability):
        if arch.native_on(device):
            return Fit.NATIVE
        return Fit.PTX if arch.runs_on(device) else Fit.NONE
    return Fit.NATIVE if arch == device else Fit.NONE
