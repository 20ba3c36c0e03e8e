"""Verdicts about builds and the selection they make up.

A verdict is a value, accepted or rejected with reason, wanted and found; only `Selection.best` turns "none accepted" into an
exception, which carries the selection. The order of everything here is a pure function of the set of builds, never of the
order they were listed in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from kernel_hub.model.host import Host
from kernel_hub.model.source import FileEntry
from kernel_hub.model.value import dataclass
from kernel_hub.model.variant import Label, UnknownLabel


class Reason(StrEnum):
    """The axis on which a build was rejected; the text is what people read."""

    NOT_UNDERSTOOD = "not understood"
    NEEDS_NEWER = "needs a newer kernel_hub"
    FREE_THREADED = "free-threaded Python"
    CPU = "CPU"
    OS = "operating system"
    TORCH = "torch version"
    CXX_ABI = "C++ ABI"
    STABLE_ABI = "torch stable ABI"
    TVM_FFI = "tvm-ffi version"
    BACKEND = "backend"
    MACOS = "macOS version"
    ARCH = "GPU architecture"


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of a commit: a folder below `build/`.

    Attributes:
        name: The folder's name, i.e. the label's text.
        label: The parsed label, or why it is none.
        files: Its files, with paths relative to the repository's root; empty where only labels are known.
    """

    name: str
    label: Label | UnknownLabel
    files: tuple[FileEntry, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The sum of its files' lengths."""
        return sum(entry.size_bytes for entry in self.files)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A build that fits.

    Attributes:
        variant: The build.
        rank: Smaller is better; ties are broken by the label's text.
        archs: Its GPU architectures from metadata, once known.
        notes: What a reader should know although it was accepted.
        yanked: Those of the notes that say that its publisher took it back.
        left_out: Files, by path inside the build, that no device of the host can run; they are not fetched.
    """

    variant: Variant
    rank: tuple[int, ...]
    archs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    yanked: tuple[str, ...] = ()
    left_out: frozenset[str] = frozenset()

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files of the build that this host needs."""
        start = len(f"build/{self.variant.name}/")
        return tuple(entry for entry in self.variant.files if entry.path[start:] not in self.left_out)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A build that does not fit.

    Attributes:
        variant: The build.
        reason: The first axis that fails, in the order of the decision table.
        wanted: What the build needs there.
        found: What the host has there.
    """

    variant: Variant
    reason: Reason
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.variant.name}: {self.reason.value}: needs {self.wanted}, here {self.found}"


Verdict: TypeAlias = Accepted | Rejected


@dataclass(frozen=True, slots=True)
class Selection:
    """Every build of a commit with its verdict for one host.

    Attributes:
        subject: What was asked for, for messages.
        host: The host that was judged for.
        accepted: Best first.
        rejected: In order of the label's text.
        notes: What concerns the whole selection (a pre-release torch, a backend decided by missing devices).
    """

    subject: str
    host: Host
    accepted: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]
    notes: tuple[str, ...] = ()
