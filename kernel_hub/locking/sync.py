"""Bringing locked builds into the cache, for this machine, for another one, or all of them.

Which kernels are needed follows from the builds themselves: a dependency is brought if the chosen build names it. What is
fetched is verified against the lock at once; whether it may run is asked when it is loaded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from kernel_hub.errors import IncompleteArtifactError, OfflineError, TargetNotServedError
from kernel_hub.fetch import fetch, fetch_attestation
from kernel_hub.loader import Loader
from kernel_hub.locking.builds import serves
from kernel_hub.locking.lookup import unbound
from kernel_hub.locking.make import Connect
from kernel_hub.model.artifact import Expectation, VerifiedArtifact
from kernel_hub.model.host import Host
from kernel_hub.model.lock import Lock, LockedBuild, LockedKernel
from kernel_hub.model.metadata import requirement_of
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.selection import Accepted, Variant
from kernel_hub.model.source import Pin
from kernel_hub.model.target import Target
from kernel_hub.plan import Request
from kernel_hub.select import BUILD_FOLDER, variants_of
from kernel_hub.settings import Settings
from kernel_hub.sources.configured import Connection
from kernel_hub.trust import CouldNotCheck, NotTrusted, Subject
from kernel_hub.verify import verify

Progress: TypeAlias = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class SyncedBuild:
    """A locked build that is in the cache now, verified.

    Attributes:
        kernel: Its kernel.
        build: The build.
        folder: Where it lies.
        note: What stands in the way of loading it, or "".
    """

    kernel: LockedKernel
    build: LockedBuild
    folder: Path
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kernel": str(self.kernel.repo),
            "version": self.kernel.version,
            "commit": self.kernel.commit,
            "label": self.build.label,
            "size_bytes": self.build.size_bytes,
            "folder": str(self.folder),
            "note": self.note,
        }


class Syncer:
    """Brings the builds of one lock.

    Args:
        settings: Sources and caches.
        lock: The lock.
        lock_path: Its file.
        connect: The source and cache of a repository.
        progress: Told about downloads.

    Raises:
        RepositoryNotFoundError: If a kernel was locked in a registry and the settings do not bind its namespace.
    """

    def __init__(
        self, settings: Settings, lock: Lock, lock_path: Path, connect: Connect, *, progress: Progress | None = None
    ) -> None:
        for kernel in lock.kernels:
            if kernel.registry is not None and settings.registry_of(kernel.registry) is None:
                raise unbound(kernel.repo, str(lock_path))
        # What an override puts in a kernel's place is not in the lock.
        self._settings = replace(settings, overrides=(), locked_only=False)
        self._lock = lock
        self._path = lock_path
        self._connect = connect
        self._progress = progress

    def for_host(self, host: Host) -> Iterator[SyncedBuild]:
        """Bring what a machine loads: the best locked build of every kernel that it needs.

        Raises:
            NoCompatibleVariantError: If a kernel has no locked build for it.
            FetchError, VerificationError: As fetching and verifying raise.
        """
        loader = Loader(self._settings, host, progress=self._progress)

        def bring(kernel: LockedKernel) -> list[VerifiedArtifact]:
            requirement = Requirement.parse(str(kernel.repo), revision=kernel.commit)
            _, verified = loader.prefetch(Request(requirement, lock_file=self._path, locked=True))
            return [verified]

        yield from self._follow(bring)

    def for_target(self, target: Target) -> Iterator[SyncedBuild]:
        """As `for_host`; a target that leaves backend or torch open gets every locked build that could serve it.

        Raises:
            TargetNotServedError: If a kernel has no locked build for it.
        """
        if target.host is not None:
            yield from self.for_host(target.host)
            return

        def bring(kernel: LockedKernel) -> list[VerifiedArtifact]:
            serving = [build for build in kernel.builds if serves(build.label, build.archs, (target,))]
            if not serving:
                raise TargetNotServedError(
                    f"{self._path} holds no build of {kernel} for {target}",
                    target=str(target),
                    hint="lock for it too: kernel-hub lock --target",
                )
            return [self._bring(kernel, build) for build in serving]

        yield from self._follow(bring)

    def every_build(self) -> Iterator[SyncedBuild]:
        """Bring everything that the lock holds."""
        for kernel in self._lock.kernels:
            for build in kernel.builds:
                yield self._synced(kernel, self._bring(kernel, build))

    def _follow(self, bring: Callable[[LockedKernel], list[VerifiedArtifact]]) -> Iterator[SyncedBuild]:
        pending = [item.requirement for item in self._lock.declared]
        seen: set[tuple[RepoId, str]] = set()
        while pending:
            requirement = pending.pop(0)
            kernel = self._lock.find(requirement)
            if kernel is None or (kernel.repo, kernel.commit) in seen:
                continue
            seen.add((kernel.repo, kernel.commit))
            for verified in bring(kernel):
                yield self._synced(kernel, verified)
                pending.extend(requirement_of(item) for item in verified.metadata.kernel_depends)

    def _bring(self, kernel: LockedKernel, build: LockedBuild) -> VerifiedArtifact:
        pin = Pin(kernel.repo, kernel.commit, version=kernel.version)
        connection = self._connect(kernel.repo)
        variant = _variant(connection, pin, build)
        artifact = fetch(connection.source, connection.cache, pin, Accepted(variant, ()), progress=self._progress)
        return verify(
            artifact, Expectation(version=kernel.version, build_digest=build.digest, locked_by=str(self._path))
        )

    def _synced(self, kernel: LockedKernel, verified: VerifiedArtifact) -> SyncedBuild:
        build = kernel.build(verified.artifact.label)
        assert build is not None, f"{verified.artifact.label} of {kernel} was fetched, but is not locked"
        connection = self._connect(kernel.repo)
        # A machine whose policy asks for a signature must find it without network; this one's need not.
        with contextlib.suppress(OfflineError):
            fetch_attestation(connection.source, connection.cache, Pin(kernel.repo, kernel.commit), build.label)
        return SyncedBuild(kernel, build, verified.artifact.root, self._note(kernel.repo, kernel.commit))

    def _note(self, repo: RepoId, commit: str) -> str:
        # Asked for here too, so that the answer is remembered for loading without network.
        connection = self._connect(repo)
        subject = Subject(repo, commit, "code", lambda: connection.source.publisher(repo.namespace))
        decision = self._settings.trust.decide(subject, bound_in=connection.bound_in)
        return f"{decision.reason}; {decision.remedy}" if isinstance(decision, NotTrusted | CouldNotCheck) else ""


def _variant(connection: Connection, pin: Pin, build: LockedBuild) -> Variant:
    def find() -> Variant | None:
        listed = variants_of(connection.source.files(pin.repo, pin.commit, BUILD_FOLDER))
        return next((variant for variant in listed if variant.name == build.label), None)

    found = find()
    if found is None and connection.source.look_again(pin.repo, pin.commit, BUILD_FOLDER):
        found = find()
    if found is None:
        raise IncompleteArtifactError(
            f"the source of {pin} has no build {build.label}, which is locked",
            missing=(build.label,),
            hint="name a source that has it, or mirror the lock again",
        )
    return found
