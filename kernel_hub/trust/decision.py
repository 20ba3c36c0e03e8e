"""Answers to "may code of this repository run here?", and how several answers become one.

"Not trusted" and "could not find out" are different answers, because only the first says something about the publisher.
A third one waits: trusted if it carries a signature, which can only be looked at once the build is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from kernel_hub.model.value import dataclass

Ways = frozenset[frozenset[str]]
"""Sets of signers by name: the signatures of all signers of any one set suffice."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """The code may run; `reason` says by which rule."""

    reason: str


@dataclass(frozen=True, slots=True)
class TrustedIfSigned:
    """The code may run if the build carries signatures.

    Attributes:
        reason: The rule that says so.
        ways: Whose signatures suffice.
    """

    reason: str
    ways: Ways


@dataclass(frozen=True, slots=True)
class NotTrusted:
    """The code may not run.

    Attributes:
        reason: The rule that refuses; empty if the rule has nothing to say of this repository.
        remedy: What to write to allow it.
    """

    reason: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class CouldNotCheck:
    """It is not known whether the publisher is trusted.

    Attributes:
        reason: Why it could not be found out.
        remedy: What to write to allow it anyway.
    """

    reason: str
    remedy: str = ""


Decision: TypeAlias = Trusted | TrustedIfSigned | NotTrusted | CouldNotCheck


def any_of(decisions: Iterable[Decision]) -> Decision:
    """One rule that allows is enough; rules after it are not asked.

    What allows on a condition comes before what is not known, and that before what refuses.
    """
    conditional: list[TrustedIfSigned] = []
    unknown: list[CouldNotCheck] = []
    refused: list[NotTrusted] = []
    for decision in decisions:
        match decision:
            case Trusted():
                return decision
            case TrustedIfSigned():
                conditional.append(decision)
            case CouldNotCheck():
                unknown.append(decision)
            case NotTrusted():
                refused.append(decision)
    if conditional:
        ways = frozenset[frozenset[str]]().union(*(decision.ways for decision in conditional))
        return TrustedIfSigned(_joined(decision.reason for decision in conditional), ways)
    remedies = [*(decision.remedy for decision in unknown), *(decision.remedy for decision in refused)]
    remedy = next(filter(None, remedies), "")
    if unknown:
        return CouldNotCheck(_joined(decision.reason for decision in unknown), remedy)
    return NotTrusted(_joined(decision.reason for decision in refused), remedy)


def all_of(decisions: Iterable[Decision]) -> Decision:
    """Every rule must allow; the first that refuses decides."""
    reasons: list[str] = []
    ways: Ways = frozenset({frozenset()})
    unknown: CouldNotCheck | None = None
    for decision in decisions:
        match decision:
            case NotTrusted():
                return decision
            case CouldNotCheck():
                unknown = unknown or decision
            case Trusted(reason):
                reasons.append(reason)
            case TrustedIfSigned(reason, more):
                reasons.append(reason)
                ways = frozenset(mine | theirs for mine in ways for theirs in more)
    if unknown is not None:
        return unknown
    if frozenset() in ways:
        return Trusted(_joined(reasons))
    return TrustedIfSigned(_joined(reasons), ways)


def _joined(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
