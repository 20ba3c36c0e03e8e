"""From "no build fits" to what a person needs: the machine, the closest builds with every axis they fail on, the ways out.

Pure. `best` is the one place where a selection becomes an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from kernel_hub.errors import NoCompatibleVariantError
from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.framework import Torch, TorchStableAbi
from kernel_hub.model.host import ANY_MACOS, Host
from kernel_hub.model.selection import Accepted, Reason, Rejected, Selection
from kernel_hub.model.value import dataclass
from kernel_hub.model.variant import ArchLabel, NoarchLabel, UnknownLabel
from kernel_hub.select import DECISION_TABLE

SHOWN = 3
# Code for another kind of processor is further away than the same kind's code for another CPU or another system.
_OTHER_KIND = 1_200

# How hard an axis is to change: the machine itself, then its Python, then its backend, then a version to install.
_WEIGHTS = {
    Reason.NOT_UNDERSTOOD: 10_000,
    Reason.NEEDS_NEWER: 5_000,
    Reason.CPU: 1_000,
    Reason.OS: 1_000,
    Reason.MACOS: 300,
    Reason.ARCH: 300,
    Reason.FREE_THREADED: 200,
    Reason.BACKEND: 100,
    Reason.CXX_ABI: 50,
    Reason.TORCH: 10,
    Reason.STABLE_ABI: 10,
    Reason.TVM_FFI: 10,
}


@dataclass(frozen=True, slots=True)
class Near:
    """A rejected build with every axis it fails on, not only the first.

    Attributes:
        rejected: The build and the first axis.
        reasons: All failing axes in the order of the decision table.
        text: One line for people.
        distance: Smaller is closer.
    """

    rejected: Rejected
    reasons: tuple[Reason, ...]
    text: str
    distance: int


def best(selection: Selection, *, alternatives: Sequence[str] = ()) -> Accepted:
    """The best build of a selection.

    Args:
        selection: What `select` and `narrow` returned.
        alternatives: Ways out that only the caller knows, e.g. other versions of the kernel that do fit.

    Raises:
        NoCompatibleVariantError: If no build was accepted; it carries the selection.
    """
    if selection.accepted:
        return selection.accepted[0]
    raise NoCompatibleVariantError(
        _message(selection), selection=selection, hint="; or ".join(ways_out(selection, alternatives))
    )


def nearest(selection: Selection) -> tuple[Near, ...]:
    """Every rejected build, closest first; the order depends on nothing but the builds and the host."""
    found = [_near(rejected, selection.host) for rejected in selection.rejected]
    return tuple(sorted(found, key=lambda near: (near.distance, near.rejected.variant.name)))


def ways_out(selection: Selection, alternatives: Sequence[str] = ()) -> list[str]:
    """What would help, most promising first."""
    ways = list(alternatives)
    near = nearest(selection)
    torch = _torch_to_install(near)
    if torch:
        ways.append(torch)
    if any(_is_cpu_build_that_fits(entry, selection.host) for entry in near):
        ways.append("take the CPU build: backend='cpu'")
    if any(Reason.NEEDS_NEWER in entry.reasons for entry in near):
        ways.append("upgrade kernel_hub: some builds are made for a newer one")
    return ways or ["ask its publisher for a build for this machine"]


def machine(host: Host) -> str:
    """The facts that selection looked at, in one line."""
    python = f"Python {host.python}{' (free-threaded)' if host.free_threaded else ''}" if host.python else None
    torch = f"torch {host.torch}" if host.torch else "no torch"
    backend = str(host.backend) if host.backend else "unknown backend"
    # A target that names no macOS takes part in selection as one that every build is content with.
    is_mac = host.os == "darwin" and host.macos not in (None, ANY_MACOS)
    macos = f"macOS {host.macos}" if is_mac else None
    parts = [
        f"{host.cpu or 'unknown CPU'} {host.os or 'unknown system'}",
        macos,
        python,
        torch,
        backend,
        _devices(host),
    ]
    return ", ".join(part for part in parts if part)


def _devices(host: Host) -> str | None:
    if host.devices is None:
        return None
    return ", ".join(f"{device.name} ({device.arch})" for device in host.devices) or "no GPU visible"


def _message(selection: Selection) -> str:
    near = nearest(selection)
    lines = [
        f"{selection.subject or 'the kernel'} has no build for this machine",
        f"  machine: {machine(selection.host)}",
    ]
    if not near:
        lines.append("  it has no builds at all")
    else:
        lines.append(f"  closest of {len(near)} build{'s' if len(near) > 1 else ''}:")
        lines.extend(f"    {entry.text}" for entry in near[:SHOWN])
        if len(near) > SHOWN:
            lines.append(f"  all of them: kernel-hub explain --all {selection.subject or '<name>'}")
    lines.extend(f"  note: {note}" for note in selection.notes)
    return "\n".join(lines)


def _near(rejected: Rejected, host: Host) -> Near:
    failing = [(rejected.reason, rejected.wanted, rejected.found)]
    distance = 0
    label = rejected.variant.label
    if isinstance(label, ArchLabel) and rejected.reason is not Reason.ARCH:
        refusals = [refusal for refusal in (rule.check(label, host) for rule in DECISION_TABLE) if refusal is not None]
        failing = [(refusal.reason, refusal.wanted, refusal.found) for refusal in refusals]
        distance = _version_distance(label, host)
    kind = _kind(label)
    if host.backend is not None and kind is not None and kind is not host.backend.kind:
        distance += _OTHER_KIND
    text = "; ".join(f"{reason.value}: needs {wanted}, here {found}" for reason, wanted, found in failing)
    reasons = tuple(reason for reason, _, _ in failing)
    distance += sum(_WEIGHTS[reason] for reason in reasons)
    return Near(rejected, reasons, f"{rejected.variant.name}: {text}", distance)


def _kind(label: ArchLabel | NoarchLabel | UnknownLabel) -> BackendKind | None:
    """The kind of backend that a build is for; None if it is for none in particular."""
    match label:
        case ArchLabel():
            return label.backend.kind
        case NoarchLabel(name):
            return next((kind for kind in BackendKind if kind.value == name), None)
        case UnknownLabel():
            return None
        case _:
            assert_never(label)


def _version_distance(label: ArchLabel, host: Host) -> int:
    """How far versions are apart, for ordering among builds that fail on the same axes."""
    distance = 0
    framework = label.framework
    if isinstance(framework, Torch | TorchStableAbi) and host.torch is not None:
        distance += min(abs(framework.version.minor - host.torch.minor), 40)
    backend = host.backend
    if backend is None or backend.kind is not label.backend.kind:
        return distance + 90
    wanted, found = label.backend.version, backend.version
    if wanted is not None and found is not None:
        distance += min(10 * abs(wanted.major - found.major) + abs(wanted.minor - found.minor), 49)
    return distance


def _torch_to_install(near: Iterable[Near]) -> str | None:
    """The torch that would make the closest build fit, if torch (and the CUDA it brings) is all that is in the way."""
    for entry in near:
        label = entry.rejected.variant.label
        if not isinstance(label, ArchLabel) or not isinstance(label.framework, Torch | TorchStableAbi):
            continue
        changeable = {Reason.TORCH, Reason.STABLE_ABI, Reason.BACKEND}
        if not set(entry.reasons) <= changeable or not {Reason.TORCH, Reason.STABLE_ABI} & set(entry.reasons):
            continue
        if Reason.BACKEND in entry.reasons and label.backend.kind not in (BackendKind.CUDA, BackendKind.ROCM):
            continue
        version = label.framework.version
        spec = f"torch=={version}.*" if isinstance(label.framework, Torch) else f"torch>={version}"
        suffix = f" (built for {label.backend})" if Reason.BACKEND in entry.reasons else ""
        return f"install a torch that has a build: pip install '{spec}'{suffix}"
    return None


def _is_cpu_build_that_fits(entry: Near, host: Host) -> bool:
    if host.backend == Backend(BackendKind.CPU) or entry.reasons != (Reason.BACKEND,):
        return False
    label = entry.rejected.variant.label
    match label:
        case ArchLabel():
            return label.backend.kind is BackendKind.CPU
        case NoarchLabel():
            return label.name == BackendKind.CPU.value
        case _:
            return False
