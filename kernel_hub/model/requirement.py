"""What a caller asks for: a repository, and which version or revision of it.

Grammar (versions are the `v<N>` branches of a kernel repository, see the repository format):

    requirement = repo [ "@" ( "v" NUMBER | specifiers | revision ) ]
    repo        = namespace "/" name
    specifiers  = PEP 440 specifier set over whole numbers, e.g. ">=1,<3"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import ALPHANUMERIC, HEX_DIGITS, Pattern, Word, is_of
from kernel_hub.model.value import dataclass

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

_NAME = Word(ALPHANUMERIC, f"{ALPHANUMERIC}._-", last=f"{ALPHANUMERIC}_")
_MAX_REPO_CHARS = 96
_REVISION = Word(f"{ALPHANUMERIC}_", f"{ALPHANUMERIC}._/+-")
_VERSION_BRANCH = Pattern(r"v(0|[1-9][0-9]{0,8})")


def is_commit(text: str) -> bool:
    """Whether `text` is a full commit id: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits."""
    return len(text) in (40, 64) and is_of(text, HEX_DIGITS)


def version_of_branch(branch: str) -> int | None:
    """The kernel version that a branch carries (`v3` -> 3), or None if it is not a version branch.

    Stricter than the ecosystem's reader, which would take `v-1` and `v 1` as well.
    """
    found = _VERSION_BRANCH.fullmatch(branch)
    return int(found[1]) if found else None


@dataclass(frozen=True, slots=True, order=True)
class RepoId:
    """The name of a repository on a source: `namespace/name`."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> RepoId:
        """Read `namespace/name`.

        Raises:
            InvalidDocumentError: If the text is not such a name.
        """
        _require_text(text, "repository name")
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidDocumentError(
                "repository name", f"{text!r} is not of the form 'org/name'", hint="name one kernel, e.g. 'acme/axpy'"
            )
        for part in parts:
            if not _NAME.matches(part) or ".." in part or "--" in part or part.endswith(".git"):
                raise InvalidDocumentError(
                    "repository name",
                    f"{text!r}: {part!r} may hold letters, digits, '-', '_' and '.', starts with a letter or digit, "
                    "and has no '--', '..' or '.git' ending",
                )
        if len(text) > _MAX_REPO_CHARS:
            raise InvalidDocumentError("repository name", f"{text!r} is longer than {_MAX_REPO_CHARS} characters")
        return cls(parts[0], parts[1])

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class AnyVersion:
    """No wish: a lock decides, else the newest version that is at least 1."""

    def __str__(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class ExactVersion:
    """One kernel version, i.e. the head of branch `v<number>`."""

    number: int

    def __str__(self) -> str:
        return f"v{self.number}"


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The newest version inside a specifier set."""

    specifiers: SpecifierSet

    def __contains__(self, number: int) -> bool:
        return self.specifiers.contains(Version(str(number)))

    def __str__(self) -> str:
        return ",".join(sorted(str(part) for part in self.specifiers))


@dataclass(frozen=True, slots=True)
class AtRevision:
    """A branch, tag or commit, by name."""

    revision: str

    def __str__(self) -> str:
        return self.revision


Wish: TypeAlias = AnyVersion | ExactVersion | VersionRange | AtRevision


@dataclass(frozen=True, slots=True)
class Requirement:
    """A repository and the version or revision wanted of it."""

    repo: RepoId
    wish: Wish = AnyVersion()

    @classmethod
    def parse(cls, text: str, *, version: int | str | None = None, revision: str | None = None) -> Requirement:
        """Read a requirement from a name and the usual keywords.

        Args:
            text: `org/name`, `org/name@v1`, `org/name@>=1,<3` or `org/name@<revision>`.
            version: A kernel version (`1`, `"1"`, `"v1"`) or specifiers (`">=1,<3"`).
            revision: A branch, tag or commit. Excludes `version`, and both exclude an `@` part in `text`.

        Raises:
            InvalidDocumentError: If a part is malformed, or more than one of the three says what is wanted.
        """
        _require_text(text, "requirement")
        name, at, suffix = text.partition("@")
        repo = RepoId.parse(name)
        said = [
            part
            for part, given in (
                (f"'@{suffix}' in the name", bool(at)),
                ("version", version is not None),
                ("revision", revision is not None),
            )
            if given
        ]
        if len(said) > 1:
            raise InvalidDocumentError(
                "requirement", f"{text!r} is asked for by {' and '.join(said)}", hint="give exactly one of them"
            )
        if at:
            return cls(repo, _wish_of_suffix(suffix, text))
        if version is not None:
            return cls(repo, _wish_of_version(version))
        if revision is not None:
            return cls(repo, _wish_of_revision(revision))
        return cls(repo)

    def __str__(self) -> str:
        match self.wish:
            case AnyVersion():
                return str(self.repo)
            case ExactVersion() | VersionRange() | AtRevision():
                return f"{self.repo}@{self.wish}"
            case _:
                assert_never(self.wish)


def _require_text(value: object, document: str) -> None:
    if not isinstance(value, str):
        raise InvalidDocumentError(document, f"{value!r} is not a text", hint="name one kernel, e.g. 'acme/axpy'")


def _wish_of_suffix(suffix: str, text: str) -> Wish:
    if not suffix:
        raise InvalidDocumentError("requirement", f"{text!r} ends with '@' and names no version or revision")
    number = version_of_branch(suffix)
    if number is not None:
        return ExactVersion(number)
    if suffix[0] in "<>=!~":
        return _wish_of_version(suffix)
    return _wish_of_revision(suffix)


def _wish_of_version(version: int | str) -> ExactVersion | VersionRange:
    if isinstance(version, bool) or (isinstance(version, int) and version < 0):
        raise InvalidDocumentError("requirement", f"version {version!r} is not a whole number from 0")
    if isinstance(version, int):
        return ExactVersion(version)
    if not isinstance(version, str):
        raise InvalidDocumentError("requirement", f"version {version!r} is neither a whole number nor a specifier text")
    text = version.strip()
    number = version_of_branch(text if text.startswith("v") else f"v{text}")
    if number is not None:
        return ExactVersion(number)
    # Imported here, because it costs as much as ten of our modules, and only ranges need it.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifiers = SpecifierSet(text)
    except InvalidSpecifier as error:
        raise InvalidDocumentError(
            "requirement",
            f"version {version!r} is neither a whole number nor a specifier set",
            hint="write version=1 or version='>=1,<3'",
        ) from error
    if not text:
        raise InvalidDocumentError("requirement", "version is an empty text", hint="leave it out to take the newest")
    return VersionRange(specifiers)


def _wish_of_revision(revision: str) -> AtRevision:
    if not isinstance(revision, str) or not _REVISION.matches(revision) or ".." in revision or "//" in revision:
        raise InvalidDocumentError("requirement", f"revision {revision!r} is not the name of a branch, tag or commit")
    return AtRevision(revision)
