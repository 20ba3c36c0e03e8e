"""Stages 1 and 2 with their reading: a request becomes a `Plan`, which holds every decision short of fetching.

`explain` returns the plan, `kernel_hub.loader` carries it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_hub.admission import admit, may_run
from kernel_hub.described import read_described, read_folders
from kernel_hub.devices import has_devices, likely, narrow_to_devices, require_device
from kernel_hub.errors import (
    FetchError,
    KernelHubError,
    NotLockedError,
    ResolutionError,
)
from kernel_hub.local import find_builds, is_project
from kernel_hub.locking.lookup import binding_of, find_pin
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.requirement import AtRevision, Requirement, is_commit
from kernel_hub.model.selection import Accepted, Selection
from kernel_hub.model.source import Pin, PublisherStanding
from kernel_hub.model.status import FILE_NAME, Redirect, UnknownStatus
from kernel_hub.model.variant import UnknownLabel
from kernel_hub.overrides import Override, near_misses
from kernel_hub.plan import Plan, Request, facts
from kernel_hub.redirects import require_new, status_of
from kernel_hub.resolve import candidates
from kernel_hub.select import BUILD_FOLDER, select, variants_of
from kernel_hub.settings import Settings
from kernel_hub.sources.configured import Connection, connect
from kernel_hub.trust import Decision, Subject
from kernel_hub.yanks import mark, yanks_of

if TYPE_CHECKING:
    from kernel_hub.model.lock_pin import LockedPin
    from kernel_hub.registries import Registry

_LOG = logging.getLogger("kernel_hub")

# A refusal looks at other versions of the kernel for a way out; that many at most, nearest first.
_MAX_ALTERNATIVES_LOOKED_AT = 8


class Planner:
    """Makes plans for one host under one set of settings."""

    def __init__(self, settings: Settings, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._connections: dict[tuple[str, str, bool, Registry | None], Connection] = {}

    def plan(self, request: Request) -> Plan:
        """Decide everything short of fetching.

        Raises:
            ResolutionError: If the repository, version or revision is not there.
            FetchError: If the source cannot be read.
            VerificationError: If the kernel moved to a repository that is not trusted.
            InvalidDocumentError: If the request names a device that is not there.
        """
        require_device(self._host.for_backend(request.backend), request.device)
        return self._plan(request, ())

    def _plan(self, request: Request, followed: tuple[Requirement, ...]) -> Plan:
        repo = request.requirement.repo
        override = self._settings.override_of(repo)
        if override is not None:
            self._require_unlocked_allowed(f"{override.defined_in} puts a folder in the place of {repo}", override.path)
            return self._plan_folder(request, override.path, named_by=override.defined_in, override=override)
        for near in near_misses(self._settings.overrides, repo):
            _LOG.warning("override for %s is not used for %s (%s)", near.repo, repo, near.defined_in)
        locked = find_pin(
            self._settings,
            request.requirement,
            lock_file=request.lock_file,
            caller=request.caller,
            required=request.locked,
        )
        if locked is not None:
            request = replace(request, bound=binding_of(self._settings, locked))
        connection = self.connect(request)
        if self._asks_publisher(request, connection):
            # Nothing else depends on the answer, so it may come while the versions are looked up.
            connection.source.begin_publisher(repo.namespace)
        if locked is not None:
            return self._plan_locked(request, connection, locked)
        refs = connection.source.refs_for(request.requirement) if _needs_refs(request) else None
        pins = candidates(request.requirement, refs) if refs is not None else (_pin_of_commit(request),)
        status = status_of(connection.source, connection.cache, pins[0]) if refs is not None else None
        if isinstance(status, Redirect):
            return self._plan_moved(request, pins[0], status, (*followed, request.requirement))
        plans = (self._plan_pin(request, connection, pin) for pin in pins)
        first = next(plans)
        if isinstance(status, UnknownStatus):
            first = replace(first, notes=(f"{FILE_NAME} says {status.kind!r}, which is not understood", *first.notes))
        if first.chosen is not None:
            return first
        # Only a range has more pins than one: an older version inside it that fits is what the caller allowed.
        fitting = next((plan for plan in plans if plan.chosen is not None), None)
        if fitting is not None:
            note = f"{first.pin} has no fitting build; took the newest version in range that has one"
            return replace(fitting, notes=(*fitting.notes, note))
        return replace(first, alternatives=(*self._other_versions(request, connection, pins), *first.alternatives))

    def _plan_moved(self, request: Request, pin: Pin, move: Redirect, followed: tuple[Requirement, ...]) -> Plan:
        """The plan for where a kernel moved to, once the policy was asked about that place."""
        requirement = move.follow(request.requirement)
        require_new(followed, requirement)
        onward = replace(request, requirement=requirement)
        connection = self.connect(onward)
        standing = partial(connection.source.publisher, requirement.repo.namespace)
        decision = self._trust(onward, connection, None, standing)
        if not may_run(decision) and self._settings.trust.names_commits_of(requirement.repo) and _needs_refs(onward):
            # What is allowed at one commit only needs the commit, which is a name and no file of the repository.
            commit = candidates(requirement, connection.source.refs(requirement.repo))[0].commit
            decision = self._trust(onward, connection, commit, standing)
        admit(followed[0] if len(followed) == 1 else requirement, decision)
        plan = self._plan(onward, followed)
        return replace(plan, notes=(f"{pin} moved to {requirement}", *plan.notes))

    def plan_folder(self, request: Request, folder: Path) -> Plan:
        """As `plan`, for a folder of the caller's."""
        require_device(self._host.for_backend(request.backend), request.device)
        self._require_unlocked_allowed(f"{folder} is a folder", folder)
        return self._plan_folder(request, folder.absolute(), named_by="local path", override=None)

    def metadata_of(self, plan: Plan, chosen: Accepted, *, ahead: bool = False) -> Metadata | None:
        """The metadata of the chosen build, read now if the decision did not need it; None if a folder has none.

        Args:
            plan: What was decided.
            chosen: The build.
            ahead: Whether the build's other small files may come in the same round, because it is about to be fetched.
        """
        known = plan.metadata.get(chosen.variant.name)
        if known is not None or plan.pin is None or chosen.variant.name in plan.faults:
            return known
        connection = self.connect(plan.request)
        read, faults = read_described(connection, plan.pin, (chosen.variant.name,), ahead=chosen if ahead else None)
        if chosen.variant.name in faults:
            raise faults[chosen.variant.name]
        return read.get(chosen.variant.name)

    def connect(self, request: Request) -> Connection:
        """The source and cache that a request is answered from; the same ones each time, which remember what was asked."""
        namespace, settings, bound = request.requirement.repo.namespace, self._settings, request.bound
        if bound is not None and bound.namespace == namespace:
            settings = replace(settings, registries={**settings.registries, namespace: bound})
        key = (namespace, str(request.user_agent), request.refresh, bound)
        if key not in self._connections:
            self._connections[key] = connect(
                settings,
                namespace,
                host_facts=facts(self._host),
                user_agent=request.user_agent,
                refresh=request.refresh,
            )
        return self._connections[key]

    def fall_back(self) -> bool:
        """Answer from the caches alone from now on; False unless a source failed whose cache has something to offer."""
        fallen = [connection.source.fall_back() for connection in self._connections.values()]
        return any(fallen)

    def _require_unlocked_allowed(self, what: str, folder: Path) -> None:
        if self._settings.locked_only:
            raise NotLockedError(
                f"{what}, and KERNEL_HUB_LOCKED allows only what is locked",
                hint=f"unset KERNEL_HUB_LOCKED to work with {folder}",
            )

    def _plan_locked(self, request: Request, connection: Connection, locked: LockedPin) -> Plan:
        """As `_plan_pin`, with the locked commit and no other builds than the locked ones."""
        plan = self._plan_pin(request, connection, locked.pin, locked)
        if plan.chosen is None and connection.source.look_again(locked.pin.repo, locked.pin.commit, BUILD_FOLDER):
            plan = self._plan_pin(request, connection, locked.pin, locked)
        if plan.chosen is not None:
            return plan
        whole = self._plan_pin(replace(request, fetching=False), connection, locked.pin)
        if whole.chosen is not None:
            limits = f" (it was made for {', '.join(locked.targets)})" if locked.targets else ""
            way = f"lock for this machine too{limits}: its build {whole.chosen.variant.name} fits, but is not locked"
            return replace(plan, alternatives=(way,))
        others = self._other_versions(request, connection, (locked.pin,))
        return replace(plan, alternatives=tuple(f"{way}, then lock again: kernel-hub lock" for way in others))

    def _plan_pin(self, request: Request, connection: Connection, pin: Pin, locked: LockedPin | None = None) -> Plan:
        variants = variants_of(connection.source.files(pin.repo, pin.commit, BUILD_FOLDER))
        if locked is not None:
            variants = tuple(variant for variant in variants if locked.allows(variant.name))
        host = self._host.for_backend(request.backend)
        selection = select(variants, host, subject=_subject(pin))
        trust = self._trust(request, connection, pin.commit, lambda: connection.source.publisher(pin.repo.namespace))
        metadata: Mapping[str, Metadata] = {}
        faults: Mapping[str, KernelHubError] = {}
        if request.check_arch and has_devices(host):
            names = tuple(verdict.variant.name for verdict in selection.accepted)
            ahead = likely(selection) if request.fetching and may_run(trust) else None
            metadata, faults = read_described(connection, pin, names, ahead=ahead)
            selection = narrow_to_devices(selection, metadata, request.device)
        selection = mark(selection, yanks_of(connection.source, connection.cache, pin))
        notes = [f"a newer version is available: v{pin.newer}"] if pin.newer is not None else []
        return Plan(
            request,
            selection,
            connection.source.name,
            pin=pin,
            locked=locked,
            trust=trust,
            metadata=metadata,
            faults=faults,
            alternatives=_build_from(metadata),
            notes=tuple(notes),
        )

    def _plan_folder(self, request: Request, folder: Path, *, named_by: str, override: Override | None) -> Plan:
        builds = find_builds(folder, named_by=named_by)
        host = self._host.for_backend(request.backend)
        variants = builds.variants()
        if builds.single and isinstance(variants[0].label, UnknownLabel):
            # The caller named one build; its folder may be called anything, so there is nothing to judge but the archs.
            selection = Selection(str(folder), host, (Accepted(variants[0], ()),), ())
        else:
            selection = select(variants, host, subject=str(folder))
        metadata, faults = read_folders(builds, [verdict.variant.name for verdict in selection.accepted])
        if request.check_arch:
            selection = narrow_to_devices(selection, metadata, request.device)
        notes = (f"taken from {folder} because of {override.defined_in}",) if override else ()
        return Plan(
            request,
            selection,
            str(folder),
            override=override,
            metadata=metadata,
            faults=faults,
            alternatives=("build it here from its sources: kernel-hub build",) if is_project(folder) else (),
            folders=builds.folders,
            notes=notes,
        )

    def _trust(
        self, request: Request, connection: Connection, commit: str | None, standing: Callable[[], PublisherStanding]
    ) -> Decision:
        subject, word = Subject(request.requirement.repo, commit, request.named_by, standing), request.trust_remote_code
        return self._settings.trust.decide(subject, trust_remote_code=word, bound_in=connection.bound_in)

    def _asks_publisher(self, request: Request, connection: Connection) -> bool:
        asked = []

        def note() -> PublisherStanding:
            asked.append(True)
            return PublisherStanding(None, "not asked yet")

        self._trust(request, connection, None if _needs_refs(request) else _pin_of_commit(request).commit, note)
        return bool(asked)

    def _other_versions(self, request: Request, connection: Connection, pins: tuple[Pin, ...]) -> tuple[str, ...]:
        """Other versions that have a fitting build, nearest to the one asked for; what cannot be read is passed over."""
        repo, request = request.requirement.repo, replace(request, fetching=False)
        asked = pins[0].version
        try:
            versions = connection.source.refs(repo).versions()
        except (ResolutionError, FetchError):
            return ()
        others = [number for number in versions if number not in {pin.version for pin in pins}]
        others.sort(key=lambda number: (abs(number - (asked if asked is not None else max(versions))), -number))
        for number in others[:_MAX_ALTERNATIVES_LOOKED_AT]:
            try:
                plan = self._plan_pin(
                    request, connection, Pin(repo, versions[number], version=number, ref=f"v{number}")
                )
            except (ResolutionError, FetchError):
                continue
            if plan.chosen is not None:
                return (
                    f"take version {number}, which has a build that fits ({plan.chosen.variant.name}): version={number}",
                )
        return ()


def _build_from(metadata: Mapping[str, Metadata]) -> tuple[str, ...]:
    """The way out by building, where builds that were read say what they were built from."""
    sources = sorted({read.source for read in metadata.values() if read.source is not None})
    return tuple(f"build it here from its sources at {source}: kernel-hub build" for source in sources[:1])


def _needs_refs(request: Request) -> bool:
    wish = request.requirement.wish
    return not (isinstance(wish, AtRevision) and is_commit(wish.revision))


def _pin_of_commit(request: Request) -> Pin:
    return Pin(request.requirement.repo, str(request.requirement.wish))


def _subject(pin: Pin) -> str:
    return f"{pin.repo}@{pin.ref or pin.commit}"
