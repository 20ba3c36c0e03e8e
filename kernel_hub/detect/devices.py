"""Which probe looks for the devices of a backend."""

from __future__ import annotations

from typing import assert_never

from kernel_hub.detect.nvidia import Gpus, probe_nvidia
from kernel_hub.detect.probes import Found, Probes
from kernel_hub.detect.rocm import probe_rocm
from kernel_hub.model.backend import Backend, BackendKind


def probe_devices(probes: Probes, backend: Backend | None) -> Gpus:
    """The devices that the backend can use; for a CPU or unknown backend, any vendor's that are probed.

    A GPU beside a torch without GPU support is worth telling: it is why someone would ask for another torch.
    """
    if backend is None:
        return _any_vendor(probes)
    match backend.kind:
        case BackendKind.CUDA:
            return probe_nvidia(probes)
        case BackendKind.ROCM:
            return probe_rocm(probes)
        case BackendKind.CPU:
            return _any_vendor(probes)
        case BackendKind.XPU | BackendKind.METAL | BackendKind.CANN | BackendKind.NEURON | BackendKind.TPU:
            how = f"devices of {Backend(backend.kind)} are not probed"
            return Gpus(Found(None, how), Found(None, how))
        case _:
            assert_never(backend.kind)


def _any_vendor(probes: Probes) -> Gpus:
    if probes.platform.system == "darwin":
        how = "devices are not probed on macOS"
        return Gpus(Found(None, how), Found(None, how))
    nvidia = probe_nvidia(probes)
    if nvidia.devices.value != ():
        return nvidia
    if probes.platform.system != "linux":
        return nvidia
    amd = probe_rocm(probes)
    if amd.devices.value == ():
        return Gpus(nvidia.driver, Found((), f"{nvidia.devices.how}; {amd.devices.how}"))
    return amd
