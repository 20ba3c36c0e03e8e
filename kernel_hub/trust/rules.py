"""What trust files say, as one value: who is allowed, what is demanded, and who the signers are.

Entries of all files are alternatives; inside an entry everything must hold. Demands of all files hold together, so that a
project can ask for more than its user does, never for less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.value import dataclass
from kernel_hub.trust.decision import Decision
from kernel_hub.trust.policy import (
    AllOf,
    AnyOf,
    AtCommit,
    BoundNamespace,
    CallersWord,
    Everything,
    GoodStanding,
    IfFrom,
    Noted,
    Policy,
    Publisher,
    Repository,
    SignedBy,
    Subject,
)

if TYPE_CHECKING:
    from datetime import date

    from kernel_hub.trust.signer import Signer

DigestPolicy: TypeAlias = Literal["if-present", "required"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Some repositories; with nothing set, all of them.

    Attributes:
        publisher: Of this publisher.
        repository: This one.
        commit: As it is at this commit; goes with `repository`.
    """

    publisher: str | None = None
    repository: RepoId | None = None
    commit: str | None = None

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read `org`, `org/*`, `org/name` or `org/name@<commit id>`.

        Raises:
            InvalidDocumentError: If the text is none of them.
        """
        name, at, commit = text.partition("@")
        if at and not is_commit(commit):
            raise InvalidDocumentError("scope", f"{commit!r} of {text!r} is not a full commit id")
        publisher = name.removesuffix("/*")
        if "/" not in publisher and not at:
            RepoId.parse(f"{publisher}/name")
            return cls(publisher=publisher)
        return cls(repository=RepoId.parse(name), commit=commit or None)

    def __str__(self) -> str:
        if self.repository is not None:
            return f"{self.repository}@{self.commit}" if self.commit else str(self.repository)
        return f"{self.publisher}/*" if self.publisher is not None else "*"

    def policy(self) -> Policy:
        """The rule that allows exactly these."""
        if self.repository is not None:
            return AtCommit(self.repository, self.commit) if self.commit else Repository(self.repository)
        return Publisher(self.publisher) if self.publisher is not None else Everything()


@dataclass(frozen=True, slots=True)
class Entry:
    """One allowance.

    Attributes:
        scope: What it is about.
        signers: If any are named, one of them must have signed the build.
        added_by: Who decided it.
        added_on: When.
        reason: Why.
        defined_in: The file it stands in.
    """

    scope: Scope
    signers: frozenset[str] = frozenset()
    added_by: str = ""
    added_on: date | None = None
    reason: str = ""
    defined_in: str = ""

    def policy(self) -> Policy:
        """The rule that this entry is."""
        rule = self.scope.policy()
        if self.signers:
            rule = AllOf((rule, SignedBy(self.signers)))
        return Noted(rule, self._note())

    def _note(self) -> str:
        added = " ".join(
            part
            for part in (
                f"by {self.added_by}" if self.added_by else "",
                f"on {self.added_on.isoformat()}" if self.added_on else "",
            )
            if part
        )
        details = ", ".join(part for part in (added, self.reason) if part)
        return f"{self.defined_in or 'entry'} ({details})" if details else self.defined_in or "entry"


@dataclass(frozen=True, slots=True)
class Demand:
    """One further condition: builds of these repositories must be signed by one of these signers."""

    scope: Scope
    signers: frozenset[str]
    defined_in: str = ""

    def policy(self) -> Policy:
        """The rule that this demand is."""
        return IfFrom(self.scope.policy(), Noted(SignedBy(self.signers), f"demanded by {self.defined_in or 'entry'}"))


@dataclass(frozen=True, slots=True)
class TrustRules:
    """The content of one trust file, or of several together.

    Attributes:
        allowed: Who may run code here.
        demands: What is asked beyond that.
        signers: Whose signatures are known, by name; the built-in ones are known besides.
        digest: Whether a build without digest is refused.
    """

    allowed: tuple[Entry, ...] = ()
    demands: tuple[Demand, ...] = ()
    signers: tuple[Signer, ...] = ()
    digest: DigestPolicy = "if-present"

    def known_signers(self) -> Mapping[str, Signer]:
        """Every signer by name, the built-in ones included."""
        from kernel_hub.trust.signer import BUILT_IN_SIGNERS

        return {signer.name: signer for signer in (*BUILT_IN_SIGNERS, *self.signers)}

    def check_signers(self) -> TrustRules:
        """These rules unchanged, if every signer that they name is known.

        Raises:
            InvalidDocumentError: Naming the first that is not.
        """
        known = self.known_signers()
        rules: list[Entry | Demand] = [*self.allowed, *self.demands]
        for rule in rules:
            for name in sorted(rule.signers):
                if name not in known:
                    raise InvalidDocumentError(
                        rule.defined_in or "trust file",
                        f"the signer {name!r} of {rule.scope} is not defined",
                        hint=f"signers are {', '.join(sorted(known))}",
                    )
        return self

    def names_commits_of(self, repo: RepoId) -> bool:
        """Whether an allowance of a repository depends on its commit."""
        return any(entry.scope.repository == repo and entry.scope.commit is not None for entry in self.allowed)

    def decide(
        self, subject: Subject, *, trust_remote_code: bool | Sequence[str] = False, bound_in: str | None = None
    ) -> Decision:
        """Whether code of a repository may run here; arguments as for `policy`."""
        return self.policy(trust_remote_code=trust_remote_code, bound_in=bound_in).decide(subject)

    def policy(self, *, trust_remote_code: bool | Sequence[str] = False, bound_in: str | None = None) -> Policy:
        """The one rule that all of this amounts to.

        Args:
            trust_remote_code: The caller's word: everything, nothing, or these repositories.
            bound_in: The setting that binds the repository's namespace to a registry, or None.
        """
        allowances: tuple[Policy, ...] = (
            CallersWord(trust_remote_code),
            BoundNamespace(bound_in),
            *(entry.policy() for entry in self.allowed),
            GoodStanding(),
        )
        return AllOf((AnyOf(allowances), *(demand.policy() for demand in self.demands)))


def merged(files: Sequence[TrustRules]) -> TrustRules:
    """The rules of several files together, in order.

    Raises:
        InvalidDocumentError: If two files give one name to different signers, or one names a signer that none defines.
    """
    from kernel_hub.trust.signer import BUILT_IN_SIGNERS

    signers: dict[str, Signer] = {signer.name: signer for signer in BUILT_IN_SIGNERS}
    for rules in files:
        for signer in rules.signers:
            if signers.setdefault(signer.name, signer) != signer:
                raise InvalidDocumentError("trust files", f"the signer {signer.name!r} is defined twice, differently")
    return TrustRules(
        allowed=tuple(entry for rules in files for entry in rules.allowed),
        demands=tuple(demand for rules in files for demand in rules.demands),
        signers=tuple(signer for signer in signers.values() if signer not in BUILT_IN_SIGNERS),
        digest="required" if any(rules.digest == "required" for rules in files) else "if-present",
    ).check_signers()
