"""Which backend torch was built for, or what can be used without torch.

First hit wins (repository format, section b): TPU, Neuron, CUDA, ROCm, Metal, XPU, CANN, CPU. The ecosystem's reader asks
an imported torch; here the same is told from files, so a plugin counts by being installed, not by having been imported.
Without torch only an installed CUDA runtime counts.
"""

from __future__ import annotations

import re
from typing import Final

from packaging.version import Version

from kernel_hub.detect.libraries import library_folders
from kernel_hub.detect.probes import Found, Probes, read_text
from kernel_hub.detect.torch_files import TorchFiles
from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.pattern import Pattern

_LEADING: Final = Pattern(r"(\d+)(?:\.(\d+))?")
# The compiler's own number, 20250301 for 2025.3.1; newer builds may write it with dots.
_XPU: Final = Pattern(r"(\d{4})(?:\.|0)(\d)")
_CUDA_RUNTIME: Final = Pattern(r"libcudart\.so\.(\d+)\.(\d+)(?:\.\d+)*")
_CANN_VERSION: Final = Pattern(r"^version\s*=\s*(\d+)\.(\d+)", re.MULTILINE)
_DEFAULT_ASCEND: Final = "/usr/local/Ascend/ascend-toolkit/latest"


def probe_backend(probes: Probes, torch: TorchFiles) -> Found[Backend]:
    """The backend that kernels must be built for."""
    if torch.folder is None:
        return Found(None, torch.problem) if torch.problem else _without_torch(probes)
    for module, kind in (("torch_tpu", BackendKind.TPU), ("torch_neuronx", BackendKind.NEURON)):
        if probes.find_module(module) is not None:
            return Found(Backend(kind), f"{module} is installed")
    if torch.problem:
        return Found(None, torch.problem)
    for name, kind, pattern in (
        ("cuda", BackendKind.CUDA, _LEADING),
        ("hip", BackendKind.ROCM, _LEADING),
    ):
        text = torch.text(name)
        if text is not None:
            return _versioned(kind, pattern, text, f"torch/version.py: {name} = {text}")
    if probes.platform.system == "darwin" and probes.platform.machine.lower() in ("arm64", "aarch64"):
        return Found(Backend(BackendKind.METAL), "torch on Apple silicon, built for neither CUDA nor ROCm")
    text = torch.text("xpu")
    if text is not None:
        return _versioned(BackendKind.XPU, _XPU, text, f"torch/version.py: xpu = {text}")
    if "cuda" not in torch.fields:
        return Found(None, "torch/version.py does not say what torch was built for")
    if probes.find_module("torch_npu") is not None:
        return _cann(probes)
    return Found(Backend(BackendKind.CPU), "torch/version.py names no accelerator")


def _versioned(kind: BackendKind, pattern: Pattern[str], text: str, how: str) -> Found[Backend]:
    found = pattern.match(text)
    if not found:
        return Found(Backend(kind), f"{how}, of which the version is not understood")
    return Found(Backend(kind, Version(f"{found[1]}.{found[2] or 0}")), how)


def _cann(probes: Probes) -> Found[Backend]:
    home = probes.environ.get("ASCEND_HOME_PATH") or _DEFAULT_ASCEND
    folder = probes.path(home)
    for path in sorted([*folder.glob("ascend_*_install.info"), *folder.glob("*/ascend_*_install.info")]):
        found = _CANN_VERSION.search(read_text(path))
        if found:
            how = f"torch_npu is installed; version in {path.name} below {home}"
            return Found(Backend(BackendKind.CANN, Version(f"{found[1]}.{found[2]}")), how)
    return Found(
        Backend(BackendKind.CANN), f"torch_npu is installed; no ascend_*_install.info below {home} says a version"
    )


def _without_torch(probes: Probes) -> Found[Backend]:
    for folder in library_folders(probes):
        versions = []
        for path in folder.glob("libcudart.so.*.*"):
            found = _CUDA_RUNTIME.fullmatch(path.name)
            if found:
                versions.append((Version(f"{found[1]}.{found[2]}"), path.name))
        if versions:
            version, name = max(versions)
            return Found(Backend(BackendKind.CUDA, version), f"torch is not installed; found the CUDA runtime {name}")
    return Found(Backend(BackendKind.CPU), "torch is not installed and no CUDA runtime was found")
