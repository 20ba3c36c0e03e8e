"""Which framework ABI a build needs: a torch release, torch's stable ABI, tvm-ffi, or any torch at all.

Label text (repository format, section a): the first digit is the major version, the rest the minor one.
"""

from __future__ import annotations

from typing import TypeAlias

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass


@dataclass(frozen=True, slots=True)
class Torch:
    """Torch's C++ ABI of one release line (major.minor), optionally of one libstdc++ string ABI.

    Attributes:
        version: The release line.
        cxx11_abi: True for `-cxx11`, False for `-cxx98`, None for "any", which labels leave out.
    """

    version: Version
    cxx11_abi: bool | None = None

    @property
    def label(self) -> str:
        tag = {None: "", True: "-cxx11", False: "-cxx98"}[self.cxx11_abi]
        return f"torch{_digits(self.version)}{tag}"

    def __str__(self) -> str:
        return f"torch {self.version}"


@dataclass(frozen=True, slots=True)
class TorchStableAbi:
    """Torch's stable ABI: this release and every newer one."""

    version: Version

    @property
    def label(self) -> str:
        return f"torch-stable-abi{_digits(self.version)}"

    def __str__(self) -> str:
        return f"torch >= {self.version}"


@dataclass(frozen=True, slots=True)
class TvmFfi:
    """The tvm-ffi ABI of one release line."""

    version: Version

    @property
    def label(self) -> str:
        return f"tvm-ffi{_digits(self.version)}"

    def __str__(self) -> str:
        return f"tvm-ffi {self.version}"


Framework: TypeAlias = Torch | TorchStableAbi | TvmFfi

_TORCH = Pattern(r"torch([0-9])([0-9]{1,6})")
_STABLE = Pattern(r"torch-stable-abi([0-9])([0-9]{1,6})")
_TVM = Pattern(r"tvm-ffi([0-9])([0-9]{1,6})")
ABI_TAGS = {"cxx11": True, "cxx98": False}


def _digits(version: Version) -> str:
    return f"{version.major}{version.minor}"


def parse_torch(text: str, tag: str | None) -> Torch:
    """Read `torch29` with the optional ABI tag `cxx11` or `cxx98`.

    Raises:
        InvalidDocumentError: If the text is not of that form.
    """
    found = _TORCH.fullmatch(text)
    if not found:
        raise InvalidDocumentError("label", f"{text!r} is not a torch version", location="framework")
    return Torch(Version(f"{found[1]}.{int(found[2])}"), ABI_TAGS[tag] if tag else None)


def parse_stable_abi(text: str) -> TorchStableAbi:
    """Read `torch-stable-abi211`.

    Raises:
        InvalidDocumentError: If the text is not of that form.
    """
    found = _STABLE.fullmatch(text)
    if not found:
        raise InvalidDocumentError("label", f"{text!r} is not a torch stable ABI", location="framework")
    return TorchStableAbi(Version(f"{found[1]}.{int(found[2])}"))


def parse_tvm_ffi(text: str) -> TvmFfi:
    """Read `tvm-ffi01`.

    Raises:
        InvalidDocumentError: If the text is not of that form.
    """
    found = _TVM.fullmatch(text)
    if not found:
        raise InvalidDocumentError("label", f"{text!r} is not a tvm-ffi version", location="framework")
    return TvmFfi(Version(f"{found[1]}.{int(found[2])}"))
