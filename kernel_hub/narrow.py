"""The second half of stage 2, pure: which of the builds that fit by label the GPUs of a host can run.

Architectures stand in metadata only; what they mean is in `kernel_hub.model.capability`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from kernel_hub.model.capability import Fit, fit, parse_arch
from kernel_hub.model.host import Device, Host
from kernel_hub.model.selection import Accepted, Reason, Rejected, Selection, Verdict
from kernel_hub.model.split import useless_files
from kernel_hub.select import by_name, by_rank

_Devices: TypeAlias = tuple[Device, ...]


def leave_out(
    selection: Selection, file_archs: Mapping[str, Mapping[str, tuple[str, ...]]], *, device: int | None = None
) -> Selection:
    """Mark what no device can run in builds that are split by architecture.

    Args:
        selection: What `narrow` returned.
        file_archs: The architectures of files, by build and path inside it (see `kernel_hub.model.split`).
        device: As for `narrow`.
    """
    capabilities = [found.arch for found in _devices(selection.host, device)]
    accepted = (
        replace(verdict, left_out=useless_files(file_archs.get(verdict.variant.name, {}), capabilities))
        for verdict in selection.accepted
    )
    return replace(selection, accepted=tuple(accepted))


def narrow(selection: Selection, archs: Mapping[str, tuple[str, ...]], *, device: int | None = None) -> Selection:
    """Judge the accepted builds by GPU architecture.

    Between builds that are equal otherwise, machine code for every device beats PTX, which beats unreadable text.

    Args:
        selection: What `select` returned.
        archs: Architectures of builds by name, from metadata. A build that is not in it is left as it is.
        device: The index of the only device that must be able to run it; None means every visible one.
    """
    devices = _devices(selection.host, device)
    accepted: list[Accepted] = []
    rejected = list(selection.rejected)
    for verdict in selection.accepted:
        listed = archs.get(verdict.variant.name)
        if listed is None:
            accepted.append(verdict)
            continue
        judged = _judge_archs(verdict, listed, devices)
        if isinstance(judged, Accepted):
            accepted.append(judged)
        else:
            rejected.append(judged)
    accepted.sort(key=by_rank)
    rejected.sort(key=by_name)
    return replace(selection, accepted=tuple(accepted), rejected=tuple(rejected))


def _devices(host: Host, index: int | None) -> _Devices:
    devices = host.devices or ()
    return devices if index is None else tuple(device for device in devices if device.index == index)


def _judge_archs(verdict: Accepted, listed: tuple[str, ...], devices: _Devices) -> Verdict:
    archs = tuple(parse_arch(text) for text in listed)
    worst = Fit.NATIVE
    for device in devices:
        how = fit(archs, device.arch)
        if how is Fit.NONE:
            return Rejected(verdict.variant, Reason.ARCH, ", ".join(listed), str(device))
        worst = min(worst, how)
    notes = verdict.notes
    if worst is Fit.UNKNOWN:
        notes = (*notes, f"architectures {', '.join(listed)} were not all understood; allowed without knowing")
    elif worst is Fit.PTX:
        notes = (*notes, "runs through PTX: the driver compiles it on first use")
    return replace(verdict, rank=(*verdict.rank, Fit.NATIVE - worst), archs=listed, notes=notes)
