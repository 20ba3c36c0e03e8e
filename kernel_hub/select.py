"""Stage 2, pure: which builds of a commit fit a host, which of them is best, and why the others do not fit.

`select` judges by label alone (repository format, section b); `kernel_hub.narrow` then judges by GPU architecture, which
only metadata tells. Both return values that hold every build with its verdict. `DECISION_TABLE` and `RANKING` are the rules
as data: the reference page is generated from them.

Where the ecosystem's resolver leaves the order undefined we define it: tvm-ffi comes before `torch-<backend>`, and any
remaining tie is broken by the label's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, NamedTuple, assert_never

from packaging.version import Version

from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.host import Host
from kernel_hub.model.selection import Accepted, Reason, Rejected, Selection, Variant, Verdict
from kernel_hub.model.source import FileEntry
from kernel_hub.model.value import dataclass
from kernel_hub.model.variant import ArchLabel, NoarchLabel, UnknownLabel, read_label

BUILD_FOLDER: Final = "build"
METADATA_FILE: Final = "metadata.json"
_MIN_METAL_MACOS: Final = Version("26.0")
_FIRST_FREE_THREADED_ABI3: Final = Version("3.15")
_UNKNOWN: Final = "unknown"


class _Refusal(NamedTuple):
    """A rejection without the build."""

    reason: Reason
    wanted: str
    found: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the decision table.

    Attributes:
        reason: The axis.
        applies_to: Which labels it looks at, in words.
        rejects: When it rejects, in words.
        check: The rule itself: a refusal, or None if the build passes.
    """

    reason: Reason
    applies_to: str
    rejects: str
    check: Callable[[ArchLabel, Host], _Refusal | None]


def _check_free_threaded(_label: ArchLabel, host: Host) -> _Refusal | None:
    if not host.free_threaded or (host.python is not None and host.python >= _FIRST_FREE_THREADED_ABI3):
        return None
    python = host.python or _UNKNOWN
    return _Refusal(Reason.FREE_THREADED, "Python with the GIL, or 3.15 and later", f"free-threaded Python {python}")


def _check_cpu(label: ArchLabel, host: Host) -> _Refusal | None:
    return None if label.cpu == host.cpu else _Refusal(Reason.CPU, label.cpu, host.cpu or _UNKNOWN)


def _check_os(label: ArchLabel, host: Host) -> _Refusal | None:
    return None if label.os == host.os else _Refusal(Reason.OS, label.os, host.os or _UNKNOWN)


def _check_torch(label: ArchLabel, host: Host) -> _Refusal | None:
    framework = label.framework
    if not isinstance(framework, Torch) or _same_line(framework.version, host.torch):
        return None
    return _Refusal(Reason.TORCH, str(framework), _torch_text(host))


def _check_cxx_abi(label: ArchLabel, host: Host) -> _Refusal | None:
    framework = label.framework
    if not isinstance(framework, Torch) or framework.cxx11_abi is None or framework.cxx11_abi == host.cxx11_abi:
        return None
    names = {True: "cxx11", False: "cxx98", None: _UNKNOWN}
    return _Refusal(Reason.CXX_ABI, names[framework.cxx11_abi], names[host.cxx11_abi])


def _check_stable_abi(label: ArchLabel, host: Host) -> _Refusal | None:
    framework = label.framework
    if not isinstance(framework, TorchStableAbi):
        return None
    if host.torch is not None and (host.torch.major, host.torch.minor) >= (
        framework.version.major,
        framework.version.minor,
    ):
        return None
    return _Refusal(Reason.STABLE_ABI, str(framework), _torch_text(host))


def _check_tvm_ffi(label: ArchLabel, host: Host) -> _Refusal | None:
    framework = label.framework
    if not isinstance(framework, TvmFfi) or _same_line(framework.version, host.tvm_ffi):
        return None
    found = f"tvm-ffi {host.tvm_ffi}" if host.tvm_ffi else "no tvm-ffi"
    return _Refusal(Reason.TVM_FFI, str(framework), found)


def _check_backend(label: ArchLabel, host: Host) -> _Refusal | None:
    wanted, found = label.backend, host.backend
    if found is not None and wanted.kind is found.kind and _backend_version_fits(wanted, found):
        return None
    if wanted.kind is BackendKind.CUDA and wanted.version is not None:
        text = f"CUDA {wanted.version} up to {wanted.version.major}.x"
    else:
        text = str(wanted)
    return _Refusal(Reason.BACKEND, text, str(found) if found else _UNKNOWN)


def _check_macos(label: ArchLabel, host: Host) -> _Refusal | None:
    if label.backend.kind is not BackendKind.METAL or (host.macos is not None and host.macos >= _MIN_METAL_MACOS):
        return None
    found = f"macOS {host.macos}" if host.macos else _UNKNOWN
    return _Refusal(Reason.MACOS, f"macOS {_MIN_METAL_MACOS} or later", found)


DECISION_TABLE: Final = (
    Rule(
        Reason.FREE_THREADED,
        "compiled builds",
        "Python is free-threaded and older than 3.15: builds use the limited API, which that Python lacks",
        _check_free_threaded,
    ),
    Rule(Reason.CPU, "compiled builds", "the label's CPU is not the host's", _check_cpu),
    Rule(Reason.OS, "compiled builds", "the label's operating system is not the host's", _check_os),
    Rule(Reason.TORCH, "`torch<XY>`", "major.minor is not the installed torch's, or torch is absent", _check_torch),
    Rule(Reason.CXX_ABI, "`torch<XY>-cxx11|cxx98`", "the tag is not torch's own string ABI", _check_cxx_abi),
    Rule(Reason.STABLE_ABI, "`torch-stable-abi<XY>`", "torch is older than XY, or absent", _check_stable_abi),
    Rule(
        Reason.TVM_FFI, "`tvm-ffi<XY>`", "major.minor is not the installed tvm-ffi's, or it is absent", _check_tvm_ffi
    ),
    Rule(
        Reason.BACKEND,
        "compiled builds",
        "CUDA: the major version differs, or the build's minor is above the host's; else: the backend is not exactly the host's",
        _check_backend,
    ),
    Rule(Reason.MACOS, "Metal builds", "macOS is older than 26.0, or unknown", _check_macos),
)

RANKING: Final = (
    "`torch-stable-abi<XY>`: higher XY first, then the higher minor version of the backend",
    "`torch<XY>`: without ABI tag before tagged, then the higher minor version of the backend",
    "`tvm-ffi<XY>`: the higher minor version of the backend",
    "`torch-<backend>` (no compiled code)",
    "`torch-universal` (legacy)",
)


def variants_of(files: Iterable[FileEntry]) -> tuple[Variant, ...]:
    """Group a commit's files into builds: one per folder directly below `build/`, sorted by name.

    A file lying directly in `build/` belongs to no build and is left out.
    """
    grouped: dict[str, list[FileEntry]] = {}
    for entry in files:
        parts = entry.path.split("/", 2)
        if len(parts) == 3 and parts[0] == BUILD_FOLDER:
            grouped.setdefault(parts[1], []).append(entry)
    return tuple(
        Variant(name, read_label(name), tuple(sorted(entries, key=lambda entry: entry.path)))
        for name, entries in sorted(grouped.items())
    )


def variants_of_names(names: Iterable[str]) -> tuple[Variant, ...]:
    """Builds of which only the folder names are known; repeated names count once."""
    return tuple(Variant(name, read_label(name)) for name in sorted(set(names)))


def select(variants: Iterable[Variant], host: Host, *, subject: str = "") -> Selection:
    """Judge every build by its label.

    Args:
        variants: The builds of one commit, in any order.
        host: The machine, already set to the backend that is asked for (`Host.for_backend`).
        subject: What was asked for, for messages.
    """
    accepted: list[Accepted] = []
    rejected: list[Rejected] = []
    for variant in variants:
        verdict = _judge(variant, host)
        if isinstance(verdict, Accepted):
            accepted.append(verdict)
        else:
            rejected.append(verdict)
    accepted.sort(key=by_rank)
    rejected.sort(key=by_name)
    return Selection(subject, host, tuple(accepted), tuple(rejected), _notes(host))


def _judge(variant: Variant, host: Host) -> Verdict:
    label = variant.label
    refusal: _Refusal | None = None
    match label:
        case ArchLabel():
            for rule in DECISION_TABLE:
                refusal = rule.check(label, host)
                if refusal is not None:
                    break
            else:
                return Accepted(variant, _rank(label))
        case NoarchLabel():
            refusal = _refuse_noarch(label, host)
            if refusal is None:
                return Accepted(variant, (4, 0) if label.name == _UNIVERSAL else (3, 0))
        case UnknownLabel():
            reason = Reason.NEEDS_NEWER if label.newer else Reason.NOT_UNDERSTOOD
            refusal = _Refusal(reason, "a label of the repository format", label.problem)
        case _:
            assert_never(label)
    return Rejected(variant, *refusal)


_UNIVERSAL: Final = "universal"
# The builder writes torch-cann, the ecosystem's reader looks for torch-npu; both name the same backend.
_NOARCH_NAMES: Final = {BackendKind.CANN: ("cann", "npu")}


def _refuse_noarch(label: NoarchLabel, host: Host) -> _Refusal | None:
    if label.name == _UNIVERSAL:
        return None
    backend = host.backend
    if backend is not None and label.name in _NOARCH_NAMES.get(backend.kind, (backend.kind.value,)):
        return None
    return _Refusal(Reason.BACKEND, label.name, backend.kind.value if backend else _UNKNOWN)


def _rank(label: ArchLabel) -> tuple[int, ...]:
    minor = label.backend.version.minor if label.backend.version else 0
    framework = label.framework
    match framework:
        case TorchStableAbi(version):
            return (0, -version.major, -version.minor, -minor)
        case Torch():
            return (1, 0 if framework.cxx11_abi is None else 1, -minor)
        case TvmFfi():
            return (2, -minor)
        case _:
            assert_never(framework)


def by_rank(verdict: Accepted) -> tuple[tuple[int, ...], str]:
    """The order of accepted builds: best first, and by the label's text where the rank is equal."""
    return verdict.rank, verdict.variant.name


by_name = attrgetter("variant.name")
"""The order of rejected builds."""


def _same_line(wanted: Version, found: Version | None) -> bool:
    return found is not None and (wanted.major, wanted.minor) == (found.major, found.minor)


def _backend_version_fits(wanted: Backend, found: Backend) -> bool:
    if wanted.version is None:
        return True
    if found.version is None:
        return False
    if wanted.kind is BackendKind.CUDA:
        return wanted.version.major == found.version.major and wanted.version.minor <= found.version.minor
    return _same_line(wanted.version, found.version)


def _torch_text(host: Host) -> str:
    return f"torch {host.torch}" if host.torch else "no torch"


def _notes(host: Host) -> tuple[str, ...]:
    notes = []
    if host.torch is not None and (host.torch.is_prerelease or host.torch.local):
        line = f"{host.torch.major}.{host.torch.minor}"
        if host.torch.is_prerelease:
            notes.append(
                f"torch {host.torch} is a pre-release, treated as {line}; its ABI may differ from the release's"
            )
        elif not _is_plain_local(host.torch):
            notes.append(f"torch {host.torch} is a vendor build, treated as {line}")
    return tuple(notes)


def _is_plain_local(version: Version) -> bool:
    """Whether the local part is one that torch's own wheels carry, such as `cu130`, `cpu` or `rocm7.1`."""
    local = version.local or ""
    return local.startswith(("cu", "cpu", "rocm", "xpu"))
