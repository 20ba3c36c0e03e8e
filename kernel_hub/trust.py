"""Whether code from a repository may run here: pure decisions, before a byte of it is read.

The rules, first match decides:

1. a folder that the caller named is the caller's own code (never asked here);
2. `trust_remote_code=True` allows everything, a list allows the repositories in it;
3. a namespace that the user bound to a registry is trusted by that binding;
4. otherwise the source is asked whether the publisher is a trusted one.

"Not trusted" and "could not find out" are different answers, because only the first says something about the publisher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import PublisherStanding


@dataclass(frozen=True, slots=True)
class Trusted:
    """The code may run; `reason` says by which rule."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotTrusted:
    """The code may not run.

    Attributes:
        reason: The rule that refuses.
        remedy: What to write to allow it.
    """

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class CouldNotCheck:
    """It is not known whether the publisher is trusted.

    Attributes:
        reason: Why it could not be found out.
        remedy: What to write to allow it anyway.
    """

    reason: str
    remedy: str


Decision: TypeAlias = Trusted | NotTrusted | CouldNotCheck


def decide_without_asking(
    repo: RepoId, *, trust_remote_code: bool | Sequence[str], bound_in: str | None
) -> Trusted | None:
    """The rules that need no look-up: an allowance, or None if the publisher must be asked for.

    Args:
        repo: The repository.
        trust_remote_code: The caller's word: everything, nothing, or these repositories.
        bound_in: The setting that binds the namespace to a registry, or None.
    """
    if trust_remote_code is True:
        return Trusted("trust_remote_code=True")
    if not isinstance(trust_remote_code, bool) and str(repo) in trust_remote_code:
        return Trusted(f"trust_remote_code lists {repo}")
    if bound_in is not None:
        return Trusted(f"the namespace {repo.namespace!r} is bound to a registry by {bound_in}")
    return None


def decide_by_publisher(repo: RepoId, standing: PublisherStanding) -> Decision:
    """The decision that follows from what the source says of the publisher."""
    remedy = f"to allow this repository: get_kernel('{repo}', ..., trust_remote_code=['{repo}'])"
    if standing.trusted is None:
        return CouldNotCheck(
            f"could not check whether {repo.namespace!r} is a trusted publisher: {standing.reason}", remedy
        )
    if standing.trusted:
        return Trusted(f"{repo.namespace!r} is a trusted publisher ({standing.reason})")
    return NotTrusted(f"{repo.namespace!r} is not a trusted publisher ({standing.reason})", remedy)
