"""The Hub's label grammar in one place: the name of a folder below `build/` says what the build runs on.

Repository format, section (a). A label that does not parse is a value too, because a repository may hold folders that are
no builds, or builds for a newer reader; selection lists them instead of dropping them.

Leaves out: what is inside a build (see metadata), and whether it fits a host (see `kernel_hub.select`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import Backend
from kernel_hub.model.framework import ABI_TAGS, Framework, parse_stable_abi, parse_torch, parse_tvm_ffi
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

KNOWN_CPUS = frozenset({"x86_64", "aarch64"})
KNOWN_SYSTEMS = frozenset({"linux", "darwin", "windows"})
_FUTURE_BACKEND = Pattern(r"[a-z]+[0-9]*")
_TVM_PREFIX = "tvm-ffi"
_STABLE_PREFIX = "torch-stable-abi"


@dataclass(frozen=True, slots=True)
class ArchLabel:
    """A compiled build: `<framework>-<backend>-<cpu>-<os>`."""

    framework: Framework
    backend: Backend
    cpu: str
    os: str

    def __str__(self) -> str:
        return f"{self.framework.label}-{self.backend.label}-{self.cpu}-{self.os}"


@dataclass(frozen=True, slots=True)
class NoarchLabel:
    """A build without compiled code: `torch-<name>`, where name is a backend's, or the legacy `universal`."""

    name: str

    def __str__(self) -> str:
        return f"torch-{self.name}"


@dataclass(frozen=True, slots=True)
class UnknownLabel:
    """A folder below `build/` whose name is no label of this release.

    Attributes:
        text: The folder's name.
        newer: Whether it looks like a label that a newer release would understand, rather than like a stray folder.
        problem: What did not parse.
    """

    text: str
    newer: bool
    problem: str

    def __str__(self) -> str:
        return self.text


Label: TypeAlias = ArchLabel | NoarchLabel


def parse_label(text: str) -> Label:
    """Read a label.

    Every text that starts with `torch-` and not with `torch-stable-abi` is a build without compiled code, whatever
    follows; that is how the ecosystem's reader has it.

    Raises:
        InvalidDocumentError: If the text is not a label.
    """
    if text.startswith("torch-") and not text.startswith(_STABLE_PREFIX):
        return NoarchLabel(text[len("torch-") :])
    parts = text.rsplit("-", 3)
    if len(parts) != 4:
        raise _not_a_label(text, "it is not <framework>-<backend>-<cpu>-<os>")
    framework, backend, cpu, system = parts
    if not cpu or not system:
        raise _not_a_label(text, "the CPU or the operating system is empty")
    return ArchLabel(_framework(framework), Backend.parse_label(backend), cpu, system)


def read_label(text: str) -> Label | UnknownLabel:
    """Like `parse_label`, but a text that is no label becomes an `UnknownLabel`."""
    try:
        return parse_label(text)
    except InvalidDocumentError as error:
        return UnknownLabel(text, _looks_newer(text), error.problem)


# Builds by the thousand share a few dozen frameworks.
@lru_cache(maxsize=4096)
def _framework(text: str) -> Framework:
    if text.startswith(_STABLE_PREFIX):
        return parse_stable_abi(text)
    if text.startswith(_TVM_PREFIX):
        return parse_tvm_ffi(text)
    version, _, tag = text.partition("-")
    if tag and tag not in ABI_TAGS:
        raise _not_a_label(text, f"{tag!r} is no C++ ABI tag")
    return parse_torch(version, tag or None)


def _looks_newer(text: str) -> bool:
    """Guess whether a newer writer made this folder.

    The tail `-<cpu>-<os>` is what no stray folder has. Then either the backend is one of ours (so the framework is new) or
    it is a word of the shape that backends have (so the backend is new).
    """
    parts = text.split("-")
    if len(parts) < 4 or parts[-1] not in KNOWN_SYSTEMS or parts[-2] not in KNOWN_CPUS:
        return False
    backend = parts[-3]
    return backend.isascii() and _FUTURE_BACKEND.fullmatch(backend) is not None


def _not_a_label(text: str, problem: str) -> InvalidDocumentError:
    return InvalidDocumentError("label", f"{text!r} is not the name of a build: {problem}")
