"""torch's operator namespaces, which module names cannot keep apart: who holds `torch.ops.<id>` in this process.

Two kernels of one id are only a danger if both register operators. Whether one does is told from its files, generously: native
libraries, a generated `_ops.py`, or source that speaks of torch's ways to register. Pure Python without any of these is
isolated by its module name alone.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import PurePosixPath

from kernel_hub.errors import AmbiguousKernelError
from kernel_hub.model.artifact import VerifiedArtifact
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

NATIVE_SUFFIXES = frozenset({".so", ".pyd", ".dll", ".dylib"})
_OPS_MODULE = "_ops.py"
_QUICKLY_READ_BYTES = 1 << 17
_REGISTERS = Pattern(
    rb"torch\s*\.\s*(library|ops)\b|\bimport\s+[^\n]*\b(library|ops)\b|\b(custom_op|triton_op|Library)\b"
)


def native_files(verified: VerifiedArtifact) -> list[str]:
    """The native libraries of a build, by path inside it."""
    return [path for path in verified.files if PurePosixPath(path).suffix in NATIVE_SUFFIXES]


def registers_operators(verified: VerifiedArtifact) -> bool:
    """Whether a build may register operators under its id."""
    if native_files(verified) or any(PurePosixPath(path).name == _OPS_MODULE for path in verified.files):
        return True
    sources = [path for path in verified.files if path.endswith(".py")]
    return any(_REGISTERS.search(verified.artifact.root.joinpath(*path.split("/")).read_bytes()) for path in sources)


def has_operators(namespace: str) -> bool:
    """Whether torch, if it is loaded, knows operators in a namespace."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return f"\n{namespace}::" in "\n".join(("", *torch._C._dispatch_get_all_op_names()))


def meets_operators(verified: VerifiedArtifact) -> bool:
    """Whether a build may register operators where others are."""
    namespace = verified.metadata.id
    sources_bytes = sum(file.size_bytes for path, file in verified.files.items() if path.endswith(".py"))
    # Torch takes milliseconds to name its thousands of operators; reading a few sources takes less, reading many more.
    if sources_bytes < _QUICKLY_READ_BYTES:
        return registers_operators(verified) and has_operators(namespace)
    return has_operators(namespace) and registers_operators(verified)


@dataclass(slots=True)
class Holder:
    """A kernel that is loaded, or began to load.

    Attributes:
        key: Which artifact.
        verified: The artifact.
        begun: Whether any of its code ran; what it registered then stays in torch, also if it failed.
        finished: Whether its body ran to its end.
    """

    key: Hashable
    verified: VerifiedArtifact
    begun: bool = False
    finished: bool = False


class Namespaces:
    """Who holds which namespace. Not safe for threads by itself: the importer's lock is held around every call."""

    def __init__(self) -> None:
        self._holders: dict[str, list[Holder]] = {}

    def take(self, key: Hashable, verified: VerifiedArtifact) -> Holder:
        """Take the namespace of a kernel's id, before any of its code runs.

        Raises:
            AmbiguousKernelError: If its operators would be mixed with those of another kernel, or of other code.
        """
        name = verified.metadata.id
        holders = self._holders.setdefault(name, [])
        own = next((holder for holder in holders if holder.key == key), None)
        if own is not None:
            return own
        for holder in holders:
            if registers_operators(holder.verified) and registers_operators(verified):
                raise _two_kernels(name, holder, verified)
        if not holders and meets_operators(verified):
            raise AmbiguousKernelError(
                f"the kernel from {verified.artifact.origin} claims the operator namespace torch.ops.{name}, which torch or "
                "other code in this process has filled already; its operators would be mixed with those",
                hint="load it in a process of its own, or build it again, which gives it an id of its own",
            )
        taken = Holder(key, verified)
        holders.append(taken)
        return taken

    def give_back(self, holder: Holder) -> None:
        """Free a namespace, unless code of its holder ran."""
        holders = self._holders.get(holder.verified.metadata.id, [])
        if not holder.begun and holder in holders:
            holders.remove(holder)


def _two_kernels(name: str, holder: Holder, verified: VerifiedArtifact) -> AmbiguousKernelError:
    state = "is loaded" if holder.finished else "began to load"
    return AmbiguousKernelError(
        f"two different kernels claim the operator namespace torch.ops.{name}: the one from "
        f"{holder.verified.artifact.origin} {state} in this process, and the one from {verified.artifact.origin} would be "
        "mixed with it",
        hint="load them in separate processes, or build one of them again, which gives it an id of its own",
    )
