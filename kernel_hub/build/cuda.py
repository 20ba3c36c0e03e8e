"""CUDA in builds: which architectures a component is compiled for, and nvcc's argument vector. Pure.

Repository format, section (e): the default architectures by toolkit release, and how a recipe's `cuda-capabilities` choose
among them. Architectures are those of `kernel_hub.model.capability`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.version import Version

from kernel_hub.model.capability import CudaArch, parse_arch

CUDA_SUFFIX = ".cu"
# NVIDIA, CUDA toolkit release notes: 12.8 brought Blackwell, 13.0 dropped what came before Turing.
_DEFAULTS = (
    (Version("13.0"), ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0", "12.1+PTX")),
    (Version("12.8"), ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.1", "12.0+PTX")),
    (Version("0"), ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0+PTX")),
)


# nvcc runs its parts through a shell and quotes only some of what it was given: with a `$(...)` in a flag or a file's name,
# compiling a kernel would run it.
_INERT_FLAG = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")
_INERT_PATH = re.compile(r"[\w @%+=:,./~-]+")


def is_inert_flag(text: str) -> bool:
    """Whether a shell takes `text` for a word and nothing else, quoted or not."""
    return _INERT_FLAG.fullmatch(text) is not None


def is_inert_path(path: Path | str) -> bool:
    """Whether a shell takes a path for a word and nothing else, where nvcc quotes it."""
    return _INERT_PATH.fullmatch(str(path)) is not None


def default_archs(toolkit: Version) -> tuple[str, ...]:
    """What a component without `cuda-capabilities` is compiled for."""
    return next(archs for since, archs in _DEFAULTS if toolkit >= since)


def chosen_archs(asked: Sequence[str], toolkit: Version) -> tuple[str, ...]:
    """What a component is compiled for with a toolkit; empty if the toolkit makes nothing of what is asked for.

    Each architecture that the toolkit builds by default takes the highest one asked for that runs on it: of its own major
    version and not above it, or of any if PTX is included. One for a single device or family (`9.0a`, `10.0f`) is taken if
    the toolkit knows the device, and stands in for the plain one of the same number.

    Args:
        asked: `cuda-capabilities` of the recipe; empty for the toolkit's defaults.
        toolkit: The toolkit's release.
    """
    if not asked:
        return default_archs(toolkit)
    devices = [arch.capability for arch in _read(default_archs(toolkit))]
    wanted = _read(asked)
    special = [arch for arch in wanted if arch.suffix and arch.capability in devices]
    replaced = {arch.capability for arch in special}
    # A toolkit that dropped a device has no code for it, not even for the sake of PTX.
    able = [arch for arch in wanted if not arch.suffix and arch.capability >= min(devices)]
    plain = [arch for arch in able if arch.ptx or arch.capability not in replaced]
    taken = set(special)
    for device in devices:
        fitting = [
            arch for arch in plain if arch.capability <= device and (arch.ptx or arch.capability.major == device.major)
        ]
        if fitting:
            taken.add(max(fitting, key=lambda arch: (arch.capability, arch.ptx)))
    return tuple(str(arch) for arch in sorted(taken, key=lambda arch: (arch.capability, arch.suffix, arch.ptx)))


def listed_archs(archs: Iterable[str]) -> tuple[str, ...]:
    """Architectures as metadata lists them: each once, in order of their text."""
    return tuple(sorted(set(archs)))


def code_options(archs: Iterable[str]) -> tuple[str, ...]:
    """nvcc's options for architectures."""
    options = []
    for arch in _read(archs):
        name = f"{arch.capability.major}{arch.capability.minor}{arch.suffix}"
        code = f"[sm_{name},compute_{name}]" if arch.ptx else f"sm_{name}"
        options.append(f"-gencode=arch=compute_{name},code={code}")
    return tuple(options)


def device_options(host_compiler: Path, source: str, archs: Iterable[str]) -> tuple[str, ...]:
    """nvcc's options that are neither the host compiler's nor the component's own."""
    return (
        "-ccbin", str(host_compiler), *code_options(archs), "--threads=1",
        # Names of a source's internal symbols are made from its path; said relative to the kernel's folder, it is the
        # same everywhere. Temporary files with random names would show as well, so they take the object's.
        "-Xcudafe", f"--orig_src_path_name={source}", "-objtemp",
    )  # fmt: skip


def clang_options(root: Path, headers: Path, gcc: Path, cpu: str, archs: Iterable[str]) -> tuple[str, ...]:
    """Clang's options for device code; they come before the source, to which they say what it is.

    Args:
        root: The toolkit's folder.
        headers: Clang's own folder of headers.
        gcc: Where the GCC lies whose C++ library is used.
        cpu: The processor, as labels write it.
        archs: What to compile for.
    """
    options = []
    for arch in _read(archs):
        name = f"sm_{arch.capability.major}{arch.capability.minor}{arch.suffix}"
        options += [f"--cuda-gpu-arch={name}", f"--{'' if arch.ptx else 'no-'}cuda-include-ptx={name}"]
    return (
        "-x", "cuda", f"--cuda-path={root}", *options, "-resource-dir", str(headers), f"--gcc-toolchain={gcc}",
        "-target", f"{cpu}-linux-gnu",
    )  # fmt: skip


def foreign_to_clang(flags: Iterable[str]) -> tuple[str, ...]:
    """Those of nvcc's flags that clang does not take for what they are."""
    return tuple(flag for flag in flags if not flag.startswith(("-D", "-U", "-O", "-W")))


def for_host(flags: Iterable[str]) -> tuple[str, ...]:
    """The host compiler's flags as nvcc passes them on.

    Those with spaces, which it does not quote, are left out; they are the ones that map a folder's name to another, and
    sources are named relative to the folder in any case.
    """
    return tuple(part for flag in flags if is_inert_flag(flag) for part in ("-Xcompiler", flag))


def _read(texts: Iterable[str]) -> list[CudaArch]:
    return [arch for text in texts if isinstance(arch := parse_arch(text), CudaArch)]
