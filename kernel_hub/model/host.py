"""The machine as a value: what selection must know about it, and how each fact was found.

A `Host` is detected once (see `kernel_hub.detect`), printed, written to JSON, edited, and passed in; so selection can be
asked about any machine, also one that is not here. A fact that could not be found is None, never a guess.

JSON form (one object; every key optional, null means unknown; a file on a command line must name the CPU or the system):

    cpu, os                 "x86_64", "linux"
    torch                   full version text, e.g. "2.9.0.dev20250820+cu128", or major.minor
    cxx11_abi               whether torch uses libstdc++'s C++11 strings (Linux only)
    tvm_ffi                 version of apache-tvm-ffi
    backend, backend_version  what the installed torch was built for, e.g. "cuda", "13.0"
    driver                  version of the GPU driver
    devices                 [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "arch": "9.0"}], [] = looked for and none found
    libc, macos, python, free_threaded, cpu_features
    probes                  {key: how the fact was found}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from packaging.version import InvalidVersion, Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import Backend, BackendKind, parse_kind
from kernel_hub.model.capability import Capability, CudaCapability, RocmArch, parse_capability
from kernel_hub.model.value import dataclass

ANY_MACOS = Version("999.0")
"""Stands for "whichever macOS a build asks for", in a host that nobody looked at; never shown as a version."""

_KEYS = frozenset(
    [
        "cpu",
        "os",
        "torch",
        "cxx11_abi",
        "tvm_ffi",
        "backend",
        "backend_version",
        "driver",
        "devices",
        "libc",
        "macos",
        "python",
        "free_threaded",
        "cpu_features",
        "probes",
    ]
)


@dataclass(frozen=True, slots=True)
class Device:
    """One visible accelerator.

    Attributes:
        index: Its index as the framework would number it.
        name: The vendor's product name.
        arch: Its architecture: compute capability or gfx target.
    """

    index: int
    name: str
    arch: Capability

    def __str__(self) -> str:
        return f"device {self.index} ({self.name}, {self.arch})"


@dataclass(frozen=True, slots=True)
class Host:
    """Facts about a machine; see the module for each one's meaning. None is "unknown"."""

    cpu: str | None = None
    os: str | None = None
    torch: Version | None = None
    cxx11_abi: bool | None = None
    tvm_ffi: Version | None = None
    backend: Backend | None = None
    driver: str | None = None
    devices: tuple[Device, ...] | None = None
    libc: str | None = None
    macos: Version | None = None
    python: Version | None = None
    free_threaded: bool | None = None
    cpu_features: tuple[str, ...] | None = None
    probes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def from_json(cls, document: object, *, name: str = "host") -> Host:
        """Read the JSON form.

        Args:
            document: The parsed JSON value.
            name: What to call the document in errors, e.g. its file name.

        Raises:
            InvalidDocumentError: With the key that is unknown or of the wrong type.
        """
        if not isinstance(document, Mapping):
            raise InvalidDocumentError(name, "a host is a JSON object")
        for key in document:
            if key not in _KEYS:
                raise InvalidDocumentError(name, "unknown key", location=str(key))
        reader = _Reader(document, name)
        probes = document.get("probes")
        probes = {} if probes is None else probes
        if not isinstance(probes, Mapping) or not all(
            isinstance(part, str) for pair in probes.items() for part in pair
        ):
            raise InvalidDocumentError(name, "is an object of texts", location="probes")
        return cls(
            cpu=reader.text("cpu"),
            os=reader.text("os"),
            torch=reader.version("torch"),
            cxx11_abi=reader.flag("cxx11_abi"),
            tvm_ffi=reader.version("tvm_ffi"),
            backend=reader.backend(),
            driver=reader.text("driver"),
            devices=reader.devices(),
            libc=reader.text("libc"),
            macos=reader.version("macos"),
            python=reader.version("python"),
            free_threaded=reader.flag("free_threaded"),
            cpu_features=reader.texts("cpu_features"),
            probes=MappingProxyType(dict(probes)),
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON form; `Host.from_json` is its inverse."""
        backend = self.backend
        return {
            "cpu": self.cpu,
            "os": self.os,
            "torch": _text(self.torch),
            "cxx11_abi": self.cxx11_abi,
            "tvm_ffi": _text(self.tvm_ffi),
            "backend": None if backend is None else backend.kind.value,
            "backend_version": None if backend is None else _text(backend.version),
            "driver": self.driver,
            "devices": None
            if self.devices is None
            else [{"index": device.index, "name": device.name, "arch": str(device.arch)} for device in self.devices],
            "libc": self.libc,
            "macos": _text(self.macos),
            "python": _text(self.python),
            "free_threaded": self.free_threaded,
            "cpu_features": None if self.cpu_features is None else list(self.cpu_features),
            "probes": dict(self.probes),
        }

    def for_backend(self, asked: str | None) -> Host:
        """This host as selection must see it when the caller asks for a backend.

        `None` and `"auto"` mean what torch was built for, except that a machine where GPUs were looked for and none was
        found computes on its CPU. Naming a backend explicitly always inspects for it, device or not.

        Raises:
            InvalidDocumentError: If `asked` is no backend's name.
        """
        if asked is None or asked == "auto":
            if self.backend is not None and self.backend.kind in _GPU_KINDS and self.devices == ():
                probe = f"torch is built for {self.backend}, but no device is visible"
                return replace(
                    self,
                    backend=Backend(BackendKind.CPU),
                    probes=MappingProxyType({**self.probes, "backend": probe}),
                )
            return self
        kind = parse_kind(asked)
        if self.backend is not None and self.backend.kind is kind:
            return self
        probe = f"asked for; torch here is built for {self.backend or 'an unknown backend'}"
        # A GPU beside a torch that was not built for it still tells which builds would run on it.
        devices = self.devices if self.devices and all(_belongs(device, kind) for device in self.devices) else None
        return replace(
            self, backend=Backend(kind), devices=devices, probes=MappingProxyType({**self.probes, "backend": probe})
        )


_GPU_KINDS = frozenset({BackendKind.CUDA, BackendKind.ROCM, BackendKind.XPU})


def describe(host: Host) -> list[tuple[str, str, str]]:
    """Every fact as texts, for people: its name, its value, and how it was found (empty if nobody noted it)."""
    yes_no = {True: "yes", False: "no", None: None}
    devices = None
    if host.devices is not None:
        devices = "; ".join(f"{device.index}: {device.name} ({device.arch})" for device in host.devices) or "none"
    features = None if host.cpu_features is None else " ".join(host.cpu_features) or "none"
    values: dict[str, object] = {
        "cpu": host.cpu,
        "os": host.os,
        "torch": host.torch,
        "cxx11_abi": yes_no[host.cxx11_abi],
        "tvm_ffi": host.tvm_ffi,
        "backend": host.backend,
        "driver": host.driver,
        "devices": devices,
        "libc": host.libc,
        "macos": host.macos,
        "python": host.python,
        "free_threaded": yes_no[host.free_threaded],
        "cpu_features": features,
    }
    return [
        (fact, "unknown" if value is None else str(value), host.probes.get(fact, "")) for fact, value in values.items()
    ]


def _belongs(device: Device, kind: BackendKind) -> bool:
    if kind is BackendKind.CUDA:
        return isinstance(device.arch, CudaCapability)
    return kind is BackendKind.ROCM and isinstance(device.arch, RocmArch)


def _text(version: Version | None) -> str | None:
    return None if version is None else str(version)


class _Reader:
    """Typed access to the keys of a host document, with errors that name the key."""

    def __init__(self, document: Mapping[str, object], name: str) -> None:
        self._document = document
        self._name = name

    def _fault(self, key: str, problem: str) -> InvalidDocumentError:
        return InvalidDocumentError(self._name, problem, location=key)

    def text(self, key: str) -> str | None:
        value = self._document.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        raise self._fault(key, f"{value!r} is not a text")

    def flag(self, key: str) -> bool | None:
        value = self._document.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self._fault(key, f"{value!r} is not true or false")

    def version(self, key: str) -> Version | None:
        text = self.text(key)
        if text is None:
            return None
        try:
            return Version(text)
        except InvalidVersion:
            raise self._fault(key, f"{text!r} is not a version") from None

    def texts(self, key: str) -> tuple[str, ...] | None:
        value = self._document.get(key)
        if value is None:
            return None
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise self._fault(key, "is not a list of texts")

    def backend(self) -> Backend | None:
        text = self.text("backend")
        if text is None:
            return None
        return Backend(parse_kind(text), self.version("backend_version"))

    def devices(self) -> tuple[Device, ...] | None:
        value = self._document.get("devices")
        if value is None:
            return None
        if not isinstance(value, list):
            raise self._fault("devices", "is not a list")
        return tuple(self._device(item, index) for index, item in enumerate(value))

    def _device(self, item: object, position: int) -> Device:
        key = f"devices[{position}]"
        if not isinstance(item, Mapping):
            raise self._fault(key, "is not an object")
        arch = item.get("arch")
        name = item.get("name", "unnamed")
        index = item.get("index", position)
        if not isinstance(arch, str) or not isinstance(name, str):
            raise self._fault(key, "needs texts 'arch' and 'name'")
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise self._fault(f"{key}.index", f"{index!r} is not a whole number from 0")
        return Device(index, name, parse_capability(arch))
