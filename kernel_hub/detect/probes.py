"""What the detector may touch, as a value: files below a root, the environment, modules, NVML and the interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from kernel_hub.model.value import dataclass

T = TypeVar("T")

_MAX_TEXT_BYTES = 1 << 20
# Typed as any text, so that the type checker reads the branches of the systems that it does not run on, too.
_PLATFORM: str = sys.platform


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A fact, or None for unknown, and how it was found or why it was not."""

    value: T | None
    how: str


@dataclass(frozen=True, slots=True)
class Platform:
    """What the interpreter knows about itself and its operating system.

    Attributes:
        system: The operating system as labels write it: `linux`, `darwin`, `windows`.
        machine: The CPU as the operating system names it, e.g. `x86_64`, `arm64`, `amd64`.
        python: The version of Python, major.minor.micro.
        free_threaded: Whether this Python was built without the GIL.
        libc: What the C library says about itself, e.g. `glibc 2.36`; empty if it says nothing.
        macos: What macOS answers when asked for its version; empty elsewhere.
    """

    system: str
    machine: str
    python: str
    free_threaded: bool = False
    libc: str = ""
    macos: str = ""


@dataclass(frozen=True, slots=True)
class Probes:
    """Everything that detection reads.

    Attributes:
        platform: The interpreter's own facts.
        find_module: The folder of an importable package, found without executing it; None if there is none.
        find_version: The version of an installed distribution from its metadata; None if it is not installed.
        load_nvml: The `pynvml` module. Raises ImportError where it is not installed.
        environ: The environment that restricts devices, e.g. CUDA_VISIBLE_DEVICES.
        root: The folder that stands for `/`.
        imported: The module of a name, if this process has imported it already; else None.
    """

    platform: Platform
    find_module: Callable[[str], Path | None]
    find_version: Callable[[str], str | None]
    load_nvml: Callable[[], Any]
    environ: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    root: Path = Path("/")
    imported: Callable[[str], ModuleType | None] = lambda _: None

    def path(self, absolute: str) -> Path:
        """Where a file of the machine lies, given as it would be written there."""
        return self.root / absolute.lstrip("/")


def guarded(probe: Callable[[], Found[T]]) -> Found[T]:
    """Ask one probe; whatever goes wrong inside it makes its fact unknown."""
    try:
        return probe()
    # A probe reads what others installed: broken files, half-removed packages, drivers that do not match their libraries.
    # None of that may stop a kernel from loading, so this is the one place where any exception becomes a fact.
    except Exception as error:  # noqa: BLE001
        # Unlike str(), this also survives an exception whose own text fails, as NVML's can without its library.
        text = traceback.format_exception_only(error)[-1]
        return Found(None, f"the probe failed: {' '.join(text.split())}")


def read_text(path: Path) -> str:
    """A small text file; at most 1 MiB of it, since nothing that is probed is larger.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as stream:
        return stream.read(_MAX_TEXT_BYTES).decode("utf-8", "replace")


def this_machine(environ: Mapping[str, str] | None = None) -> Probes:
    """Probes of the running interpreter.

    Args:
        environ: The environment to honour; default: none of it, since only the settings may read it.
    """
    return Probes(
        platform=Platform(
            system="windows" if _PLATFORM == "win32" else _PLATFORM,
            machine=_machine(),
            python=".".join(str(part) for part in sys.version_info[:3]),
            free_threaded=_free_threaded(),
            libc=_libc(),
            macos=_macos(),
        ),
        find_module=_find_module,
        find_version=_find_version,
        load_nvml=_load_nvml,
        environ=MappingProxyType({}) if environ is None else environ,
        imported=sys.modules.get,
    )


def _free_threaded() -> bool:
    # The flags of the ABI say so too, and asking sysconfig costs more than all of detection: it reads the build's variables.
    flags: str | None = getattr(sys, "abiflags", None)
    if flags is not None:
        return "t" in flags
    # Windows before Python 3.14, where sysconfig has few variables.
    import sysconfig

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def _machine() -> str:
    if _PLATFORM == "win32":
        import sysconfig

        # On ARM machines an x86-64 Python runs emulated; builds must match the process, which only sysconfig describes.
        return sysconfig.get_platform().removeprefix("win-")
    return os.uname().machine


def _libc() -> str:
    if _PLATFORM != "linux":
        return ""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _macos() -> str:
    if _PLATFORM != "darwin":
        return ""
    import platform

    return platform.mac_ver()[0]


def _find_module(name: str) -> Path | None:
    from importlib.util import find_spec

    found = find_spec(name)
    # A folder without __init__.py, such as one that pip left behind, has no origin and is no installation.
    if found is None or not found.has_location or found.origin is None:
        return None
    return Path(found.origin).parent


def _find_version(distribution: str) -> str | None:
    text = _named_version(distribution)
    if text is not None:
        return text
    # This import costs more than all other probes together, so only those who need it pay.
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _named_version(distribution: str) -> str | None:
    """The version in the name of a distribution's folder, as wheels are installed; None if no such folder is found."""
    beginning = f"{distribution.replace('-', '_').lower()}-"
    for folder in sys.path:
        # What cannot be listed is a zip file, or not there.
        with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                name = entry.name
                is_it = name.endswith(".dist-info") and name.lower().startswith(beginning)
                if is_it and Path(entry.path, "METADATA").is_file():
                    return name[len(beginning) : -len(".dist-info")]
    return None


def _load_nvml() -> Any:
    import pynvml

    return pynvml
