"""Requirements: which kernel, and which version or revision of it."""

from __future__ import annotations

import pytest
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

REPO = RepoId("acme", "axpy")


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("acme/axpy", AnyVersion()),
        ("acme/axpy@v1", ExactVersion(1)),
        ("acme/axpy@v0", ExactVersion(0)),
        ("acme/axpy@>=1,<3", VersionRange(SpecifierSet(">=1,<3"))),
        ("acme/axpy@==2", VersionRange(SpecifierSet("==2"))),
        ("acme/axpy@!=2", VersionRange(SpecifierSet("!=2"))),
        ("acme/axpy@~=2.0", VersionRange(SpecifierSet("~=2.0"))),
        ("acme/axpy@main", AtRevision("main")),
        ("acme/axpy@v1.0", AtRevision("v1.0")),
        ("acme/axpy@v01", AtRevision("v01")),
        ("acme/axpy@feature/x", AtRevision("feature/x")),
        ("acme/axpy@" + "a" * 40, AtRevision("a" * 40)),
    ],
)
def test_what_stands_behind_the_at_sign_is_the_wish(text: str, wish: Wish) -> None:
    assert Requirement.parse(text) == Requirement(REPO, wish)


@pytest.mark.parametrize(
    ("version", "wish"),
    [
        (1, ExactVersion(1)),
        (0, ExactVersion(0)),
        ("1", ExactVersion(1)),
        ("v1", ExactVersion(1)),
        (" 2 ", ExactVersion(2)),
        (">=1,<3", VersionRange(SpecifierSet(">=1,<3"))),
        (">= 1, < 3", VersionRange(SpecifierSet(">=1,<3"))),
    ],
)
def test_a_version_is_a_number_or_specifiers(version: int | str, wish: Wish) -> None:
    assert Requirement.parse("acme/axpy", version=version).wish == wish


def test_a_revision_is_a_name_even_if_it_looks_like_a_version() -> None:
    assert Requirement.parse("acme/axpy", revision="v1").wish == AtRevision("v1")


@pytest.mark.parametrize(
    ("text", "keywords", "named"),
    [
        ("acme/axpy", {"version": 1, "revision": "main"}, "version and revision"),
        ("acme/axpy@v1", {"version": 1}, "'@v1' in the name and version"),
        ("acme/axpy@v1", {"revision": "main"}, "'@v1' in the name and revision"),
        ("acme/axpy@", {"version": 1}, "'@' in the name and version"),
    ],
)
def test_only_one_of_them_may_say_what_is_wanted(text: str, keywords: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidDocumentError, match=named) as caught:
        Requirement.parse(text, **keywords)  # type: ignore[arg-type]
    assert caught.value.hint() == "give exactly one of them"


@pytest.mark.parametrize("version", [True, False, -1, "", "  ", "one", "1.x", ">", ">=", "-1", 1.0, [1], "v", "1,2"])
def test_what_is_no_version(version: object) -> None:
    with pytest.raises(InvalidDocumentError):
        Requirement.parse("acme/axpy", version=version)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "revision", ["", " ", "a b", "../x", "a..b", "a//b", "-x", ".x", "a\n", "a@b", "größe", 5, "a:b"]
)
def test_what_is_no_revision(revision: object) -> None:
    with pytest.raises(InvalidDocumentError):
        Requirement.parse("acme/axpy", revision=revision)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["acme/axpy@", "acme/axpy@@v1", "acme/axpy@ v1", "acme/axpy@/etc"])
def test_what_is_no_suffix(text: str) -> None:
    with pytest.raises(InvalidDocumentError):
        Requirement.parse(text)


@pytest.mark.parametrize(
    "text", ["acme/axpy", "A/b", "a.b/c_d", "a-b/c-d", "1/2", "kernels-community/flash-attn3", "a/b_"]
)
def test_repository_names(text: str) -> None:
    assert str(RepoId.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "axpy",
            "/",
            "a/",
            "/b",
            "a/b/c",
            "a//b",
            " a/b",
            "a /b",
            "a/b\n",
            "a/b ",
            "ä/b",
            "a/b?x",
            "a/b#x",
            "a\\b",
        ),
        *(
            "../b",
            "a/..",
            "./b",
            "a/.b",
            "-a/b",
            "a/b-",
            "a/b.",
            "a/b.git",
            "a--b/c",
            "a/b..c",
            "a:b/c",
            "a%2f/b",
            "~/b",
        ),
        "a" * 60 + "/" + "b" * 60,
    ],
)
def test_what_is_no_repository_name(text: str) -> None:
    with pytest.raises(InvalidDocumentError, match="repository name"):
        RepoId.parse(text)


@pytest.mark.parametrize(
    ("branch", "version"),
    [("v0", 0), ("v1", 1), ("v12", 12), ("v999999999", 999999999)],
)
def test_version_branches(branch: str, version: int) -> None:
    assert version_of_branch(branch) == version


@pytest.mark.parametrize(
    "branch", ["v", "v-1", "v 1", "v01", "V1", "v1 ", "v1\n", "v1.0", "1", "main", "v٢", "v9999999999"]
)
def test_what_is_no_version_branch(branch: str) -> None:
    assert version_of_branch(branch) is None


@pytest.mark.parametrize(
    ("text", "commit"),
    [
        ("a" * 40, True),
        ("0" * 64, True),
        ("A" * 40, False),
        ("a" * 39, False),
        ("g" * 40, False),
        ("a" * 40 + "\n", False),
    ],
)
def test_full_commit_ids(text: str, commit: bool) -> None:
    assert is_commit(text) is commit


def test_a_range_contains_whole_numbers() -> None:
    wish = Requirement.parse("acme/axpy@>=1,<3").wish
    assert isinstance(wish, VersionRange)
    assert [number for number in range(5) if number in wish] == [1, 2]


@pytest.mark.parametrize(
    "text", ["acme/axpy", "acme/axpy@v3", "acme/axpy@<3,>=1", "acme/axpy@main", "acme/axpy@" + "0f" * 20]
)
def test_writing_is_the_inverse_of_reading(text: str) -> None:
    assert str(Requirement.parse(text)) == text
