"""What loading a kernel would do, as a value: the answer of `explain`, and what `load` then carries out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernel_hub.errors import FetchError, KernelHubError, TrustUnknownError
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.requirement import Requirement
from kernel_hub.model.selection import Accepted, Selection
from kernel_hub.model.source import Pin
from kernel_hub.model.value import dataclass
from kernel_hub.overrides import Override
from kernel_hub.refusal import machine, nearest, ways_out
from kernel_hub.trust import Decision, NamedBy, Trusted, TrustedIfSigned

if TYPE_CHECKING:
    from kernel_hub.locking.lookup import Caller
    from kernel_hub.model.lock_pin import LockedPin
    from kernel_hub.registries import Registry


@dataclass(frozen=True, slots=True)
class Request:
    """A call's arguments, parsed.

    Attributes:
        requirement: The kernel and the version or revision wanted.
        backend: The backend asked for; None means what fits this machine.
        device: Index of the only device that must be able to run it; None means every visible one.
        trust_remote_code: The caller's word on trust.
        named_by: Whether code named the kernel, or data that others may write.
        check_arch: Whether GPU architectures take part in choosing.
        user_agent: Text added to the user agent of requests.
        refresh: Whether references are looked up again although they are fresh.
        locked: Whether only a locked kernel will do.
        lock_file: The lock that the call names; None for the one that applies.
        caller: The code that asks, for finding the lock that belongs to it.
        bound: What the project of the lock that applies binds its namespace to, where the settings bind it to nothing.
        fetching: Whether the build will be fetched at once, so that small files of it may come along with its metadata.
    """

    requirement: Requirement
    backend: str | None = None
    device: int | None = None
    trust_remote_code: bool | Sequence[str] = False
    named_by: NamedBy = "code"
    check_arch: bool = True
    user_agent: str | Mapping[str, str] | None = None
    refresh: bool = False
    locked: bool = False
    lock_file: Path | None = None
    caller: Caller | None = None
    bound: Registry | None = None
    fetching: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Every decision short of fetching.

    Attributes:
        request: What was asked for.
        selection: Every build with its verdict.
        pin: The commit; None for a folder.
        source: The source's name, or the folder.
        override: The override that applies, if one does.
        locked: What the lock that applies says of the kernel, if one does.
        trust: Whether the code may run; None for a folder, which is the caller's own.
        metadata: Metadata of builds by name, as far as the decision needed them.
        faults: Builds whose metadata cannot be read, with the error.
        folders: The folders of local builds by name.
        alternatives: Ways out beside those that the selection knows.
        notes: What a reader should know.
    """

    request: Request
    selection: Selection
    source: str
    pin: Pin | None = None
    override: Override | None = None
    locked: LockedPin | None = None
    trust: Decision | None = None
    metadata: Mapping[str, Metadata] = field(default_factory=dict)
    faults: Mapping[str, KernelHubError] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def chosen(self) -> Accepted | None:
        """The build that would be loaded."""
        return self.selection.accepted[0] if self.selection.accepted else None

    def to_json(self) -> dict[str, Any]:
        """The whole answer of `explain` as JSON values."""
        chosen = self.chosen
        return {
            "kernel": str(self.request.requirement),
            "source": self.source,
            "commit": self.pin.commit if self.pin else None,
            "version": self.pin.version if self.pin else None,
            "newer_version": self.pin.newer if self.pin else None,
            "override": self.override.defined_in if self.override else None,
            "locked_by": str(self.locked.found) if self.locked else None,
            "trusted": isinstance(self.trust, Trusted) if self.trust else None,
            "trust_reason": self.trust.reason if self.trust else None,
            "signatures_needed": sorted(map(sorted, self.trust.ways))
            if isinstance(self.trust, TrustedIfSigned)
            else None,
            "chosen": chosen.variant.name if chosen else None,
            "accepted": [
                {"label": verdict.variant.name, "archs": list(verdict.archs), "notes": list(verdict.notes)}
                for verdict in self.selection.accepted
            ],
            "rejected": [
                {
                    "label": verdict.variant.name,
                    "reason": verdict.reason.value,
                    "wanted": verdict.wanted,
                    "found": verdict.found,
                }
                for verdict in self.selection.rejected
            ],
            "without_digest": sorted(name for name, metadata in self.metadata.items() if metadata.manifest is None),
            "unreadable": {name: error.message for name, error in self.faults.items()},
            "host": self.selection.host.to_json(),
            "notes": [*self.notes, *self.selection.notes],
            "ways_out": [] if chosen else ways_out(self.selection, self.alternatives),
        }

    def text(self, *, shown: int | None = None) -> str:
        """The whole answer for people.

        Args:
            shown: How many of the builds that do not fit are listed, closest first; None lists all.
        """
        return "\n".join(self._lines(shown))

    def __str__(self) -> str:
        return self.text()

    def _lines(self, shown: int | None) -> list[str]:
        chosen = self.chosen
        lines = [f"{self.pin or 'local folder'} at {self.source}"]
        if self.override:
            lines.append(f"  override: {self.override.defined_in}")
        if self.locked:
            lines.append(f"  locked by: {self.locked.found}")
        if self.trust:
            lines.append(f"  trust: {self.trust.reason}")
        lines.append(f"  machine: {machine(self.selection.host)}")
        lines.append(f"  chosen: {chosen.variant.name if chosen else 'none'}")
        for verdict in self.selection.accepted:
            notes = [f"archs {', '.join(verdict.archs)}"] if verdict.archs else []
            metadata = self.metadata.get(verdict.variant.name)
            if metadata is not None and metadata.manifest is None:
                notes.append("carries no digest")
            notes.extend(verdict.notes)
            suffix = f" ({'; '.join(notes)})" if notes else ""
            lines.append(f"  fits: {verdict.variant.name}{suffix}")
        near = nearest(self.selection)
        lines.extend(f"  does not fit: {entry.text}" for entry in near[:shown])
        if shown is not None and len(near) > shown:
            lines.append(f"  does not fit: {len(near) - shown} more, further off")
        lines.extend(f"  unreadable: {name}: {error.message}" for name, error in sorted(self.faults.items()))
        lines.extend(f"  note: {note}" for note in (*self.notes, *self.selection.notes))
        if not chosen:
            lines.extend(f"  way out: {way}" for way in ways_out(self.selection, self.alternatives))
        return lines


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a kernel could be loaded here; false carries why.

    Truth value: `available`; `known` tells a "no" from a question that could not be answered.

    Attributes:
        available: Whether a build fits and may run.
        reason: Why not; the chosen build's name if it is available.
        error: What loading would raise, if it is not available.
    """

    available: bool
    reason: str
    error: KernelHubError | None = None

    @property
    def known(self) -> bool:
        """False if it could not be found out, because a source was not reached or may not be read."""
        return not isinstance(self.error, FetchError | TrustUnknownError)

    @property
    def answer(self) -> Literal["yes", "no", "unknown"]:
        """The answer in one word."""
        if not self.known:
            return "unknown"
        return "yes" if self.available else "no"

    def __bool__(self) -> bool:
        return self.available


def facts(host: Host) -> dict[str, str]:
    """The host's versions that a user agent may name."""
    named = {
        "python": host.python,
        "torch": host.torch,
        "backend": host.backend.kind.value if host.backend else None,
        "platform": f"{host.cpu}-{host.os}" if host.cpu and host.os else None,
    }
    return {name: str(value) for name, value in named.items() if value is not None}
