"""What built a kernel from what: the key `provenance` of a build's metadata (repository format, section c)."""

from __future__ import annotations

from typing import Any

from kernel_hub.model.document import JsonObject
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

_OBJECT_ID = Pattern(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")


@dataclass(frozen=True, slots=True)
class SourceState:
    """A commit of sources and whether tracked files differed from it.

    Attributes:
        commit: 40 or 64 lower-case hexadecimal digits.
        dirty: Whether the tree had changes.
    """

    commit: str
    dirty: bool

    def to_json(self) -> dict[str, Any]:
        """As metadata writes it."""
        return {"commit": self.commit, "dirty": self.dirty}


@dataclass(frozen=True, slots=True)
class Provenance:
    """What built a kernel from what.

    Attributes:
        builder_version: The version of the builder.
        builder: The builder's own sources, if known.
        kernel: The kernel's sources, if known.
    """

    builder_version: str
    builder: SourceState | None = None
    kernel: SourceState | None = None

    @property
    def dirty(self) -> bool:
        """Whether any sources were not exactly those of their commit."""
        return any(state is not None and state.dirty for state in (self.builder, self.kernel))

    def to_json(self) -> dict[str, Any]:
        """As metadata writes it."""
        builder: dict[str, Any] = {"version": self.builder_version}
        if self.builder is not None:
            builder |= self.builder.to_json()
        document: dict[str, Any] = {"kernel-builder": builder}
        if self.kernel is not None:
            document["kernel"] = self.kernel.to_json()
        return document


def read_provenance(top: JsonObject) -> Provenance | None:
    """The value of the key `provenance` of a metadata document, or None if it has none.

    Raises:
        InvalidDocumentError: Naming the key at fault.
    """
    provenance = top.optional_object("provenance")
    if provenance is None:
        return None
    builder = provenance.object("kernel-builder")
    kernel = provenance.optional_object("kernel")
    has_commit = bool({"commit", "sha"} & set(builder.names()))
    if has_commit != ("dirty" in builder.names()):
        raise builder.fault("", "'commit' and 'dirty' come together")
    return Provenance(
        builder_version=builder.line("version"),
        builder=_source_state(builder) if has_commit else None,
        kernel=None if kernel is None else _source_state(kernel),
    )


def _source_state(state: JsonObject) -> SourceState:
    keys = [key for key in ("commit", "sha") if key in state.names()]
    if len(keys) == 2:
        raise state.fault("sha", "says again what 'commit' says")
    key = keys[0] if keys else "commit"
    text = state.text(key)
    if not _OBJECT_ID.fullmatch(text):
        raise state.fault(key, f"{text!r} is not a git object id (40 or 64 hexadecimal digits)")
    return SourceState(text.lower(), state.flag("dirty"))
