"""Probes -> Host: what this machine is, found without importing torch and without creating a CUDA context.

Torch's facts are read from its installed files, devices from NVML (NVIDIA) or the kernel's topology files (AMD). The CUDA
driver is never initialised, because a process that did so can no longer fork workers that use CUDA. Every fact is guarded:
what cannot be found is unknown, and `Host.probes` says how each fact was found or why it was not.

Everything is read through a `Probes` value, so any machine can be described in a test. Left out: what selection does not
ask, such as memory sizes and clocks. The order in which a backend is decided is the repository format's, section b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from kernel_hub.detect.backend import probe_backend
from kernel_hub.detect.devices import probe_devices
from kernel_hub.detect.probes import Found, Platform, Probes, guarded, this_machine
from kernel_hub.detect.system import (
    probe_cpu,
    probe_cpu_features,
    probe_free_threaded,
    probe_libc,
    probe_macos,
    probe_os,
    probe_python,
    probe_tvm_ffi,
)
from kernel_hub.detect.torch_files import probe_cxx11_abi, read_torch
from kernel_hub.model.host import Host

__all__ = ["Found", "Platform", "Probes", "detect", "this_machine"]


def detect(probes: Probes | None = None, *, environ: Mapping[str, str] | None = None) -> Host:
    """Describe a machine; never raises for anything that the machine holds.

    Args:
        probes: Where to look; default: this machine.
        environ: The environment that decides which devices are visible; default: the one in `probes`, which for this
            machine is empty, so that callers pass the one they read their settings from.
    """
    source = this_machine() if probes is None else probes
    if environ is not None:
        source = replace(source, environ=environ)
    torch = read_torch(source)
    backend = guarded(lambda: probe_backend(source, torch))
    gpus = probe_devices(source, backend.value)
    cpu = guarded(lambda: probe_cpu(source))
    system = guarded(lambda: probe_os(source))
    version = torch.version
    cxx11_abi = guarded(lambda: probe_cxx11_abi(source, torch))
    tvm_ffi = guarded(lambda: probe_tvm_ffi(source))
    libc = guarded(lambda: probe_libc(source))
    macos = guarded(lambda: probe_macos(source))
    python = guarded(lambda: probe_python(source))
    free_threaded = guarded(lambda: probe_free_threaded(source))
    cpu_features = guarded(lambda: probe_cpu_features(source))
    how = {
        "cpu": cpu.how,
        "os": system.how,
        "torch": version.how,
        "cxx11_abi": cxx11_abi.how,
        "tvm_ffi": tvm_ffi.how,
        "backend": backend.how,
        "driver": gpus.driver.how,
        "devices": gpus.devices.how,
        "libc": libc.how,
        "macos": macos.how,
        "python": python.how,
        "free_threaded": free_threaded.how,
        "cpu_features": cpu_features.how,
    }
    return Host(
        cpu=cpu.value,
        os=system.value,
        torch=version.value,
        cxx11_abi=cxx11_abi.value,
        tvm_ffi=tvm_ffi.value,
        backend=backend.value,
        driver=gpus.driver.value,
        devices=gpus.devices.value,
        libc=libc.value,
        macos=macos.value,
        python=python.value,
        free_threaded=free_threaded.value,
        cpu_features=cpu_features.value,
        probes=MappingProxyType(how),
    )
