"""Policies as objects: each is one rule about who may run code here, and `AnyOf` and `AllOf` make one of several.

A policy answers from the repository's name, the commit and, only where it must, the publisher's standing, which is asked
for at most when nothing before it allowed. Nothing here reads files or asks servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import PublisherStanding
from kernel_hub.model.value import dataclass
from kernel_hub.trust.decision import CouldNotCheck, Decision, NotTrusted, Trusted, TrustedIfSigned, all_of, any_of

NamedBy: TypeAlias = Literal["code", "data"]
"""Who chose the repository: a programmer, or data such as a model's configuration, which others may write."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is asked about.

    Attributes:
        repo: The repository.
        commit: The commit it resolved to; None before that is known.
        named_by: Who chose it.
        standing: Asks the source what it says of the publisher.
    """

    repo: RepoId
    commit: str | None
    named_by: NamedBy
    standing: Callable[[], PublisherStanding]


class Policy(Protocol):
    """One rule."""

    def decide(self, subject: Subject) -> Decision:
        """What the rule says of a subject."""


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Allows what any of its policies allows, asked in order."""

    policies: tuple[Policy, ...]

    def decide(self, subject: Subject) -> Decision:
        return any_of(policy.decide(subject) for policy in self.policies)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Allows what every one of its policies allows, asked in order."""

    policies: tuple[Policy, ...]

    def decide(self, subject: Subject) -> Decision:
        return all_of(policy.decide(subject) for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Publisher:
    """Allows every repository of one publisher, the part of its name before '/'."""

    namespace: str

    def decide(self, subject: Subject) -> Decision:
        if subject.repo.namespace == self.namespace:
            return Trusted(f"publisher {self.namespace!r}")
        return NotTrusted("")


@dataclass(frozen=True, slots=True)
class Repository:
    """Allows one repository."""

    repo: RepoId

    def decide(self, subject: Subject) -> Decision:
        return Trusted(f"repository {self.repo}") if subject.repo == self.repo else NotTrusted("")


@dataclass(frozen=True, slots=True)
class AtCommit:
    """Allows one repository as it is at one commit."""

    repo: RepoId
    commit: str

    def decide(self, subject: Subject) -> Decision:
        if subject.repo != self.repo:
            return NotTrusted("")
        if subject.commit == self.commit:
            return Trusted(f"repository {self.repo} at commit {self.commit[:12]}")
        found = subject.commit[:12] if subject.commit else "not known"
        return NotTrusted(f"{self.repo} is allowed only at commit {self.commit[:12]}, and its commit is {found}")


@dataclass(frozen=True, slots=True)
class SignedBy:
    """Allows what carries a signature of any of these signers."""

    signers: frozenset[str]

    def decide(self, subject: Subject) -> Decision:  # noqa: ARG002  a signature is looked at when the build is here
        named = " or ".join(repr(name) for name in sorted(self.signers))
        return TrustedIfSigned(f"signed by {named}", frozenset(frozenset({name}) for name in self.signers))


@dataclass(frozen=True, slots=True)
class Noted:
    """Another policy, with where it is written down, so that answers can say so."""

    policy: Policy
    note: str

    def decide(self, subject: Subject) -> Decision:
        match self.policy.decide(subject):
            case Trusted(reason):
                return Trusted(f"{self.note}: {reason}")
            case TrustedIfSigned(reason, ways):
                return TrustedIfSigned(f"{self.note}: {reason}", ways)
            case NotTrusted(reason, remedy):
                return NotTrusted(f"{self.note}: {reason}" if reason else "", remedy)
            case CouldNotCheck() as decision:
                return decision


@dataclass(frozen=True, slots=True)
class IfFrom:
    """A further demand on some repositories; all others pass it."""

    scope: Policy
    demand: Policy

    def decide(self, subject: Subject) -> Decision:
        if isinstance(self.scope.decide(subject), Trusted):
            return self.demand.decide(subject)
        return Trusted("")


@dataclass(frozen=True, slots=True)
class Everything:
    """Allows everything, for a demand on every repository."""

    def decide(self, subject: Subject) -> Decision:  # noqa: ARG002  it is a policy like the others
        return Trusted("")


@dataclass(frozen=True, slots=True)
class CallersWord:
    """Allows what the caller's `trust_remote_code` says: everything, nothing, or a list of repositories.

    A blanket True is no answer to a name that came from data, because the caller did not choose it.
    """

    trust_remote_code: bool | Sequence[str]

    def __post_init__(self) -> None:
        # A bare text would be searched for the name, and 'acme/axpy' is part of 'acme/axpy-evil'.
        if isinstance(self.trust_remote_code, str | bytes):
            raise InvalidDocumentError(
                "trust_remote_code",
                f"{self.trust_remote_code!r} is a text, not a list of repositories",
                hint=f"write trust_remote_code=[{self.trust_remote_code!r}]",
            )

    def decide(self, subject: Subject) -> Decision:
        if isinstance(self.trust_remote_code, bool):
            if self.trust_remote_code and subject.named_by == "code":
                return Trusted("trust_remote_code=True")
            return NotTrusted("")
        if str(subject.repo) in self.trust_remote_code:
            return Trusted(f"trust_remote_code lists {subject.repo}")
        return NotTrusted("")


@dataclass(frozen=True, slots=True)
class BoundNamespace:
    """Allows a namespace that the user bound to a registry of their own.

    Attributes:
        bound_in: The setting that binds it, or None if it is not bound.
    """

    bound_in: str | None

    def decide(self, subject: Subject) -> Decision:
        if self.bound_in is None:
            return NotTrusted("")
        return Trusted(f"the namespace {subject.repo.namespace!r} is bound to a registry by {self.bound_in}")


@dataclass(frozen=True, slots=True)
class GoodStanding:
    """Allows publishers that the source calls trusted, unless the name came from data: then only a list is enough."""

    def decide(self, subject: Subject) -> Decision:
        namespace = subject.repo.namespace
        remedy = remedy_for(subject)
        if subject.named_by == "data":
            return NotTrusted(f"{subject.repo} was named by data, and no list of yours allows it", remedy)
        standing = subject.standing()
        if standing.trusted is None:
            reason = f"could not check whether {namespace!r} is a trusted publisher: {standing.reason}"
            return CouldNotCheck(reason, remedy)
        if standing.trusted:
            return Trusted(f"{namespace!r} is a trusted publisher ({standing.reason})")
        return NotTrusted(f"{namespace!r} is not a trusted publisher ({standing.reason})", remedy)


def remedy_for(subject: Subject) -> str:
    """What to write to allow this repository."""
    return (
        f"to allow this repository: kernel-hub trust add {subject.repo}, "
        f"or get_kernel('{subject.repo}', ..., trust_remote_code=['{subject.repo}'])"
    )
