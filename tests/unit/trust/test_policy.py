"""Who may run code here, rule by rule."""

from __future__ import annotations

from datetime import date

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import PublisherStanding
from kernel_hub.trust import (
    CouldNotCheck,
    Demand,
    Ed25519Signer,
    Entry,
    NamedBy,
    NotTrusted,
    Scope,
    Subject,
    Trusted,
    TrustedIfSigned,
    TrustRules,
    merged,
)
from kernel_hub.trust.decision import Decision

REPO = RepoId("acme", "axpy")
COMMIT = "a" * 40
GOOD = PublisherStanding(True, "the Hub says so")
BAD = PublisherStanding(False, "the Hub says so")
UNREACHABLE = PublisherStanding(None, "no answer within 5 s")
CI = Ed25519Signer("acme-ci", bytes(32))


def never_asked() -> PublisherStanding:
    raise AssertionError("the source was asked")


def decide(
    rules: TrustRules = TrustRules(),  # noqa: B008  it is frozen
    *,
    repo: RepoId = REPO,
    commit: str | None = COMMIT,
    named_by: NamedBy = "code",
    standing: PublisherStanding | None = None,
    trust_remote_code: bool | list[str] = False,
    bound_in: str | None = None,
) -> Decision:
    ask = never_asked if standing is None else lambda: standing
    policy = rules.policy(trust_remote_code=trust_remote_code, bound_in=bound_in)
    return policy.decide(Subject(repo, commit, named_by, ask))


def allow(scope: Scope, *signers: str) -> TrustRules:
    entry = Entry(scope, frozenset(signers), "alice", date(2026, 12, 2), "read it", "trust.toml")
    return TrustRules(allowed=(entry,), signers=(CI,))


class TestWithoutAFile:
    def test_the_callers_word_is_enough_and_nobody_is_asked(self) -> None:
        assert decide(trust_remote_code=True) == Trusted("trust_remote_code=True")
        assert decide(trust_remote_code=["acme/axpy"]) == Trusted("trust_remote_code lists acme/axpy")

    def test_a_list_of_other_repositories_is_not(self) -> None:
        assert isinstance(decide(trust_remote_code=["acme/other", "acme", "*"], standing=BAD), NotTrusted)

    def test_a_bound_namespace_is_trusted_by_its_binding(self) -> None:
        assert decide(bound_in="config.toml") == Trusted("the namespace 'acme' is bound to a registry by config.toml")

    def test_a_publisher_in_good_standing_is_trusted(self) -> None:
        assert decide(standing=GOOD) == Trusted("'acme' is a trusted publisher (the Hub says so)")

    def test_a_publisher_in_no_standing_is_refused_with_the_line_to_add(self) -> None:
        decision = decide(standing=BAD)
        assert isinstance(decision, NotTrusted)
        assert "not a trusted publisher" in decision.reason
        assert "kernel-hub trust add acme/axpy" in decision.remedy
        assert "trust_remote_code=['acme/axpy']" in decision.remedy

    def test_a_source_that_does_not_answer_is_no_verdict(self) -> None:
        decision = decide(standing=UNREACHABLE)
        assert isinstance(decision, CouldNotCheck)
        assert decision.reason.startswith("could not check")
        assert "not a trusted" not in decision.reason
        assert decision.remedy


class TestNamedByData:
    def test_a_publishers_mere_reputation_is_not_enough_and_not_asked_for(self) -> None:
        decision = decide(named_by="data")
        assert isinstance(decision, NotTrusted)
        assert "named by data" in decision.reason
        assert "kernel-hub trust add acme/axpy" in decision.remedy

    def test_a_blanket_word_is_not_enough(self) -> None:
        assert isinstance(decide(named_by="data", trust_remote_code=True), NotTrusted)

    def test_lists_are(self) -> None:
        assert isinstance(decide(named_by="data", trust_remote_code=["acme/axpy"]), Trusted)
        assert isinstance(decide(allow(Scope(repository=REPO)), named_by="data"), Trusted)
        assert isinstance(decide(named_by="data", bound_in="config.toml"), Trusted)


class TestEntries:
    @pytest.mark.parametrize(
        "scope", [Scope(publisher="acme"), Scope(repository=REPO), Scope(repository=REPO, commit=COMMIT)], ids=str
    )
    def test_what_an_entry_names_is_trusted_with_who_when_and_why(self, scope: Scope) -> None:
        decision = decide(allow(scope))
        assert isinstance(decision, Trusted)
        assert decision.reason.startswith("trust.toml (by alice on 2026-12-02, read it): ")

    @pytest.mark.parametrize(
        "scope", [Scope(publisher="other"), Scope(publisher="acm"), Scope(repository=RepoId("acme", "other"))], ids=str
    )
    def test_what_it_does_not_name_is_left_to_the_other_rules(self, scope: Scope) -> None:
        assert decide(allow(scope), standing=GOOD) == decide(standing=GOOD)
        assert decide(allow(scope), standing=BAD) == decide(standing=BAD)

    @pytest.mark.parametrize("commit", ["b" * 40, None])
    def test_another_commit_than_the_allowed_one_says_so(self, commit: str | None) -> None:
        decision = decide(allow(Scope(repository=REPO, commit=COMMIT)), commit=commit, standing=BAD)
        assert isinstance(decision, NotTrusted)
        assert "allowed only at commit aaaaaaaaaaaa" in decision.reason
        assert "not a trusted publisher" in decision.reason

    def test_an_entry_with_a_signer_waits_for_the_signature(self) -> None:
        decision = decide(allow(Scope(repository=REPO), "acme-ci"), standing=BAD)
        assert isinstance(decision, TrustedIfSigned)
        assert decision.ways == {frozenset({"acme-ci"})}
        assert "signed by 'acme-ci'" in decision.reason

    def test_a_signature_is_not_waited_for_if_something_else_allows(self) -> None:
        assert isinstance(decide(allow(Scope(repository=REPO), "acme-ci"), standing=GOOD), Trusted)

    def test_a_signer_alone_may_allow_whatever_they_signed(self) -> None:
        rules = allow(Scope(), "acme-ci")
        decision = decide(rules, repo=RepoId("other", "axpy"), standing=BAD)
        assert isinstance(decision, TrustedIfSigned)


class TestDemands:
    @pytest.fixture
    def rules(self) -> TrustRules:
        return TrustRules(
            demands=(Demand(Scope(publisher="acme"), frozenset({"acme-ci"}), "trust.toml"),), signers=(CI,)
        )

    @pytest.mark.parametrize("allowed", [{"trust_remote_code": True}, {"standing": GOOD}, {"bound_in": "config.toml"}])
    def test_a_demand_holds_whatever_allows(self, rules: TrustRules, allowed: dict[str, object]) -> None:
        decision = decide(rules, **allowed)  # type: ignore[arg-type]
        assert isinstance(decision, TrustedIfSigned)
        assert decision.ways == {frozenset({"acme-ci"})}
        assert "demanded by trust.toml" in decision.reason

    def test_it_does_not_allow_by_itself(self, rules: TrustRules) -> None:
        assert isinstance(decide(rules, standing=BAD), NotTrusted)
        assert isinstance(decide(rules, standing=UNREACHABLE), CouldNotCheck)

    def test_other_repositories_pass_it(self, rules: TrustRules) -> None:
        assert decide(rules, repo=RepoId("other", "axpy"), trust_remote_code=True) == Trusted("trust_remote_code=True")

    def test_demands_of_several_files_add_up(self, rules: TrustRules) -> None:
        auditor = Ed25519Signer("auditor", bytes(31) + b"\1")
        more = TrustRules(demands=(Demand(Scope(), frozenset({"auditor"}), "project"),), signers=(auditor,))
        decision = decide(merged([rules, more]), trust_remote_code=True)
        assert isinstance(decision, TrustedIfSigned)
        assert decision.ways == {frozenset({"acme-ci", "auditor"})}


class TestMerging:
    def test_entries_are_alternatives_and_the_strictest_digest_policy_holds(self) -> None:
        rules = merged([allow(Scope(publisher="one")), TrustRules(digest="required"), allow(Scope(publisher="two"))])
        assert [str(entry.scope) for entry in rules.allowed] == ["one/*", "two/*"]
        assert rules.digest == "required"
        assert rules.signers == (CI,)

    def test_a_signer_of_one_file_may_be_named_in_another(self) -> None:
        merged([TrustRules(signers=(CI,)), TrustRules(demands=(Demand(Scope(), frozenset({"acme-ci"})),))])

    def test_one_name_for_two_keys_is_refused(self) -> None:
        other = Ed25519Signer("acme-ci", b"\1" * 32)
        with pytest.raises(InvalidDocumentError, match="'acme-ci' is defined twice"):
            merged([TrustRules(signers=(CI,)), TrustRules(signers=(other,))])

    def test_a_built_in_signer_cannot_be_redefined(self) -> None:
        with pytest.raises(InvalidDocumentError, match="defined twice"):
            merged([TrustRules(signers=(Ed25519Signer("kernels-community", bytes(32)),))])

    def test_an_unknown_signer_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(InvalidDocumentError, match="'who' of acme/axpy is not defined") as caught:
            merged([TrustRules(allowed=(Entry(Scope(repository=REPO), frozenset({"who"})),))])
        assert "kernels-community" in caught.value.hint()

    def test_nothing_is_no_rule(self) -> None:
        assert merged([]) == TrustRules()
