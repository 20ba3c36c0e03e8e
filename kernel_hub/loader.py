"""The straight line: resolve, select, narrow, fetch, verify, import.

Online, offline, a registry, a local folder and an override are different sources and expectations given to the one line;
none of them has a path of its own. Every decision before the first download is in a `Plan` (see `kernel_hub.planner`);
here it is carried out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from kernel_hub.admission import admit
from kernel_hub.errors import (
    CacheError,
    DigestMismatchError,
    FetchError,
    IncompleteArtifactError,
    InvalidDocumentError,
    KernelCycleError,
    KernelHubError,
    NoCompatibleVariantError,
    OfflineError,
    ResolutionError,
    SelectionError,
    SignatureInvalidError,
    SourceUnavailableError,
    UnsafePathError,
)
from kernel_hub.fetch import damaged, fetch, fetch_attestation
from kernel_hub.importer import LoadedKernel, check_dependencies, import_artifact, offering
from kernel_hub.locking.lookup import importing
from kernel_hub.model.artifact import (
    Artifact,
    Expectation,
    FromFolder,
    VerifiedArtifact,
)
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import Metadata, requirement_of
from kernel_hub.model.requirement import AnyVersion, RepoId, Requirement
from kernel_hub.model.selection import Accepted
from kernel_hub.plan import Availability, Plan, Request, facts
from kernel_hub.planner import Planner
from kernel_hub.refusal import best
from kernel_hub.select import BUILD_FOLDER
from kernel_hub.settings import Settings
from kernel_hub.sources.configured import connect
from kernel_hub.trust import TrustedIfSigned
from kernel_hub.verify import Stamps, verify

if TYPE_CHECKING:
    from kernel_hub.signatures import SignatureDemand

_LOG = logging.getLogger("kernel_hub")
_T = TypeVar("_T")


class Loader:
    """Loads kernels for one host under one set of settings.

    Args:
        settings: What the environment and configuration decide.
        host: The machine to load for.
        progress: Told about downloads: file, bytes done, bytes in all.
    """

    def __init__(
        self, settings: Settings, host: Host, *, progress: Callable[[str, int, int], None] | None = None
    ) -> None:
        self._settings = settings
        self._host = host
        self._planner = Planner(settings, host)
        self._progress = progress

    def load(self, request: Request) -> LoadedKernel:
        """Import a kernel.

        Raises:
            KernelHubError: Of the stage that failed; see `kernel_hub.errors`.
        """
        return self._else_from_cache(lambda: self._load(replace(request, fetching=True)))

    def _load(self, request: Request) -> LoadedKernel:
        plan = self._planner.plan(request)
        try:
            return self._carry_out(plan)
        except NoCompatibleVariantError as error:
            # A caller with a broad `except` must still be able to find out why its kernel is not in use.
            _LOG.warning("%s", error.message.splitlines()[0], extra={"kernel_hub_plan": plan})
            raise

    def download(self, request: Request) -> VerifiedArtifact:
        """Fetch and verify a kernel without importing it.

        What is not the kernel's in its folder of the cache is removed; loading only refuses it.
        """
        return self._else_from_cache(lambda: self._download(replace(request, fetching=True)))

    def _download(self, request: Request) -> VerifiedArtifact:
        plan = self._planner.plan(request)
        chosen = best(plan.selection, alternatives=plan.alternatives)
        try:
            return self._verified(plan, chosen)
        except (DigestMismatchError, UnsafePathError, CacheError):
            if plan.pin is None or self._settings.mode == "offline":
                raise
            connection = self._planner.connect(plan.request)
            connection.cache.discard(plan.pin.repo, plan.pin.commit, f"{BUILD_FOLDER}/{chosen.variant.name}")
            fetch(connection.source, connection.cache, plan.pin, chosen, progress=self._progress, recheck=True)
            return self._verified(plan, chosen)

    def prefetch(self, request: Request) -> tuple[Plan, VerifiedArtifact]:
        """Fetch and verify a kernel for later: whether it may run, and what Python needs, is asked when it is loaded."""
        plan = self._planner.plan(request)
        chosen = best(plan.selection, alternatives=plan.alternatives)
        if chosen.variant.name in plan.faults:
            raise plan.faults[chosen.variant.name]
        _hold_listing(plan, chosen)
        return plan, self._verify(plan, chosen)

    def availability(self, request: Request) -> Availability:
        """Whether `load` would find a build that may run; "no" is a value with its reason, never an exception."""
        try:
            chosen = self._else_from_cache(lambda: self._require(request, ()))
        except KernelHubError as error:
            return Availability(False, error.message, error)
        return Availability(True, chosen.variant.name)

    def _else_from_cache(self, call: Callable[[], _T]) -> _T:
        """A call's result, with another commit that was loaded before if the source fails to bring the newest."""
        try:
            return call()
        except SourceUnavailableError:
            if not self._planner.fall_back():
                raise
            with contextlib.suppress(FetchError, ResolutionError, SelectionError):
                return call()
            raise

    def _require(self, request: Request, above: tuple[Requirement, ...]) -> Accepted:
        """The build of a kernel that would be loaded, if it and every kernel it depends on may be loaded."""
        plan = self._planner.plan(request)
        chosen = best(plan.selection, alternatives=plan.alternatives)
        admit(plan.request.requirement, plan.trust)
        metadata = self._planner.metadata_of(plan, chosen)
        if metadata is not None:
            check_dependencies(metadata)
            for requirement in _below(plan, metadata, above):
                self._require(replace(request, requirement=requirement), (*above, request.requirement))
        return chosen

    def plan(self, request: Request) -> Plan:
        """What `load` would do; see `Planner.plan`."""
        return self._else_from_cache(lambda: self._planner.plan(request))

    def load_folder(self, request: Request, folder: Path) -> LoadedKernel:
        """As `load`, for a folder of the caller's; no trust is asked."""
        return self._carry_out(self._planner.plan_folder(request, folder))

    def versions(self, repo: RepoId) -> dict[int, str]:
        """The versions of a kernel with their commits, ascending."""
        connection = connect(self._settings, repo.namespace, host_facts=facts(self._host))
        return connection.source.refs(repo).versions()

    def _carry_out(self, plan: Plan, above: tuple[Requirement, ...] = ()) -> LoadedKernel:
        chosen = best(plan.selection, alternatives=plan.alternatives)
        if plan.pin is not None and isinstance(plan.request.requirement.wish, AnyVersion):
            _LOG.info("%s: no version asked for, taking %s", plan.request.requirement, plan.pin)
        for note in (*plan.notes, *plan.selection.notes, *chosen.notes):
            _LOG.log(
                logging.WARNING if note in chosen.yanked else logging.INFO, "%s: %s", plan.request.requirement, note
            )
        verified = self._verified(plan, chosen)
        notes = (*plan.notes, *plan.selection.notes, *chosen.notes)
        with importing(plan.locked), offering(self._load_below(plan, verified.metadata, above)):
            kernel = import_artifact(verified, notes=notes)
        origin = verified.artifact.origin
        # The same bytes may have come from elsewhere before; this call's record says where this call found them.
        return kernel if kernel.origin == origin else replace(kernel, origin=origin, notes=notes)

    def _load_below(self, plan: Plan, metadata: Metadata, above: tuple[Requirement, ...]) -> dict[str, ModuleType]:
        """Load the kernels that a kernel depends on, each by its own plan: trust is asked for every one of them."""
        loaded = {}
        for requirement in _below(plan, metadata, above):
            below = self._planner.plan(replace(plan.request, requirement=requirement))
            kernel = self._carry_out(below, (*above, plan.request.requirement))
            loaded[str(requirement.repo)] = kernel.module
        return loaded

    def _verified(self, plan: Plan, chosen: Accepted) -> VerifiedArtifact:
        admit(plan.request.requirement, plan.trust)
        name = chosen.variant.name
        if name in plan.faults:
            raise plan.faults[name]
        metadata = self._planner.metadata_of(plan, chosen, ahead=True)
        if metadata is not None:
            check_dependencies(metadata)
        _hold_listing(plan, chosen)
        return self._verify(plan, chosen)

    def _verify(self, plan: Plan, chosen: Accepted) -> VerifiedArtifact:
        stamps = None if self._settings.verify_always else Stamps(self._settings.home / "stamps")
        artifact = self._artifact(plan, chosen)
        expectation = _expectation(plan, chosen, require_digest=self._settings.trust.digest == "required")
        demand = self._signature_demand(plan, chosen)
        try:
            return verify(artifact, expectation, stamps=stamps, signatures=demand)
        except (DigestMismatchError, IncompleteArtifactError, InvalidDocumentError, SignatureInvalidError) as error:
            repaired = self._repaired(plan, chosen)
            if repaired is None:
                raise
            _LOG.info("%s; the damaged files were fetched again", error.message)
            return verify(repaired, expectation, stamps=stamps, signatures=demand)

    def _signature_demand(self, plan: Plan, chosen: Accepted) -> SignatureDemand | None:
        """Whose signature the policy waits for, with the build's attestation brought beside it; None if it needs none."""
        if not isinstance(plan.trust, TrustedIfSigned):
            return None
        if plan.pin is not None:
            connection = self._planner.connect(plan.request)
            fetch_attestation(connection.source, connection.cache, plan.pin, chosen.variant.name)
        # Imported here because most loads need no signature.
        from kernel_hub.signatures import SignatureDemand

        return SignatureDemand(plan.trust.ways, self._settings.trust.known_signers(), plan.trust.reason)

    def _repaired(self, plan: Plan, chosen: Accepted) -> Artifact | None:
        """The artifact with what is damaged fetched once more; None if that cannot be had, or nothing was damaged."""
        if plan.pin is None or self._settings.mode == "offline":
            return None
        connection = self._planner.connect(plan.request)
        if not damaged(connection.cache, plan.pin, chosen.variant.files):
            return None
        try:
            return fetch(connection.source, connection.cache, plan.pin, chosen, progress=self._progress, recheck=True)
        except FetchError:
            return None

    def _artifact(self, plan: Plan, chosen: Accepted) -> Artifact:
        name = chosen.variant.name
        if plan.pin is None:
            reason = plan.override.defined_in if plan.override else "local path"
            folder = plan.folders[name]
            return Artifact(FromFolder(folder, reason), name, folder, archs=chosen.archs, left_out=chosen.left_out)
        connection = self._planner.connect(plan.request)
        try:
            return fetch(connection.source, connection.cache, plan.pin, chosen, progress=self._progress)
        except (IncompleteArtifactError, OfflineError, SourceUnavailableError) as error:
            if plan.locked is None:
                raise
            from kernel_hub.locking.holding import not_synced

            raise not_synced(plan.locked, chosen, connection.cache, error) from error


def _below(plan: Plan, metadata: Metadata, above: tuple[Requirement, ...]) -> tuple[Requirement, ...]:
    """What a kernel's metadata names as kernels it needs.

    Raises:
        KernelCycleError: If one of them needs the kernel itself; `above` are those that led to it.
    """
    chain = (*above, plan.request.requirement)
    needed = tuple(requirement_of(item) for item in metadata.kernel_depends)
    for requirement in needed:
        if requirement in chain:
            raise KernelCycleError([str(item) for item in (*chain[chain.index(requirement) :], requirement)])
    return needed


def _expectation(plan: Plan, chosen: Accepted, *, require_digest: bool) -> Expectation:
    return Expectation(
        version=plan.pin.version if plan.pin else None,
        build_digest=plan.locked.digest_of(chosen.variant.name) if plan.locked else None,
        locked_by=str(plan.locked.found) if plan.locked else "",
        require_digest=require_digest,
    )


def _hold_listing(plan: Plan, chosen: Accepted) -> None:
    if plan.locked is not None:
        # Imported here, because most loads are not locked.
        from kernel_hub.locking.holding import require_listing

        require_listing(plan.locked, chosen.variant, plan.source)
