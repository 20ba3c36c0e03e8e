"""How several answers become one."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_hub.trust.decision import (
    CouldNotCheck,
    Decision,
    NotTrusted,
    Trusted,
    TrustedIfSigned,
    all_of,
    any_of,
)

YES = Trusted("yes")
NO = NotTrusted("no", "say yes")
UNKNOWN = CouldNotCheck("no answer", "ask again")


def ways(*names: str) -> frozenset[frozenset[str]]:
    return frozenset(frozenset(name.split("+")) for name in names)


def signed(*names: str) -> TrustedIfSigned:
    return TrustedIfSigned(f"signed by {' or '.join(names)}", ways(*names))


def test_one_allowance_is_enough() -> None:
    assert any_of([NO, UNKNOWN, signed("a"), YES]) == YES


def test_rules_after_an_allowance_are_not_asked() -> None:
    def decisions() -> Iterator[Decision]:
        yield NO
        yield YES
        raise AssertionError("asked")

    assert any_of(decisions()) == YES


def test_a_condition_comes_before_what_is_not_known_and_that_before_a_refusal() -> None:
    assert any_of([NO, UNKNOWN, signed("a")]) == signed("a")
    assert any_of([NO, UNKNOWN]) == CouldNotCheck("no answer", "ask again")
    assert any_of([NO, NotTrusted("")]) == NO


def test_conditions_are_alternatives() -> None:
    found = any_of([signed("a"), signed("b+c")])
    assert isinstance(found, TrustedIfSigned)
    assert found.ways == ways("a", "b+c")


def test_nothing_that_allows_is_a_refusal() -> None:
    assert any_of([]) == NotTrusted("")


def test_every_rule_must_allow() -> None:
    assert all_of([YES, Trusted("also")]) == Trusted("yes; also")
    assert all_of([YES, NO, UNKNOWN]) == NO
    assert all_of([UNKNOWN, NO]) == NO
    assert all_of([YES, UNKNOWN, signed("a")]) == UNKNOWN


def test_conditions_add_up() -> None:
    found = all_of([signed("a", "b"), YES, signed("c")])
    assert isinstance(found, TrustedIfSigned)
    assert found.ways == ways("a+c", "b+c")


def test_a_condition_that_two_rules_share_is_one() -> None:
    found = all_of([signed("a"), signed("a", "b")])
    assert isinstance(found, TrustedIfSigned)
    assert found.ways == ways("a", "a+b")


def test_no_rule_forbids_nothing() -> None:
    assert all_of([]) == Trusted("")
