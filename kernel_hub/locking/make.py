"""Making a lock: what a project declares becomes commits, builds and digests, for any machine, on any machine.

Nothing here looks at the machine it runs on, so a lock is the same bytes wherever it is made. What a previous lock holds is
kept while it still fits; only what is asked to be upgraded, or does not fit, is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from kernel_hub.errors import KernelCycleError, RedirectError, TargetNotServedError
from kernel_hub.locking.builds import CommitBuilds, read_builds, serves
from kernel_hub.model.lock import Declaration, Lock, LockedKernel, sorted_targets, wish_text
from kernel_hub.model.metadata import requirement_of
from kernel_hub.model.requirement import AtRevision, ExactVersion, RepoId, Requirement, Wish
from kernel_hub.model.source import Pin
from kernel_hub.model.status import Redirect
from kernel_hub.model.target import Target
from kernel_hub.redirects import status_of
from kernel_hub.resolve import candidates
from kernel_hub.sources.configured import Connection

Connect: TypeAlias = Callable[[RepoId], Connection]
Key: TypeAlias = tuple[RepoId, str]
Machines: TypeAlias = frozenset[Target] | None
"""The targets that a kernel is needed on; None for every build that exists."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What is looked up again although a previous lock holds it."""

    everything: bool = False
    repos: frozenset[RepoId] = frozenset()

    def __contains__(self, repo: RepoId) -> bool:
        return self.everything or repo in self.repos

    def __bool__(self) -> bool:
        return self.everything or bool(self.repos)


KEEP = Upgrade()


@dataclass(frozen=True, slots=True)
class Made:
    """A new lock.

    Attributes:
        lock: The lock.
        notes: What a reader should know: builds that were left out, and why.
    """

    lock: Lock
    notes: tuple[str, ...] = ()


def make_lock(
    declared: Iterable[Declaration],
    connect: Connect,
    *,
    targets: Iterable[Target] = (),
    previous: Lock | None = None,
    upgrade: Upgrade = KEEP,
) -> Made:
    """Lock what is declared and everything it depends on.

    Args:
        declared: What the project asks for.
        connect: The source and cache of a repository.
        targets: The machines to lock for; none for every build that exists.
        previous: A lock whose choices are kept while they fit.
        upgrade: What is looked up again all the same.

    Raises:
        ResolutionError: If a repository, version or revision is not there, a kernel moved, or kernels depend on each other in
            a circle.
        TargetNotServedError: If a declared kernel has no build for one of its machines.
        FetchError: If a source cannot be read.
    """
    wanted = Lock(tuple(declared), (), tuple(targets))
    if (
        previous is not None
        and not upgrade
        and (previous.declared, previous.targets) == (wanted.declared, wanted.targets)
    ):
        return Made(previous)
    return _Maker(connect, wanted, previous, upgrade).make()


def machines_of(lock: Lock) -> dict[Key, Machines]:
    """The machines that each locked kernel is needed on, by repository and commit."""
    found: dict[Key, Machines] = {}
    pending = [(item.requirement, _machines(item, lock)) for item in lock.declared]
    while pending:
        requirement, machines = pending.pop()
        kernel = lock.find(requirement)
        if kernel is None:
            continue
        key = (kernel.repo, kernel.commit)
        union = machines if key not in found else _union(found[key], machines)
        if key not in found or union != found[key]:
            found[key] = union
            pending.extend((item, union) for item in kernel.depends)
    return found


@dataclass(frozen=True, slots=True)
class _Choice:
    """A commit with its builds, while the lock grows."""

    kernel: LockedKernel
    machines: Machines


class _Maker:
    def __init__(self, connect: Connect, wanted: Lock, previous: Lock | None, upgrade: Upgrade) -> None:
        self._connect = connect
        self._wanted = wanted
        self._previous = previous
        self._upgrade = upgrade
        self._previous_machines = machines_of(previous) if previous else {}
        self._choices: dict[Key, _Choice] = {}
        self._resolved: dict[tuple[RepoId, str], Key] = {}
        self._notes: dict[Key, tuple[str, ...]] = {}

    def make(self) -> Made:
        for item in self._wanted.declared:
            machines = _machines(item, self._wanted)
            self._visit(item.requirement, machines, must_serve=machines or frozenset())
        self._refuse_circles()
        kernels = tuple(choice.kernel for choice in self._choices.values())
        notes = tuple(note for key in sorted(self._notes, key=str) for note in self._notes[key])
        return Made(replace(self._wanted, kernels=kernels), notes)

    def _visit(self, root: Requirement, machines: Machines, *, must_serve: frozenset[Target]) -> None:
        pending = [(root, machines, must_serve)]
        while pending:
            requirement, machines, must_serve = pending.pop()
            asked = (requirement.repo, wish_text(requirement.wish))
            key = self._resolved.get(asked)
            if key is None:
                key = self._resolved[asked] = self._choose(requirement, machines, must_serve)
            choice = self._choices[key]
            union = _union(choice.machines, machines)
            if union != choice.machines:
                choice = self._settle(self._pin_of(choice.kernel), union)
            _require_served(choice.kernel, must_serve)
            kernel = replace(choice.kernel, wishes=(*choice.kernel.wishes, requirement.wish))
            is_news = self._choices[key] != replace(choice, kernel=kernel)
            self._choices[key] = replace(choice, kernel=kernel)
            if is_news:
                pending.extend((item, choice.machines, frozenset()) for item in kernel.depends)

    def _choose(self, requirement: Requirement, machines: Machines, must_serve: frozenset[Target]) -> Key:
        """The commit for a requirement: the previous one if it fits, else the best that the source has."""
        refused: TargetNotServedError | None = None
        for pin in self._pins(requirement):
            key = (pin.repo, pin.commit)
            union = _union(self._choices[key].machines, machines) if key in self._choices else machines
            try:
                choice = self._settle(pin, union)
                _require_served(choice.kernel, must_serve)
            except TargetNotServedError as error:
                refused = refused or error
                continue
            self._choices[key] = choice
            return key
        assert refused is not None
        raise TargetNotServedError(
            refused.message, target=refused.target, hint=self._way_out(requirement, machines, refused)
        )

    def _pins(self, requirement: Requirement) -> Iterable[Pin]:
        kept = self._kept(requirement)
        if kept is not None:
            yield kept
        connection = self._connect(requirement.repo)
        for pin in candidates(requirement, connection.source.refs(requirement.repo)):
            if kept is None or pin.commit != kept.commit:
                _refuse_moved(requirement, pin, connection)
                yield pin

    def _kept(self, requirement: Requirement) -> Pin | None:
        if self._previous is None or requirement.repo in self._upgrade:
            return None
        kernel = self._previous.find(requirement)
        return None if kernel is None else self._pin_of(kernel)

    def _pin_of(self, kernel: LockedKernel) -> Pin:
        return Pin(kernel.repo, kernel.commit, version=kernel.version)

    def _settle(self, pin: Pin, machines: Machines) -> _Choice:
        """A commit with the builds for some machines: from the previous lock, or read."""
        key = (pin.repo, pin.commit)
        wishes = self._choices[key].kernel.wishes if key in self._choices else ()
        if self._previous is not None and self._previous_machines.get(key, frozenset()) == machines:
            before = next((item for item in self._previous.kernels if (item.repo, item.commit) == key), None)
            if before is not None:
                return _Choice(replace(before, wishes=wishes), machines)
        connection = self._connect(pin.repo)
        builds = read_builds(connection, pin, machines or ())
        self._notes[key] = tuple(f"{pin}: build {item.label} is left out: {item.reason}" for item in builds.left_out)
        if not builds.found:
            raise _no_builds(pin, machines, builds)
        return _Choice(_kernel(pin, builds, wishes, bound=connection.bound_in is not None), machines)

    def _way_out(self, requirement: Requirement, machines: Machines, refused: TargetNotServedError) -> str:
        """Another version of the kernel that has the builds, nearest to the one asked for."""
        asked = requirement.wish.number if isinstance(requirement.wish, ExactVersion) else None
        if isinstance(requirement.wish, AtRevision):
            return refused.hint()
        refs = self._connect(requirement.repo).source.refs(requirement.repo)
        tried = {pin.version for pin in candidates(requirement, refs)}
        others = [number for number in refs.versions() if number not in tried]
        others.sort(key=lambda number: (abs(number - (asked if asked is not None else max(others))), -number))
        for number in others:
            pin = Pin(requirement.repo, refs.versions()[number], version=number)
            try:
                kernel = self._settle(pin, machines).kernel
                _require_served(kernel, machines or frozenset())
            except TargetNotServedError:
                continue
            return f'version {number} has builds for it: declare {requirement.repo} = "{number}"'
        return refused.hint()

    def _refuse_circles(self) -> None:
        """Raise if kernels depend on each other in a circle, naming it."""
        done: set[Key] = set()

        def walk(requirement: Requirement, path: tuple[Key, ...], names: tuple[str, ...]) -> None:
            key = self._resolved[requirement.repo, wish_text(requirement.wish)]
            named = (*names, str(requirement))
            if key in path:
                circle = named[path.index(key) :]
                raise KernelCycleError(circle)
            if key not in done:
                for item in self._choices[key].kernel.depends:
                    walk(item, (*path, key), named)
                done.add(key)

        for item in self._wanted.declared:
            walk(item.requirement, (), ())


def _refuse_moved(requirement: Requirement, pin: Pin, connection: Connection) -> None:
    """Refuse to lock a kernel under a name that it left: the lock would hold what nobody maintains any more."""
    status = status_of(connection.source, connection.cache, pin)
    if isinstance(status, Redirect):
        destination = status.follow(requirement)
        raise RedirectError(
            f"{requirement} moved to {destination}",
            hint=f"declare its new name: kernel-hub remove {requirement.repo}, then kernel-hub add {destination}",
        )


def _kernel(pin: Pin, builds: CommitBuilds, wishes: tuple[Wish, ...], *, bound: bool) -> LockedKernel:
    read = [item.metadata for item in builds.found]
    return LockedKernel(
        repo=pin.repo,
        commit=pin.commit,
        version=builds.version,
        wishes=wishes,
        builds=tuple(item.locked for item in builds.found),
        registry=pin.repo.namespace if bound else None,
        depends=tuple(requirement_of(item) for metadata in read for item in metadata.kernel_depends),
        python_depends=tuple(name for metadata in read for name in metadata.python_depends),
    )


def _machines(item: Declaration, lock: Lock) -> Machines:
    return frozenset(item.targets or lock.targets) or None


def _union(left: Machines, right: Machines) -> Machines:
    return None if left is None or right is None else left | right


def _require_served(kernel: LockedKernel, targets: Iterable[Target]) -> None:
    for target in sorted_targets(targets):
        if not any(serves(build.label, build.archs, (target,)) for build in kernel.builds):
            raise TargetNotServedError(
                f"{kernel} has no build for {target}", target=str(target), hint=_limits([str(target)])
            )


def _no_builds(pin: Pin, machines: Machines, builds: CommitBuilds) -> TargetNotServedError:
    names = [str(target) for target in sorted_targets(machines or ())]
    wanted = f"for {', '.join(names)}" if names else "that can be locked"
    lines = [f"{pin} has no build {wanted}"]
    lines += [f"  {item.label}: {item.reason}" for item in builds.left_out]
    return TargetNotServedError("\n".join(lines), target=", ".join(names), hint=_limits(names))


def _limits(names: Sequence[str]) -> str:
    return "lock for other machines (--target), or declare the kernel with targets of its own" if names else ""
