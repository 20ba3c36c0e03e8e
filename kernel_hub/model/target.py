"""A machine to lock for, as a short text: `linux-x86_64-cu128-torch2.13`.

Grammar; what is not named does not restrict:

    target  = os "-" cpu *( "-" fact )
    os      = "linux" | "darwin" | "windows"
    cpu     = "x86_64" | "aarch64"
    fact    = backend          as labels write it: cpu, cu128, rocm71, metal ...; at most one
            | "torch" M.m      at most one
            | "tvmffi" M.m     at most one
            | "macos" M[.m]    at most one
            | M.m | gfx...     a GPU architecture that must be able to run the build; any number

Leaves out: judging (see `kernel_hub.locking`); a target only says what the machine would be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import assert_never

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.capability import Capability, CudaCapability, RocmArch, UnknownArch, parse_capability
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.host import ANY_MACOS, Device, Host
from kernel_hub.model.variant import KNOWN_CPUS, KNOWN_SYSTEMS, ArchLabel, Label, NoarchLabel

_NAMED_VERSION = re.compile(r"(torch|tvmffi|macos)([0-9]+(?:\.[0-9]+)?)")
_EXAMPLE = "linux-x86_64-cu128-torch2.13"


@dataclass(frozen=True, slots=True)
class Target:
    """A machine, as far as it is named. None, or no architectures, means "any".

    Attributes:
        os, cpu: As labels write them.
        backend: What the machine computes on.
        torch, tvm_ffi, macos: Versions that are installed there (major.minor).
        archs: GPU architectures that must all be able to run a build.
    """

    os: str
    cpu: str
    backend: Backend | None = None
    torch: Version | None = None
    tvm_ffi: Version | None = None
    macos: Version | None = None
    archs: tuple[Capability, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read the text form.

        Raises:
            InvalidDocumentError: Naming the part that is not understood.
        """
        system, cpu, *facts = [*text.split("-"), ""] if "-" not in text else text.split("-")
        if system not in KNOWN_SYSTEMS or cpu not in KNOWN_CPUS:
            raise _fault(text, "does not start with an operating system and a CPU")
        backend: Backend | None = None
        versions: dict[str, Version] = {}
        archs: set[Capability] = set()
        for part in facts:
            match _read_fact(text, part):
                case Backend() as named:
                    if backend is not None:
                        raise _fault(text, "names two backends")
                    backend = named
                case (str(name), Version() as version):
                    if name in versions:
                        raise _fault(text, f"names {name} twice")
                    versions[name] = version
                case arch:
                    archs.add(arch)
        return cls(
            system,
            cpu,
            backend,
            versions.get("torch"),
            versions.get("tvmffi"),
            versions.get("macos"),
            tuple(sorted(archs, key=_arch_order)),
        )

    @classmethod
    def of(cls, host: Host) -> Target:
        """The target that a host is.

        Raises:
            InvalidDocumentError: If its operating system or CPU is not known, or its backend has no label.
        """
        if host.os not in KNOWN_SYSTEMS or host.cpu not in KNOWN_CPUS:
            raise InvalidDocumentError("host", f"{host.os}-{host.cpu} is no machine that kernels are built for")
        backend = host.backend
        if backend is not None:
            line = None if backend.version is None else _line(backend.version)
            backend = Backend.parse_label(Backend(backend.kind, line).label)
        archs = (device.arch for device in host.devices or ())
        return cls(
            host.os,
            host.cpu,
            backend,
            None if host.torch is None else _line(host.torch),
            None if host.tvm_ffi is None else _line(host.tvm_ffi),
            None if host.macos is None else _line(host.macos),
            # An architecture that this release cannot read restricts nothing, as in selection.
            tuple(sorted({arch for arch in archs if not isinstance(arch, UnknownArch)}, key=_arch_order)),
        )

    @property
    def host(self) -> Host | None:
        """This target as a host, or None if it leaves open what a host must have to choose one build."""
        if self.backend is None or self.torch is None:
            return None
        devices = tuple(Device(index, "target", arch) for index, arch in enumerate(self.archs))
        return Host(
            cpu=self.cpu,
            os=self.os,
            torch=self.torch,
            # Every torch that has a stable ABI is built with the newer string ABI on Linux.
            cxx11_abi=True if self.os == "linux" else None,
            tvm_ffi=self.tvm_ffi,
            backend=self.backend,
            devices=devices or None,
            macos=self.macos or ANY_MACOS,
        )

    def host_for(self, label: Label) -> Host:
        """This target as a host; what it leaves open is what `label` needs."""
        devices = tuple(Device(index, "target", arch) for index, arch in enumerate(self.archs))
        torch, tvm_ffi, backend = self.torch, self.tvm_ffi, self.backend
        cxx11: bool | None = None
        match label:
            case ArchLabel(framework, needed):
                backend = backend or needed
                match framework:
                    case Torch():
                        torch, cxx11 = torch or framework.version, framework.cxx11_abi
                    case TorchStableAbi(version):
                        torch = torch or version
                    case TvmFfi(version):
                        tvm_ffi = tvm_ffi or version
                    case _:
                        assert_never(framework)
            case NoarchLabel(name):
                backend = backend or _backend_named(name)
            case _:
                assert_never(label)
        return Host(
            cpu=self.cpu,
            os=self.os,
            torch=torch,
            cxx11_abi=cxx11,
            tvm_ffi=tvm_ffi,
            backend=backend,
            devices=devices or None,
            macos=self.macos or ANY_MACOS,
        )

    def __str__(self) -> str:
        parts = [self.os, self.cpu]
        if self.backend is not None:
            parts.append(self.backend.label)
        for name, version in (("torch", self.torch), ("tvmffi", self.tvm_ffi), ("macos", self.macos)):
            if version is not None:
                parts.append(f"{name}{version}")
        parts.extend(str(arch) for arch in self.archs)
        return "-".join(parts)


def _read_fact(text: str, part: str) -> Backend | tuple[str, Version] | CudaCapability | RocmArch:
    named = _NAMED_VERSION.fullmatch(part)
    if named:
        return named[1], _line(Version(named[2]))
    arch = parse_capability(part)
    if not isinstance(arch, UnknownArch):
        return arch
    try:
        return Backend.parse_label(part)
    except InvalidDocumentError:
        raise _fault(text, f"has the part {part!r}, which is no backend, version or GPU architecture") from None


def _arch_order(arch: Capability) -> tuple[int, int, str]:
    return (arch.major, arch.minor, "") if isinstance(arch, CudaCapability) else (1 << 16, 0, str(arch))


def _line(version: Version) -> Version:
    return Version(f"{version.major}.{version.minor}")


def _backend_named(name: str) -> Backend | None:
    kind = {"npu": "cann"}.get(name, name)
    return Backend(BackendKind(kind)) if kind in set(BackendKind) else None


def _fault(text: str, problem: str) -> InvalidDocumentError:
    return InvalidDocumentError(
        "target", f"{text!r} {problem}", hint=f"write one like '{_EXAMPLE}', or name a host file"
    )
