"""What runs where, as rows: one for each build of a version, from its label and what its metadata says. Pure.

A build whose metadata can't be read has a row as well, since a loader selects by label first. A folder whose name is no
label has none, because no loader of this release takes it.

Leaves out: how rows are shown (see `kernel_hub.build.card_sections`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from packaging.version import Version

from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.framework import Framework, Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.variant import ArchLabel, Label, NoarchLabel, UnknownLabel, read_label

ANY_TORCH = "any torch"
ANY_SYSTEM = "any"
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "windows": "Windows"}
_NONE = Version("0")


@dataclass(frozen=True, slots=True)
class Row:
    """Where one build runs.

    Attributes:
        backend: What it computes on, e.g. "CUDA 13.0".
        framework: The torch or tvm-ffi releases that load it.
        system: Operating system and CPU; "any" for a build without compiled code.
        archs: GPU architectures, as metadata names them.
        label: The build.
    """

    backend: str
    framework: str
    system: str
    archs: tuple[str, ...]
    label: str


def compatibility(builds: Mapping[str, Metadata | None]) -> tuple[Row, ...]:
    """The rows of a version's builds, sorted by backend, framework, system and label.

    Args:
        builds: Metadata by label; None where it can't be read.
    """
    known = [(label, said) for text, said in builds.items() if not isinstance(label := read_label(text), UnknownLabel)]
    return tuple(_row(label, said) for label, said in sorted(known, key=lambda item: _order(item[0])))


def _row(label: Label, said: Metadata | None) -> Row:
    archs = () if said is None else said.archs
    match label:
        case ArchLabel(framework, backend, cpu, system):
            return Row(str(backend), _releases(framework), f"{_SYSTEMS.get(system, system)} {cpu}", archs, str(label))
        case NoarchLabel(name):
            return Row(_title(name), ANY_TORCH, ANY_SYSTEM, archs, str(label))
        case _:
            assert_never(label)


def _title(name: str) -> str:
    return str(Backend(BackendKind(name))) if name in set(BackendKind) else name


def _releases(framework: Framework) -> str:
    match framework:
        case TorchStableAbi(version):
            return f"torch {version} and newer"
        case Torch(cxx11_abi=False):
            return f"{framework} (C++98 ABI)"
        case Torch() | TvmFfi():
            return str(framework)
        case _:
            assert_never(framework)


def _order(label: Label) -> tuple[str, Version, str, Version, str]:
    match label:
        case ArchLabel(framework, backend):
            named = type(framework).__name__
            return backend.kind.value, backend.version or _NONE, named, framework.version, str(label)
        case NoarchLabel(name):
            return name, _NONE, "", _NONE, str(label)
        case _:
            assert_never(label)
