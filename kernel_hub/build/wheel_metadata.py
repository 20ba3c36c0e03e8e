"""What an installable wheel of a build says of itself: its file name, tags, version and requirements. Pure.

The core metadata specification (2.4), the binary distribution format (PEP 427) and version specifiers (PEP 440). A wheel is of
one build, and pip knows no backends, so the build's label is the local part of the version: `1+torch.stable.abi211.cpu`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_never

from packaging.utils import canonicalize_name
from packaging.version import Version

from kernel_hub.build.blueprint import is_reserved
from kernel_hub.errors import BuildError, InvalidDocumentError
from kernel_hub.model.dependencies import python_dependency
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.variant import ArchLabel, Label, NoarchLabel

PYTHON_FLOOR = "3.9"
FLOOR_POLICY = "manylinux_2_28"
_POLICY = re.compile(r"manylinux_(\d+)_(\d+)")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class WheelName:
    """A wheel's name, apart from its file.

    Attributes:
        distribution: What pip calls it, as its author writes it.
        version: Its version, the build's label in the local part.
        tag: Its compatibility tag.
    """

    distribution: str
    version: Version
    tag: str

    @property
    def stem(self) -> str:
        """Distribution and version as file names in and of a wheel write them."""
        return f"{canonicalize_name(self.distribution).replace('-', '_')}-{self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.stem}-{self.tag}.whl"

    @property
    def dist_info(self) -> str:
        """The folder of the wheel's own files."""
        return f"{self.stem}.dist-info"


def wheel_name(metadata: Metadata, label: Label, policy: str, distribution: str | None = None) -> WheelName:
    """What the wheel of a build is called.

    Args:
        metadata: The build's.
        label: What it runs on.
        policy: For compiled builds, the oldest system that auditwheel finds them fit for, e.g. "manylinux_2_17".
        distribution: Another name than the kernel's.

    Raises:
        BuildError: If no wheel can hold it.
        InvalidDocumentError: If `distribution` is not the name of one.
    """
    name = metadata.name if distribution is None else distribution
    if not _NAME.fullmatch(name):
        raise InvalidDocumentError("wheel", f"{name!r} is not the name of a distribution", location="name")
    if is_reserved(metadata.python_name):
        raise BuildError(
            f"{metadata.name} would be installed as the Python package {metadata.python_name!r}, in place of another",
            hint="load it with kernel_hub, which installs nothing under that name",
        )
    if metadata.kernel_depends:
        needed = ", ".join(str(item.repo) for item in metadata.kernel_depends)
        raise BuildError(
            f"{metadata.name} needs other kernels ({needed}), which pip can't install",
            hint="load it with kernel_hub, which brings them",
        )
    build = str(label) if isinstance(label, NoarchLabel) else str(label).removesuffix(f"-{label.cpu}-{label.os}")
    version = Version(f"{metadata.version}+{build.replace('-', '.')}")
    return WheelName(name, version, _tag(label, policy))


def _tag(label: Label, policy: str) -> str:
    if isinstance(label, NoarchLabel):
        return "py3-none-any"
    if label.os != "linux":
        raise BuildError(
            f"{label} is for {label.os}, and wheels of compiled builds are made for Linux only",
            hint="load it with kernel_hub",
        )
    found = _POLICY.fullmatch(policy)
    if found is None:
        raise BuildError(
            f"{label} fits no manylinux system, says auditwheel: {policy}",
            hint="build it again with kernel-hub build, which links for old systems",
        )
    # The label promises the floor and no less, whatever the symbols of this build happen to need.
    floor = _POLICY.fullmatch(FLOOR_POLICY)
    assert floor is not None
    numbers = max((int(found[1]), int(found[2])), (int(floor[1]), int(floor[2])))
    python = "py3-none" if isinstance(label.framework, TvmFfi) else f"cp{PYTHON_FLOOR.replace('.', '')}-abi3"
    return f"{python}-manylinux_{numbers[0]}_{numbers[1]}_{label.cpu}"


def requirements(metadata: Metadata, label: Label, *, imports_torch: bool = False) -> tuple[str, ...]:
    """What pip must install beside the wheel, by name.

    Args:
        metadata: The build's.
        label: What it runs on.
        imports_torch: Whether its Python sources need torch, which a label of another framework does not tell.

    Raises:
        BuildError: If it needs something that pip may know under any name.
    """
    found = {"torch": "torch"} if imports_torch else {}
    for name in metadata.python_depends:
        known = python_dependency(name, metadata.backend)
        if known is None:
            raise BuildError(f"{metadata.name} needs {name!r}, and it is not known what pip calls that")
        found[known.distribution] = known.distribution
    if isinstance(label, ArchLabel):
        match label.framework:
            case TorchStableAbi(version=version):
                found["torch"] = f"torch>={version}"
            case Torch(version=version):
                found["torch"] = f"torch=={version}.*"
            case TvmFfi(version=version):
                found["apache-tvm-ffi"] = f"apache-tvm-ffi=={version}.*"
            case _:
                assert_never(label.framework)
    else:
        found["torch"] = "torch"
    return tuple(found[name] for name in sorted(found))


def core_metadata(
    name: WheelName, metadata: Metadata, label: Label, requires: tuple[str, ...], licenses: tuple[str, ...] = ()
) -> str:
    """The text of METADATA.

    Args:
        name: The wheel's name.
        metadata: The build's.
        label: What it runs on.
        requires: What pip must install beside it.
        licenses: The names of the licence files that the wheel carries.
    """
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name.distribution}",
        f"Version: {name.version}",
        f"Summary: The kernel {metadata.name} version {metadata.version}, build {label}",
        _license(metadata.license),
        *(f"License-File: {file}" for file in licenses),
        *(f"Project-URL: {title}, {_line(url)}" for title, url in _links(metadata)),
        f"Requires-Python: >={PYTHON_FLOOR}",
        *(f"Requires-Dist: {item}" for item in requires),
    ]
    return "\n".join(line for line in lines if line) + "\n"


def wheel_file(name: WheelName, *, generator: str) -> str:
    """The text of WHEEL."""
    is_pure = str(name.tag.endswith("-any")).lower()
    return f"Wheel-Version: 1.0\nGenerator: {generator}\nRoot-Is-Purelib: {is_pure}\nTag: {name.tag}\n"


def _license(text: str) -> str:
    # The Hub's ids are SPDX's in lower case, but for a few such as "other".
    if not text:
        return ""
    try:
        from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
    except ImportError:
        return f"License: {_line(text)}"
    try:
        return f"License-Expression: {canonicalize_license_expression(text)}"
    except InvalidLicenseExpression:
        return f"License: {_line(text)}"


def _links(metadata: Metadata) -> list[tuple[str, str]]:
    return [(title, url) for title, url in (("Source", metadata.source), ("Upstream", metadata.upstream)) if url]


def _line(text: str) -> str:
    """The text in one line: what comes after a line feed would be another field."""
    return " ".join(text.split())
