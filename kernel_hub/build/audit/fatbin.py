"""Which GPUs a native module carries machine code or PTX for, read from its CUDA fat binaries.

The section `.nv_fatbin` is a row of containers, each with entries of one architecture. NVIDIA documents the tools that
read them and not the format; what is used here was found on the output of CUDA 13.0. There cuobjdump 13.2 lists the same,
but for the `f`, which it does not print.

    container  u32 magic, u16 version, u16 header's length, u64 length of the entries
    entry      u16 kind (1 PTX, 2 machine code), u16, u32 header's length, u64 length of the code;
               at 28: u32 architecture (80, 90 ...); at 40: u32 flags, of which bit 20 is `a` and bit 21 is `f`
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.model.capability import CudaArch, CudaCapability, parse_arch

SECTION = ".nv_fatbin"
_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xI")
_PTX, _ELF = 1, 2
_ARCH_SPECIFIC, _FAMILY_SPECIFIC = 1 << 20, 1 << 21


@dataclass(frozen=True, slots=True, order=True)
class DeviceCode:
    """Code for one architecture.

    Attributes:
        arch: The architecture, e.g. "9.0a".
        ptx: Whether it is PTX rather than machine code.
    """

    arch: str
    ptx: bool

    def __str__(self) -> str:
        return f"PTX for {self.arch}" if self.ptx else f"machine code for {self.arch}"


def device_codes(section: bytes) -> frozenset[DeviceCode]:
    """The device code in the bytes of a module's `.nv_fatbin`. What it cannot follow it leaves out."""
    return frozenset(_read(section))


def check_archs(section: bytes | None, archs: tuple[str, ...], path: str) -> Iterator[Finding]:
    """Differences between the device code in a module and the architectures that its metadata lists.

    Args:
        section: The bytes of the module's `.nv_fatbin`; None if it has none.
        archs: What metadata lists.
        path: Where the module lies in the build.
    """
    there = device_codes(section or b"")
    stated: set[DeviceCode] = set()
    for text in archs:
        arch = parse_arch(text)
        if isinstance(arch, CudaArch):
            plain = f"{arch.capability}{arch.suffix}"
            stated |= {DeviceCode(plain, False)} | ({DeviceCode(plain, True)} if arch.ptx else set())
    for code in sorted(stated - there):
        yield Finding(
            Rule.ARCHS, path, str(code), "is stated in metadata and not in the module",
            "build it again; devices of that architecture would be sent a build that they can't run",
        )  # fmt: skip
    for code in sorted(there - stated):
        yield Finding(
            Rule.ARCHS, path, str(code), "is in the module and not stated in metadata",
            "build it again; devices of that architecture would not be offered the build",
        )  # fmt: skip


def _read(section: bytes) -> Iterator[DeviceCode]:
    place = 0
    while place + _CONTAINER.size <= len(section):
        magic, _, header, length = _CONTAINER.unpack_from(section, place)
        if magic != _MAGIC or header < _CONTAINER.size:
            # Containers are aligned, with nothing between them but zeros.
            place += 8
            continue
        end = min(place + header + length, len(section))
        yield from _entries(section, place + header, end)
        place += header + length


def _entries(section: bytes, place: int, end: int) -> Iterator[DeviceCode]:
    while place + _ENTRY.size <= end:
        kind, _, header, length, number, flags = _ENTRY.unpack_from(section, place)
        if header < _ENTRY.size:
            return
        if kind in (_PTX, _ELF):
            capability = CudaCapability(number // 10, number % 10)
            suffix = "a" if flags & _ARCH_SPECIFIC else "f" if flags & _FAMILY_SPECIFIC else ""
            yield DeviceCode(f"{capability}{suffix}", kind == _PTX)
        place += header + length
