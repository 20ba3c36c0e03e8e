"""Laws of requirements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import (
    AnyVersion,
    AtRevision,
    ExactVersion,
    RepoId,
    Requirement,
    VersionRange,
    Wish,
    is_commit,
    version_of_branch,
)

NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._]{0,10}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda name: ".." not in name and not name.endswith(".git")
)
REPOS = st.builds(RepoId, NAMES, NAMES)
SPECIFIERS = st.lists(
    st.builds("{}{}".format, st.sampled_from([">=", "<=", "==", "!=", "<", ">"]), st.integers(0, 99)),
    min_size=1,
    max_size=3,
).map(lambda parts: SpecifierSet(",".join(parts)))
REVISIONS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,20}", fullmatch=True).filter(
    lambda text: ".." not in text and version_of_branch(text) is None
)
WISHES: st.SearchStrategy[Wish] = st.one_of(
    st.just(AnyVersion()),
    st.builds(ExactVersion, st.integers(0, 999_999_999)),
    st.builds(VersionRange, SPECIFIERS),
    st.builds(AtRevision, REVISIONS | st.from_regex(r"[0-9a-f]{40}", fullmatch=True)),
)


@given(st.builds(Requirement, REPOS, WISHES))
def test_reading_what_was_written_is_identity(requirement: Requirement) -> None:
    assert Requirement.parse(str(requirement)) == requirement


@given(st.text())
def test_every_text_is_a_requirement_or_a_typed_error(text: str) -> None:
    try:
        read = Requirement.parse(text)
    except InvalidDocumentError:
        return
    assert Requirement.parse(str(read)) == read


@given(REPOS, st.text() | st.integers())
def test_every_version_is_understood_or_a_typed_error(repo: RepoId, version: str | int) -> None:
    try:
        read = Requirement.parse(str(repo), version=version)
    except InvalidDocumentError:
        return
    assert isinstance(read.wish, ExactVersion | VersionRange)


@given(st.integers(0, 999_999_999))
def test_a_version_is_the_same_however_it_is_written(number: int) -> None:
    wishes = {
        Requirement.parse("a/b", version=number).wish,
        Requirement.parse("a/b", version=str(number)).wish,
        Requirement.parse("a/b", version=f"v{number}").wish,
        Requirement.parse(f"a/b@v{number}").wish,
    }
    assert wishes == {ExactVersion(number)}
    assert version_of_branch(f"v{number}") == number


@given(st.text("0123456789abcdef", min_size=38, max_size=66))
def test_a_commit_has_40_or_64_digits(text: str) -> None:
    assert is_commit(text) == (len(text) in (40, 64))
