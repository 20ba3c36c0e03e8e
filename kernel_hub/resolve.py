"""Stage 1, pure: a requirement and a repository's references become a pin.

Versions are the branches `v<N>` (repository format, section h). A requirement without version or revision takes the newest
version that is at least 1, and version 0 only if there is nothing else; it never takes `main`, which holds the card.
"""

from __future__ import annotations

from typing import assert_never

from kernel_hub.errors import RevisionNotFoundError, VersionNotFoundError
from kernel_hub.model.requirement import (
    AnyVersion,
    AtRevision,
    ExactVersion,
    Requirement,
    VersionRange,
    is_commit,
    version_of_branch,
)
from kernel_hub.model.source import Pin, Refs


def resolve(requirement: Requirement, refs: Refs) -> Pin:
    """Find the commit that a requirement means.

    Args:
        requirement: What is asked for.
        refs: The repository's branches and tags.

    Raises:
        VersionNotFoundError: If no version satisfies it; carries the versions there are.
        RevisionNotFoundError: If no branch or tag has that name and it is no commit id.
    """
    match requirement.wish:
        case AnyVersion():
            return _newest(requirement, refs, lambda number: number >= 1) or _needs_any(requirement, refs)
        case ExactVersion(wanted):
            return _newest(requirement, refs, lambda number: number == wanted) or _refuse(requirement, refs)
        case VersionRange() as wanted_range:
            return _newest(requirement, refs, wanted_range.__contains__) or _refuse(requirement, refs)
        case AtRevision(revision):
            return _at_revision(requirement, refs, revision)
        case _:
            assert_never(requirement.wish)


def candidates(requirement: Requirement, refs: Refs) -> tuple[Pin, ...]:
    """Every pin that a requirement allows, best first.

    Only a range allows several: the newest version comes first, and an older one is used if that has no fitting build.

    Raises:
        VersionNotFoundError, RevisionNotFoundError: As `resolve`.
    """
    first = resolve(requirement, refs)
    if not isinstance(requirement.wish, VersionRange):
        return (first,)
    allowed = [number for number in refs.versions() if number in requirement.wish]
    return tuple(_pin(requirement, refs, number) for number in sorted(allowed, reverse=True))


def _newest(requirement: Requirement, refs: Refs, allowed: object) -> Pin | None:
    assert callable(allowed)
    numbers = [number for number in refs.versions() if allowed(number)]
    return _pin(requirement, refs, max(numbers)) if numbers else None


def _pin(requirement: Requirement, refs: Refs, number: int) -> Pin:
    versions = refs.versions()
    newest = max(versions)
    return Pin(
        repo=requirement.repo,
        commit=versions[number],
        version=number,
        ref=f"v{number}",
        newer=newest if newest > number else None,
    )


def _needs_any(requirement: Requirement, refs: Refs) -> Pin:
    found = _newest(requirement, refs, lambda number: number == 0)
    return found or _refuse(requirement, refs)


def _refuse(requirement: Requirement, refs: Refs) -> Pin:
    available = tuple(refs.versions())
    if not available:
        others = ", ".join(sorted(refs.branches)) or "none"
        raise VersionNotFoundError(
            f"{requirement.repo} has no version branch (v0, v1, ...); its branches: {others}",
            available=(),
            hint=f"if it is a kernel repository of an older layout, ask by revision: revision='{_some_branch(refs)}'",
        )
    listed = ", ".join(f"v{number}" for number in available)
    raise VersionNotFoundError(
        f"{requirement.repo} has no version {_wish_text(requirement)}; available: {listed}",
        available=available,
        hint=f"ask for one of them, e.g. version={available[-1]}",
    )


def _wish_text(requirement: Requirement) -> str:
    wish = requirement.wish
    return f"that satisfies '{wish}'" if isinstance(wish, VersionRange) else str(wish)


def _some_branch(refs: Refs) -> str:
    return "main" if "main" in refs.branches or not refs.branches else min(refs.branches)


def _at_revision(requirement: Requirement, refs: Refs, revision: str) -> Pin:
    commit = refs.branches.get(revision) or refs.tags.get(revision)
    if commit is not None:
        number = version_of_branch(revision)
        if number is not None:
            return _pin(requirement, refs, number)
        return Pin(requirement.repo, commit, ref=revision)
    if is_commit(revision):
        return _at_commit(requirement, refs, revision)
    names = ", ".join(sorted({*refs.branches, *refs.tags})) or "none"
    raise RevisionNotFoundError(
        f"{requirement.repo} has no branch or tag {revision!r}; it has: {names}",
        hint=_meant(refs, revision) or "a commit is given by all of its 40 hexadecimal digits",
    )


def _meant(refs: Refs, revision: str) -> str:
    """What a revision that is a version's number was probably meant to be; empty if it is none."""
    number = int(revision) if revision.isdecimal() and revision.isascii() else None
    return f"did you mean @v{number} or version={number}?" if number in refs.versions() else ""


def _at_commit(requirement: Requirement, refs: Refs, commit: str) -> Pin:
    for number, head in refs.versions().items():
        if head == commit:
            return Pin(requirement.repo, commit, version=number)
    return Pin(requirement.repo, commit)
