"""What a lock says of one kernel, whichever format the lock has: a commit, and the digests of its builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from kernel_hub.model.digest import Digest
from kernel_hub.model.lock import Lock
from kernel_hub.model.lock_peer import ListingDigest, PeerLock
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.source import Pin

AnyLock: TypeAlias = Lock | PeerLock
LockDigest: TypeAlias = Digest | ListingDigest


@dataclass(frozen=True, slots=True)
class FoundLock:
    """A lock and where it was found.

    Attributes:
        lock: The lock.
        path: Its file.
        found_by: What led to it: an argument, a variable, a distribution or a folder.
    """

    lock: AnyLock
    path: Path
    found_by: str

    def pin(self, requirement: Requirement) -> LockedPin | None:
        """What it says of a kernel, or None."""
        match self.lock:
            case Lock():
                kernel = self.lock.find(requirement)
                if kernel is None:
                    return None
                digests: dict[str, LockDigest] = {build.label: build.digest for build in kernel.builds}
                targets = tuple(map(str, self.lock.targets))
                pin = Pin(kernel.repo, kernel.commit, version=kernel.version)
                return LockedPin(pin, self, MappingProxyType(digests), targets, kernel.registry is not None)
            case PeerLock():
                entry = self.lock.find(requirement)
                if entry is None:
                    return None
                builds = None if entry.builds is None else MappingProxyType(dict(entry.builds))
                return LockedPin(Pin(entry.repo, entry.commit), self, builds)

    def says_of(self, repo: RepoId) -> str:
        """What it holds of a repository, in words."""
        match self.lock:
            case Lock():
                held = [f"v{kernel.version}" for kernel in self.lock.named(repo)]
            case PeerLock():
                held = [str(kernel.wish or "a commit") for kernel in self.lock.named(repo)]
        return f"holds {repo} at {' and '.join(held)} only" if held else f"does not hold {repo}"

    def __str__(self) -> str:
        return f"{self.path} ({self.found_by})"


@dataclass(frozen=True, slots=True)
class LockedPin:
    """What a lock says of one kernel.

    Attributes:
        pin: The commit; its version if the lock says it.
        found: The lock.
        builds: Digests of the builds that may be loaded, by label; None if the lock does not restrict them.
        targets: The machines that the lock was limited to; none if it was not.
        was_bound: Whether the namespace was bound to a registry when the lock was made.
    """

    pin: Pin
    found: FoundLock
    builds: Mapping[str, LockDigest] | None
    targets: tuple[str, ...] = ()
    was_bound: bool = False

    def digest_of(self, label: str) -> Digest | None:
        """The digest over bytes that the lock holds of a build, or None if it holds none."""
        found = self.builds.get(label) if self.builds is not None else None
        return found if isinstance(found, Digest) else None

    def allows(self, label: str) -> bool:
        """Whether the build of this name is locked."""
        return self.builds is None or label in self.builds
