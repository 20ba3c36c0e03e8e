"""CPU, operating system, C library, Python and tvm-ffi."""

from __future__ import annotations

from typing import Final

from packaging.version import Version

from kernel_hub.detect.probes import Found, Probes

_CPUS: Final = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
# What CPU kernels choose their code by; the names are the Linux kernel's.
_FEATURES: Final = frozenset(
    {
        "amx_bf16",
        "amx_int8",
        "amx_tile",
        "asimd",
        "asimddp",
        "avx2",
        "avx512_bf16",
        "avx512_fp16",
        "avx512_vnni",
        "avx512bw",
        "avx512dq",
        "avx512f",
        "avx512vl",
        "avx_vnni",
        "bf16",
        "f16c",
        "fma",
        "i8mm",
        "sme",
        "sve",
        "sve2",
        "svebf16",
    }
)
_FIRST_MACOS_BY_YEAR: Final = 26
_LAST_MACOS_BY_COUNT: Final = 15


def probe_cpu(probes: Probes) -> Found[str]:
    """The CPU as labels write it: `x86_64`, `aarch64`."""
    machine = probes.platform.machine
    name = machine.lower()
    return Found(_CPUS.get(name, name) or None, f"the operating system names it {machine!r}")


def probe_os(probes: Probes) -> Found[str]:
    """The operating system as labels write it."""
    return Found(probes.platform.system.lower() or None, "the platform this Python was built for")


def probe_cpu_features(probes: Probes) -> Found[tuple[str, ...]]:
    """Vector extensions that kernels choose their code by, sorted."""
    path = probes.path("/proc/cpuinfo")
    if not path.exists():
        return Found(None, "/proc/cpuinfo does not exist")
    # Reading all of it is slow on machines with hundreds of cores, and every core says the same.
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, listed = line.partition(":")
            if name.rstrip() in ("flags", "Features"):
                return Found(tuple(sorted(_FEATURES.intersection(listed.split()))), "flags in /proc/cpuinfo")
    return Found(None, "/proc/cpuinfo lists no features")


def probe_libc(probes: Probes) -> Found[str]:
    """The C library and its version, on Linux."""
    if probes.platform.system != "linux":
        return Found(None, "only asked on Linux")
    if probes.platform.libc:
        return Found(probes.platform.libc, "the C library's own answer (CS_GNU_LIBC_VERSION)")
    if any(probes.path("/lib").glob("ld-musl-*")):
        return Found("musl", "/lib/ld-musl-*; its version is not probed")
    return Found(None, "the C library does not say")


def probe_macos(probes: Probes) -> Found[Version]:
    """The version of macOS.

    A Python that was built before macOS 26 is told 16.0 there, since Apple went from 15 to 26; one built before
    macOS 11 is told 10.16 on every later system, which tells nothing.
    """
    if probes.platform.system != "darwin":
        return Found(None, "not macOS")
    text = probes.platform.macos
    if not text:
        return Found(None, "macOS did not answer")
    version = Version(text)
    if (version.major, version.minor) == (10, 16):
        return Found(None, "macOS answers 10.16, which it tells old programs on every system from 11 on")
    if _LAST_MACOS_BY_COUNT < version.major < _FIRST_MACOS_BY_YEAR:
        real = Version(f"{version.major - _LAST_MACOS_BY_COUNT - 1 + _FIRST_MACOS_BY_YEAR}.{version.minor}")
        return Found(real, f"macOS answers {text}, which it tells programs built before macOS 26")
    return Found(version, "macOS's own answer")


def probe_python(probes: Probes) -> Found[Version]:
    """The running Python's version."""
    return Found(Version(probes.platform.python), "the running interpreter")


def probe_free_threaded(probes: Probes) -> Found[bool]:
    """Whether the running Python was built without the GIL."""
    return Found(probes.platform.free_threaded, "Py_GIL_DISABLED of the running interpreter")


def probe_tvm_ffi(probes: Probes) -> Found[Version]:
    """The version of tvm-ffi; its package must be importable and its distribution named."""
    if probes.find_module("tvm_ffi") is None:
        return Found(None, "tvm_ffi is not installed")
    text = probes.find_version("apache-tvm-ffi")
    if text is None:
        return Found(None, "tvm_ffi can be imported, but no distribution apache-tvm-ffi says its version")
    return Found(Version(text), "metadata of the distribution apache-tvm-ffi")
