"""Requirements against references."""

from __future__ import annotations

import pytest

from kernel_hub.errors import RevisionNotFoundError, VersionNotFoundError
from kernel_hub.model.requirement import Requirement
from kernel_hub.model.source import Refs
from kernel_hub.resolve import candidates, resolve

COMMITS = {
    name: f"{number:040x}" for number, name in enumerate(["main", "v0", "v1", "v2", "v10", "v-1", "v 1", "v01", "dev"])
}
REFS = Refs(COMMITS, {"release-a": "f" * 40})


def pinned(text: str, refs: Refs = REFS, **wish: object) -> str | None:
    return resolve(Requirement.parse(text, **wish), refs).ref  # type: ignore[arg-type]


def test_no_wish_takes_the_newest_version_by_number() -> None:
    pin = resolve(Requirement.parse("acme/axpy"), REFS)
    assert (pin.ref, pin.version, pin.commit, pin.newer) == ("v10", 10, COMMITS["v10"], None)


def test_version_zero_is_taken_only_if_there_is_nothing_else() -> None:
    assert pinned("acme/axpy", Refs({"main": "a" * 40, "v0": "b" * 40})) == "v0"


def test_main_is_never_a_version() -> None:
    with pytest.raises(VersionNotFoundError, match="no version branch") as caught:
        resolve(Requirement.parse("acme/axpy"), Refs({"main": "a" * 40}))
    assert caught.value.available == ()
    assert "revision='main'" in caught.value.hint()


def test_an_exact_version_says_that_a_newer_one_exists() -> None:
    pin = resolve(Requirement.parse("acme/axpy@v1"), REFS)
    assert (pin.version, pin.newer) == (1, 10)


def test_a_range_takes_the_newest_inside_it_and_offers_the_others() -> None:
    requirement = Requirement.parse("acme/axpy", version=">=1,<3")
    assert resolve(requirement, REFS).version == 2
    assert [pin.version for pin in candidates(requirement, REFS)] == [2, 1]


def test_an_absent_version_lists_those_there_are() -> None:
    with pytest.raises(VersionNotFoundError, match="v0, v1, v2, v10") as caught:
        resolve(Requirement.parse("acme/axpy@v7"), REFS)
    assert caught.value.available == (0, 1, 2, 10)


@pytest.mark.parametrize("revision", ["dev", "main", "release-a"])
def test_branches_and_tags_are_revisions(revision: str) -> None:
    assert pinned("acme/axpy", revision=revision) == revision


def test_a_commit_is_its_own_pin_and_keeps_its_version_if_a_branch_points_at_it() -> None:
    assert resolve(Requirement.parse("acme/axpy", revision="c" * 40), REFS).version is None
    pin = resolve(Requirement.parse("acme/axpy", revision=COMMITS["v2"]), REFS)
    assert (pin.commit, pin.ref, pin.version) == (COMMITS["v2"], None, 2)


def test_an_absent_revision_lists_branches_and_tags() -> None:
    with pytest.raises(RevisionNotFoundError, match="release-a"):
        resolve(Requirement.parse("acme/axpy", revision="nope"), REFS)


def test_a_versions_number_given_as_a_revision_is_recognised() -> None:
    with pytest.raises(RevisionNotFoundError, match="no branch or tag '1'") as caught:
        resolve(Requirement.parse("acme/axpy", revision="1"), REFS)
    assert caught.value.hint() == "did you mean @v1 or version=1?"
    with pytest.raises(RevisionNotFoundError) as other:
        resolve(Requirement.parse("acme/axpy", revision="7"), REFS)
    assert "40 hexadecimal" in other.value.hint()
