"""Does a lock still answer its project? What disagrees, what was withdrawn, what deserves a look.

Leaves out repairing: that is `kernel-hub lock`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernel_hub.errors import FetchError, InvalidDocumentError, LockOutdatedError, ResolutionError
from kernel_hub.locking.builds import read_builds
from kernel_hub.locking.make import Connect
from kernel_hub.locking.standing import Ask, Standing, State, standing_of
from kernel_hub.model.lock import Declaration, Lock, LockedKernel, sorted_targets, wish_text
from kernel_hub.model.repo_path import ATTESTATION_FOLDER, attestation_path
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Pin
from kernel_hub.model.status import Redirect
from kernel_hub.redirects import status_of
from kernel_hub.select import BUILD_FOLDER


@dataclass(frozen=True, slots=True)
class Checked:
    """A lock that answers its project.

    Attributes:
        standings: What the sources say of each kernel.
    """

    standings: tuple[Standing, ...]

    @property
    def unasked(self) -> tuple[Standing, ...]:
        """Kernels of which nothing could be found out."""
        return tuple(item for item in self.standings if item.state is State.UNKNOWN)


def disagreements(declared: Iterable[Declaration], lock: Lock) -> tuple[str, ...]:
    """Where a project's declarations and its lock differ, one line each."""
    wanted = {item.requirement.repo: item for item in declared}
    locked = {item.requirement.repo: item for item in lock.declared}
    return tuple(
        line
        for repo in sorted({*wanted, *locked}, key=str)
        for line in _differ(repo, wanted.get(repo), locked.get(repo))
    )


def check_lock(declared: Iterable[Declaration], lock: Lock, ask: Ask) -> Checked:
    """Hold a lock to its project and its sources.

    What cannot be asked, because there is no network, is no fault; see `Checked.unasked`.

    Raises:
        LockOutdatedError: If they disagree, or something that is locked was withdrawn.
    """
    problems = list(disagreements(declared, lock))
    standings = tuple(standing_of(kernel, ask) for kernel in lock.kernels)
    withdrawn = [f"{item.kernel} was withdrawn: {item.reason}" for item in standings if item.state is State.WITHDRAWN]
    problems += withdrawn
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        # Locking again takes what is newest, which is what was withdrawn as long as nothing newer is published.
        hint = "declare another version, or wait for a newer commit and lock again: kernel-hub lock --upgrade"
        raise LockOutdatedError(
            f"the lock does not hold any more:\n{lines}",
            problems=problems,
            hint=hint if withdrawn else "bring it up to date: kernel-hub lock",
        )
    return Checked(standings)


class Concern(StrEnum):
    """What an audit looks at."""

    WITHDRAWN = "withdrawn"
    REWRITTEN = "rewritten"
    MOVED = "moved"
    NEWER = "newer version"
    UNSIGNED = "unsigned"
    NO_DIGEST = "no digest"
    DIRTY = "dirty build"
    CHANGED = "changed builds"
    UNKNOWN = "not checked"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that an audit found.

    Attributes:
        kernel: In which kernel.
        label: In which of its builds; "" for the kernel.
        concern: What kind of thing.
        text: In words.
    """

    kernel: LockedKernel
    label: str
    concern: Concern
    text: str

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kernel": str(self.kernel.repo),
            "version": self.kernel.version,
            "commit": self.kernel.commit,
            "label": self.label,
            "concern": self.concern.value,
            "text": self.text,
        }

    @property
    def is_grave(self) -> bool:
        """Whether something happened to what is locked, rather than that it could be better."""
        return self.concern in (Concern.WITHDRAWN, Concern.REWRITTEN, Concern.CHANGED)


def audit_lock(lock: Lock, ask: Ask, connect: Connect) -> tuple[Remark, ...]:
    """Look at everything that is locked: is it there, was it replaced, who signed it, what was it built from.

    Args:
        lock: The lock.
        ask: Sources, for what is there now.
        connect: Sources and caches, for metadata of locked commits.
    """
    return tuple(remark for kernel in lock.kernels for remark in _audit(kernel, ask, connect))


def _differ(repo: RepoId, wanted: Declaration | None, locked: Declaration | None) -> Iterator[str]:
    if locked is None:
        yield f"{repo} is declared, but not locked"
    elif wanted is None:
        yield f"{repo} is locked, but not declared"
    else:
        asked, held = wish_text(wanted.requirement.wish), wish_text(locked.requirement.wish)
        if asked != held:
            yield f"{repo} is declared as {asked}, but locked for {held}"
        if sorted_targets(wanted.targets) != sorted_targets(locked.targets):
            yield f"{repo} is declared for {_named(wanted)}, but locked for {_named(locked)}"


def _named(item: Declaration) -> str:
    return ", ".join(map(str, sorted_targets(item.targets))) or "all of the lock's targets"


def _audit(kernel: LockedKernel, ask: Ask, connect: Connect) -> Iterator[Remark]:
    standing = standing_of(kernel, ask)
    match standing.state:
        case State.WITHDRAWN:
            yield Remark(kernel, "", Concern.WITHDRAWN, standing.reason)
        case State.REWRITTEN:
            yield Remark(kernel, "", Concern.REWRITTEN, standing.reason)
        case State.UNKNOWN:
            yield Remark(kernel, "", Concern.UNKNOWN, standing.reason)
        case _:
            pass
    if standing.newest is not None and standing.newest > kernel.version:
        yield Remark(kernel, "", Concern.NEWER, f"v{standing.newest} is published, v{kernel.version} is locked")
    try:
        if standing.head is not None:
            connection = connect(kernel.repo)
            status = status_of(connection.source, connection.cache, Pin(kernel.repo, standing.head))
            if isinstance(status, Redirect):
                yield Remark(kernel, "", Concern.MOVED, f"it is published as {status.destination} now")
        yield from _audit_builds(kernel, connect)
    except (FetchError, ResolutionError, InvalidDocumentError) as error:
        if standing.state not in (State.WITHDRAWN, State.UNKNOWN):
            yield Remark(kernel, "", Concern.UNKNOWN, error.message)


def _audit_builds(kernel: LockedKernel, connect: Connect) -> Iterator[Remark]:
    connection = connect(kernel.repo)
    pin = Pin(kernel.repo, kernel.commit, version=kernel.version)
    listed = (connection.source.files(kernel.repo, kernel.commit, name) for name in (BUILD_FOLDER, ATTESTATION_FOLDER))
    paths = {entry.path for files in listed for entry in files}
    found = {item.locked.label: item for item in read_builds(connection, pin, ()).found}
    for build in kernel.builds:
        read = found.get(build.label)
        if read is None or read.locked.digest != build.digest:
            state = "is not there" if read is None else "has other bytes than the locked ones"
            yield Remark(kernel, build.label, Concern.CHANGED, f"the build {state} under the locked commit")
            continue
        if not paths & {f"{BUILD_FOLDER}/{build.label}/metadata.json.sigstore", attestation_path(build.label)}:
            yield Remark(kernel, build.label, Concern.UNSIGNED, "it has neither a Sigstore bundle nor an attestation")
        if read.metadata.manifest is None:
            yield Remark(kernel, build.label, Concern.NO_DIGEST, "its metadata lists no digests of its files")
        if read.metadata.provenance is not None and read.metadata.provenance.dirty:
            yield Remark(kernel, build.label, Concern.DIRTY, "built from sources that were not exactly a commit's")
