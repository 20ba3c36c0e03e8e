"""NVIDIA devices and driver, from NVML or from the files of the driver; no CUDA context is made.

NVML numbers devices by PCI bus, CUDA by default "fastest first" (CUDA Programming Guide, CUDA_DEVICE_ORDER). With equal
devices that is the same; with unlike ones the order is known only if CUDA_DEVICE_ORDER is PCI_BUS_ID or devices are named
by UUID. A process sees one MIG instance at most (the same guide, CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kernel_hub.detect.libraries import library_folders
from kernel_hub.detect.probes import Found, Probes, guarded, read_text
from kernel_hub.detect.visible import Unclear, choose, names_by_index
from kernel_hub.model.capability import CudaCapability
from kernel_hub.model.host import Device
from kernel_hub.model.value import dataclass

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_DRIVER_NOT_LOADED: Final = 9
_LIBRARY_NOT_FOUND: Final = 12
_LIBRARY: Final = "libnvidia-ml.so.1"
_LINKER_CACHE: Final = "/etc/ld.so.cache"
_INSTALL: Final = "pip install 'kernel-hub[gpu]' to read them through NVML"
# Boards whose GPU is part of the chip, by the device tree's name of the chip. Compute capabilities: NVIDIA's list
# "CUDA GPU Compute Capability", rows Jetson TX2, AGX Xavier and AGX Orin.
_TEGRA: Final = {
    "nvidia,tegra186": ("NVIDIA Tegra X2", CudaCapability(6, 2)),
    "nvidia,tegra194": ("NVIDIA Xavier", CudaCapability(7, 2)),
    "nvidia,tegra234": ("NVIDIA Orin", CudaCapability(8, 7)),
}


@dataclass(frozen=True, slots=True)
class Gpus:
    """What was found out about one vendor's GPUs."""

    driver: Found[str]
    devices: Found[tuple[Device, ...]]


@dataclass(frozen=True, slots=True)
class _Mig:
    """One MIG instance."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One physical GPU; `migs` is None where it is not divided."""

    uuid: str
    name: str
    arch: CudaCapability
    migs: tuple[_Mig, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Absent:
    """NVML cannot be used.

    Attributes:
        problem: Why.
        driver: NVML's own word on whether there is a driver: False if it says that there is none, True if it has
            trouble with one, None if NVML could not be asked.
    """

    problem: str
    driver: bool | None


def probe_nvidia(probes: Probes) -> Gpus:
    """NVIDIA's driver and visible devices."""
    # Loading the binding costs more than all other probes, so machines without any sign of a driver are spared it.
    if probes.platform.system == "linux" and guarded(lambda: _sign_of_a_driver(probes)).value == "":
        nothing = "no libnvidia-ml.so.1 and no device file of an NVIDIA GPU"
        return Gpus(Found(None, nothing), _tegra_or(probes, Found((), nothing)))
    started = guarded(lambda: _start(probes))
    nvml = started.value
    if nvml is None or isinstance(nvml, _Absent):
        absent = _Absent(started.how, None) if nvml is None else nvml
        return Gpus(
            guarded(lambda: _driver_file(probes, absent)), _tegra_or(probes, guarded(lambda: _by_files(probes, absent)))
        )
    driver = guarded(lambda: Found(_text(nvml.nvmlSystemGetDriverVersion()), "NVML"))
    devices = guarded(lambda: _visible(probes, _gpus(nvml)))
    guarded(lambda: Found(nvml.nvmlShutdown(), ""))
    return Gpus(driver, devices if devices.value else _tegra_or(probes, devices))


def _start(probes: Probes) -> Found[Any]:
    try:
        nvml = probes.load_nvml()
    except ImportError:
        return Found(_Absent(f"nvidia-ml-py is not installed: {_INSTALL}", None), "")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        missing = error.value in (_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND)
        return Found(_Absent(f"NVML: {error}", not missing), "")
    return Found(nvml, "")


def _gpus(nvml: Any) -> list[_Gpu]:
    return [_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())]


def _gpu(nvml: Any, device: Any) -> _Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(device)
    return _Gpu(
        uuid=_text(nvml.nvmlDeviceGetUUID(device)),
        name=_text(nvml.nvmlDeviceGetName(device)),
        arch=CudaCapability(major, minor),
        migs=tuple(_migs(nvml, device)) if _is_divided(nvml, device) else None,
    )


def _is_divided(nvml: Any, device: Any) -> bool:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(device)
    except nvml.NVMLError:
        # Devices that cannot be divided answer "not supported", old drivers "function not found".
        return False
    return bool(current)


def _migs(nvml: Any, device: Any) -> Iterator[_Mig]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except nvml.NVMLError:
            # Slots of the GPU that hold no instance answer "not found".
            continue
        yield _Mig(_text(nvml.nvmlDeviceGetUUID(mig)), _text(nvml.nvmlDeviceGetName(mig)))


def _visible(probes: Probes, gpus: list[_Gpu]) -> Found[tuple[Device, ...]]:
    listed = probes.environ.get(VISIBLE)
    if listed is not None and listed.strip().upper().startswith("MIG-"):
        return _named_mig(listed, gpus)
    how = "NVML" if listed is None else f"NVML, {VISIBLE}={listed}"
    by_bus = probes.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    unlike = len({(gpu.name, gpu.arch) for gpu in gpus}) > 1 and not by_bus
    if listed is None:
        chosen = list(gpus)
        if unlike:
            how += "; numbered by PCI bus, which CUDA does only with CUDA_DEVICE_ORDER=PCI_BUS_ID"
    else:
        choice = choose(listed, [gpu.uuid for gpu in gpus])
        if isinstance(choice, Unclear):
            return Found(None, f"{VISIBLE}={listed}: {choice.problem}")
        if unlike and choice and names_by_index(listed):
            problem = "the GPUs are unlike and CUDA numbers them by speed; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
            return Found(None, f"{VISIBLE}={listed}: {problem}")
        chosen = [gpus[index] for index in choice]
    if any(gpu.migs is not None for gpu in chosen):
        return _first_mig(chosen, how)
    return Found(tuple(Device(index, gpu.name, gpu.arch) for index, gpu in enumerate(chosen)), how)


def _first_mig(chosen: list[_Gpu], how: str) -> Found[tuple[Device, ...]]:
    """What a process sees of divided GPUs: their first instance."""
    if any(gpu.migs is None for gpu in chosen) or len({gpu.arch for gpu in chosen}) > 1:
        return Found(None, f"{how}: MIG instances beside other GPUs; name one by UUID in {VISIBLE}")
    instances = [(gpu, mig) for gpu in chosen for mig in gpu.migs or ()]
    if not instances:
        return Found((), f"{how}: in MIG mode, without an instance")
    gpu, mig = instances[0]
    return Found((Device(0, mig.name, gpu.arch),), f"{how}: in MIG mode, where a process sees one instance")


def _named_mig(listed: str, gpus: list[_Gpu]) -> Found[tuple[Device, ...]]:
    """The instance that the variable names first: by its own UUID, or by GPU UUID and instance numbers."""
    first = listed.split(",")[0].strip().lower()
    how = f"NVML, {VISIBLE}={listed}"
    for gpu in gpus:
        for mig in gpu.migs or ():
            if mig.uuid.lower().startswith(first):
                return Found((Device(0, mig.name, gpu.arch),), how)
        if first.startswith(f"mig-{gpu.uuid.lower()}/"):
            return Found((Device(0, gpu.name, gpu.arch),), how)
    return Found(None, f"{how}: no such MIG instance was found")


def _by_files(probes: Probes, absent: _Absent) -> Found[tuple[Device, ...]]:
    """Whether there may be a GPU where NVML cannot be asked; what kind it is, nobody else can tell."""
    if absent.driver is not False:
        return Found(None, absent.problem)
    trace = _trace_of_a_gpu(probes) if probes.platform.system == "linux" else ""
    if trace:
        return Found(None, f"{absent.problem}; {trace} exists, so there may be a GPU")
    return Found((), absent.problem)


def _sign_of_a_driver(probes: Probes) -> Found[str]:
    """Found("") only if neither a device file nor a library that the dynamic linker would find is there."""
    return Found(_trace_of_a_gpu(probes) or _driver_library(probes), "")


def _trace_of_a_gpu(probes: Probes) -> str:
    """A file that only a machine with an NVIDIA GPU has; empty if there is none."""
    devices = sorted(_names_in(probes, "/dev"))
    for name in devices:
        if name.startswith("nvidia") and name[6:7].isdecimal():
            return f"/dev/{name}"
    for name in sorted(_names_in(probes, "/proc/driver/nvidia/gpus")):
        return f"/proc/driver/nvidia/gpus/{name}"
    # The last one is the GPU of a Windows machine, seen from the Linux inside it.
    return next((f"/dev/{name}" for name in ("nvhost-gpu", "nvgpu", "dxg") if name in devices), "")


def _names_in(probes: Probes, folder: str) -> list[str]:
    try:
        return [path.name for path in probes.path(folder).iterdir()]
    except OSError:
        return []


def _driver_library(probes: Probes) -> str:
    """Where the dynamic linker would find NVML's library, without which CUDA finds no device; empty if nowhere."""
    for folder in library_folders(probes):
        if (folder / _LIBRARY).exists():
            return str(folder / _LIBRARY)
    cache = probes.path(_LINKER_CACHE)
    return _LINKER_CACHE if cache.is_file() and _LIBRARY.encode() in cache.read_bytes() else ""


def _tegra_or(probes: Probes, otherwise: Found[tuple[Device, ...]]) -> Found[tuple[Device, ...]]:
    """The integrated GPU of a Jetson board, which NVML of most releases does not describe."""
    tegra = guarded(lambda: _tegra(probes))
    return otherwise if tegra.value is None else tegra


def _tegra(probes: Probes) -> Found[tuple[Device, ...]]:
    path = probes.path("/proc/device-tree/compatible")
    chips = read_text(path).split("\0") if path.is_file() else []
    for chip in chips:
        if chip in _TEGRA:
            name, arch = _TEGRA[chip]
            listed = probes.environ.get(VISIBLE)
            how = f"/proc/device-tree/compatible: {chip}"
            if listed is None:
                return Found((Device(0, name, arch),), how)
            choice = choose(listed, [""])
            if isinstance(choice, Unclear):
                return Found(None, f"{VISIBLE}={listed}: {choice.problem}")
            return Found(tuple(Device(0, name, arch) for _ in choice), f"{how}, {VISIBLE}={listed}")
    return Found(None, "not a board with an integrated NVIDIA GPU")


def _driver_file(probes: Probes, absent: _Absent) -> Found[str]:
    if probes.platform.system != "linux":
        return Found(None, absent.problem)
    absolute = "/sys/module/nvidia/version"
    path = probes.path(absolute)
    if path.is_file():
        return Found(read_text(path).strip() or None, absolute)
    return Found(None, f"{absolute} does not exist")


def _text(answer: str | bytes) -> str:
    """Older bindings answer bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer
