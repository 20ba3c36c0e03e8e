"""What a request's device, and the devices of the machine, mean for its builds. Pure.

Leaves out the rules by which an architecture runs a build (see `kernel_hub.narrow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.selection import Accepted, Selection
from kernel_hub.model.source import LfsBlob
from kernel_hub.narrow import leave_out, narrow
from kernel_hub.select import BUILD_FOLDER

_GPU_KINDS = (BackendKind.CUDA, BackendKind.ROCM)


def has_devices(host: Host) -> bool:
    """Whether builds can be judged by the architectures of its devices."""
    return bool(host.devices) and host.backend is not None and host.backend.kind in _GPU_KINDS


def require_device(host: Host, index: int | None) -> None:
    """Refuse a device that is not there; where nobody knows which devices are there, every index is possible.

    Args:
        host: The machine, set to the backend that is asked for.
        index: The device that the caller names; None if none.

    Raises:
        InvalidDocumentError: Naming it, and those that are visible.
    """
    if index is None or (host.devices is None and index >= 0):
        return
    devices = host.devices or ()
    if all(device.index != index for device in devices):
        visible = ", ".join(str(device) for device in devices) or "none"
        raise InvalidDocumentError(
            "device",
            f"device {index} is not visible; visible: {visible}",
            hint="leave the device out, or name one that is visible (kernel-hub host lists them)",
        )


def narrow_to_devices(selection: Selection, metadata: Mapping[str, Metadata], device: int | None) -> Selection:
    """Judge the builds that fit by label by what the devices can run.

    Args:
        selection: What `kernel_hub.select.select` returned.
        metadata: Metadata of builds by name.
        device: The only device that must be able to run a build; None means every visible one.
    """
    if not has_devices(selection.host):
        return selection
    narrowed = narrow(selection, {name: read.archs for name, read in metadata.items()}, device=device)
    return leave_out(narrowed, {name: read.file_archs for name, read in metadata.items()}, device=device)


def likely(selection: Selection) -> Accepted | None:
    """The build that is best by its label, without what may turn out to be for other devices once its metadata is read."""
    if not selection.accepted:
        return None
    best = selection.accepted[0]
    inside = len(f"{BUILD_FOLDER}/{best.variant.name}/")
    native = frozenset(entry.path[inside:] for entry in best.variant.files if isinstance(entry.blob, LfsBlob))
    return replace(best, left_out=native) if len(native) > 1 else best
