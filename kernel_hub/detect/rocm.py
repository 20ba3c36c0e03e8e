"""AMD devices from the kernel's topology files (`/sys/class/kfd`), as ROCm's own runtime numbers them.

`gfx_target_version` is major * 10000 + minor * 100 + stepping; a target's name writes minor and stepping in hexadecimal
(90402 is gfx942, 90010 is gfx90a). ROCR_VISIBLE_DEVICES is applied first and HIP_VISIBLE_DEVICES to what it leaves, as in
AMD's "GPU isolation techniques".
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kernel_hub.detect.nvidia import VISIBLE as CUDA_VISIBLE
from kernel_hub.detect.nvidia import Gpus
from kernel_hub.detect.probes import Found, Probes, guarded, read_text
from kernel_hub.detect.visible import Unclear, choose
from kernel_hub.model.capability import RocmArch
from kernel_hub.model.host import Device
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

_TOPOLOGY: Final = "/sys/class/kfd/kfd/topology/nodes"
_DRIVER: Final = "/sys/module/amdgpu/version"
_OVERRIDE: Final = "HSA_OVERRIDE_GFX_VERSION"
_OVERRIDE_TEXT: Final = Pattern(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})")


@dataclass(frozen=True, slots=True)
class _Node:
    """One GPU of the topology."""

    uuid: str
    name: str
    arch: RocmArch


def probe_rocm(probes: Probes) -> Gpus:
    """AMD's driver and visible devices."""
    return Gpus(guarded(lambda: _driver(probes)), guarded(lambda: _devices(probes)))


def target_of(version: int) -> RocmArch:
    """The target that the kernel numbers so.

    Raises:
        ValueError: If the number is none.
    """
    major, rest = divmod(version, 10_000)
    minor, stepping = divmod(rest, 100)
    if not 7 <= major <= 99 or minor > 15 or stepping > 15:
        raise ValueError(f"{version} is no gfx_target_version")
    return RocmArch(f"gfx{major}{minor:x}{stepping:x}")


def _driver(probes: Probes) -> Found[str]:
    path = probes.path(_DRIVER)
    if path.is_file():
        return Found(read_text(path).strip() or None, _DRIVER)
    return Found(None, f"{_DRIVER} does not exist; the kernel's own amdgpu has no version")


def _devices(probes: Probes) -> Found[tuple[Device, ...]]:
    if probes.platform.system != "linux":
        return Found(None, "AMD GPUs are only looked for on Linux")
    nodes_folder = probes.path(_TOPOLOGY)
    if not nodes_folder.is_dir():
        if probes.path("/dev/dxg").exists():
            return Found(None, f"{_TOPOLOGY} does not exist, but /dev/dxg does, so there may be a GPU")
        return Found((), f"{_TOPOLOGY} does not exist: no AMD compute driver")
    nodes = [node for path in _numbered(nodes_folder) if (node := _node(probes, path)) is not None]
    how = _TOPOLOGY
    for name in _restrictions(probes):
        text = probes.environ[name]
        choice = choose(text, [node.uuid for node in nodes])
        if isinstance(choice, Unclear):
            return Found(None, f"{name}={text}: {choice.problem}")
        nodes = [nodes[index] for index in choice]
        how += f", {name}={text}"
    if any(key.startswith(f"{_OVERRIDE}_") for key in probes.environ):
        return Found(None, f"{_OVERRIDE}_<n> changes single devices, which is not followed")
    override = probes.environ.get(_OVERRIDE)
    if override is not None:
        found = _OVERRIDE_TEXT.fullmatch(override)
        if not found:
            return Found(None, f"{_OVERRIDE}={override} is not understood")
        arch = target_of(int(found[1]) * 10_000 + int(found[2]) * 100 + int(found[3]))
        nodes = [_Node(node.uuid, node.name, arch) for node in nodes]
        how += f", {_OVERRIDE}={override}"
    release = _release(probes)
    if release:
        how += f"; ROCm {release} in /opt/rocm"
    return Found(tuple(Device(index, node.name, node.arch) for index, node in enumerate(nodes)), how)


def _restrictions(probes: Probes) -> list[str]:
    """The variables to apply, in order. HIP reads CUDA's variable where its own is not set."""
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in probes.environ else CUDA_VISIBLE
    return [name for name in ("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", hip) if name in probes.environ]


def _numbered(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def _node(probes: Probes, folder: Path) -> _Node | None:
    """A node that is a GPU of this process; None for CPUs and for GPUs that a container hides."""
    try:
        if read_text(folder / "gpu_id").strip() in ("", "0"):
            return None
        properties = dict(line.split(maxsplit=1) for line in read_text(folder / "properties").splitlines() if line)
    except PermissionError:
        return None
    minor = properties.get("drm_render_minor", "").strip()
    return _Node(
        uuid=f"GPU-{int(properties.get('unique_id', '0')):016x}",
        name=_product_name(probes, minor) or _node_name(folder) or "AMD GPU",
        arch=target_of(int(properties["gfx_target_version"])),
    )


def _product_name(probes: Probes, render_minor: str) -> str:
    path = probes.path(f"/sys/class/drm/renderD{render_minor}/device/product_name")
    return read_text(path).strip() if path.is_file() else ""


def _node_name(folder: Path) -> str:
    path = folder / "name"
    name = read_text(path).strip() if path.is_file() else ""
    # Newer kernels name every device after the way in which they found it.
    return "" if name == "ip discovery" else name


def _release(probes: Probes) -> str:
    path = probes.path("/opt/rocm/.info/version")
    return read_text(path).strip() if path.is_file() else ""
