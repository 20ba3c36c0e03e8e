"""What a build computes on: CPU, CUDA 12.8, ROCm 7.1, Metal ..., and how labels write it.

Label text (repository format, section a): a bare word for `cpu metal neuron tpu`; `cu|rocm|xpu|cann` followed by the
version's digits, of which the last is the minor version.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass


class BackendKind(StrEnum):
    """The backends of the format, by the names that metadata and build recipes use."""

    CANN = "cann"
    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    NEURON = "neuron"
    ROCM = "rocm"
    TPU = "tpu"
    XPU = "xpu"


VERSIONED_PREFIXES = {
    BackendKind.CUDA: "cu",
    BackendKind.ROCM: "rocm",
    BackendKind.XPU: "xpu",
    BackendKind.CANN: "cann",
}
_PREFIX_KINDS = {prefix: kind for kind, prefix in VERSIONED_PREFIXES.items()}
_TITLES = {
    BackendKind.CANN: "CANN",
    BackendKind.CPU: "CPU",
    BackendKind.CUDA: "CUDA",
    BackendKind.METAL: "Metal",
    BackendKind.NEURON: "Neuron",
    BackendKind.ROCM: "ROCm",
    BackendKind.TPU: "TPU",
    BackendKind.XPU: "XPU",
}
_VERSIONED = Pattern(r"(cu|rocm|xpu|cann)([0-9]{1,6})([0-9])")


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend and, for those that have one, its version (major.minor).

    `version` is None for `cpu`, `metal`, `neuron` and `tpu`, and on a host whose version could not be found.
    """

    kind: BackendKind
    version: Version | None = None

    @classmethod
    def parse_label(cls, text: str) -> Backend:
        """Read the backend part of a label, e.g. `cu128`.

        Raises:
            InvalidDocumentError: If no backend is written so.
        """
        return _parse_label(text)

    @property
    def label(self) -> str:
        """The text inside a label, the inverse of `parse_label`."""
        prefix = VERSIONED_PREFIXES.get(self.kind)
        if prefix is None:
            return self.kind.value
        if self.version is None or self.version.minor > 9:
            raise InvalidDocumentError("backend", f"{self} has no label: it takes a version with a one-digit minor")
        return f"{prefix}{self.version.major}{self.version.minor}"

    def __str__(self) -> str:
        title = _TITLES[self.kind]
        return title if self.version is None else f"{title} {self.version}"


def parse_kind(text: str) -> BackendKind:
    """Read a backend's name, e.g. `cuda`.

    Raises:
        InvalidDocumentError: If it is not one of the format's names.
    """
    try:
        return BackendKind(text)
    except ValueError:
        known = ", ".join(kind.value for kind in BackendKind)
        raise InvalidDocumentError("backend", f"{text!r} is not a backend", hint=f"backends are {known}") from None


# Builds by the thousand share a few dozen backends, and making a Version costs more than the rest of a label.
@lru_cache(maxsize=4096)
def _parse_label(text: str) -> Backend:
    found = _VERSIONED.fullmatch(text)
    if found:
        return Backend(_PREFIX_KINDS[found[1]], Version(f"{int(found[2])}.{found[3]}"))
    try:
        kind = BackendKind(text)
    except ValueError:
        kind = None
    if kind is None or kind in VERSIONED_PREFIXES:
        raise InvalidDocumentError("label", f"{text!r} is not a backend", location="backend")
    return Backend(kind)
