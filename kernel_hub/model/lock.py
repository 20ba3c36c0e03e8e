"""`kernel-hub.lock` as values: which kernels, at which commits, with which bytes, for which machines.

What a lock means is documented in docs/reference/lock-file.md. Leaves out its text (see `kernel_hub.model.lock_text`), how
one is made (see `kernel_hub.locking`) and whether a kernel may run: a lock says what is loaded, never that it is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import Digest
from kernel_hub.model.requirement import (
    AnyVersion,
    AtRevision,
    ExactVersion,
    RepoId,
    Requirement,
    VersionRange,
    Wish,
    version_of_branch,
)
from kernel_hub.model.target import Target

ANY = "*"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A kernel that a project asks for.

    Attributes:
        requirement: The kernel and the version or revision wanted.
        targets: The machines that it is needed on; empty for those of the whole lock.
    """

    requirement: Requirement
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True, slots=True)
class LockedBuild:
    """One build of a locked kernel.

    Attributes:
        label: The build folder's name.
        archs: Its GPU architectures, as metadata has them.
        size_bytes: The sum of its files' lengths.
        digest: Over metadata and every file; see `kernel_hub.model.digest.build_digest`.
    """

    label: str
    archs: tuple[str, ...]
    size_bytes: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class LockedKernel:
    """One commit of a kernel.

    Attributes:
        repo: The repository.
        commit: The commit id.
        version: The kernel version that its builds state.
        wishes: What was asked of the repository and led here, sorted by text.
        registry: The namespace, if it was bound to a registry of its own when the lock was made; else None.
        depends: Kernels that its builds load, sorted by text.
        python_depends: Python dependencies of its builds, by the names of the curated list, sorted.
        builds: Those that are locked, sorted by label.
    """

    repo: RepoId
    commit: str
    version: int
    wishes: tuple[Wish, ...]
    builds: tuple[LockedBuild, ...]
    registry: str | None = None
    depends: tuple[Requirement, ...] = ()
    python_depends: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wishes = {wish_text(wish): plain_wish(wish) for wish in self.wishes}
        depends = {str(item): item for item in self.depends}
        object.__setattr__(self, "wishes", tuple(wishes[text] for text in sorted(wishes)))
        object.__setattr__(self, "depends", tuple(depends[text] for text in sorted(depends)))
        object.__setattr__(self, "python_depends", tuple(sorted(set(self.python_depends))))
        object.__setattr__(self, "builds", tuple(sorted(self.builds, key=lambda build: build.label)))

    def build(self, label: str) -> LockedBuild | None:
        """The build of this name, or None if it is not locked."""
        return next((build for build in self.builds if build.label == label), None)

    def answers(self, wish: Wish) -> bool:
        """Whether this commit is what `wish` means under the lock."""
        wish = plain_wish(wish)
        if wish_text(wish) in {wish_text(own) for own in self.wishes}:
            return True
        match wish:
            case AnyVersion():
                return True
            case ExactVersion(number):
                return number == self.version
            case VersionRange():
                return self.version in wish
            case AtRevision(revision):
                return revision == self.commit
            case _:
                assert_never(wish)

    @property
    def size_bytes(self) -> int:
        """The sum of its builds' lengths."""
        return sum(build.size_bytes for build in self.builds)

    def __str__(self) -> str:
        return f"{self.repo}@v{self.version} ({self.commit[:12]})"


@dataclass(frozen=True, slots=True)
class Lock:
    """A whole lock.

    Attributes:
        declared: What the project asks for, by repository.
        kernels: Those and everything that they depend on, sorted by repository, version and commit.
        targets: The machines that it is limited to; empty for every build that exists.
    """

    declared: tuple[Declaration, ...]
    kernels: tuple[LockedKernel, ...]
    targets: tuple[Target, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "declared", tuple(sorted(self.declared, key=lambda item: str(item.requirement.repo))))
        object.__setattr__(self, "kernels", tuple(sorted(self.kernels, key=_kernel_order)))
        object.__setattr__(self, "targets", sorted_targets(self.targets))

    def find(self, requirement: Requirement) -> LockedKernel | None:
        """The locked kernel that a requirement means here, or None.

        One that the lock was made for by the same words comes first, then what the project itself asks for, then the
        highest version.
        """
        wish = plain_wish(requirement.wish)
        found = [kernel for kernel in self.kernels if kernel.repo == requirement.repo and kernel.answers(wish)]
        direct = self._declared_wish(requirement.repo)
        return max(
            found,
            key=lambda kernel: (
                wish_text(wish) in {wish_text(own) for own in kernel.wishes},
                direct is not None and wish_text(direct) in {wish_text(own) for own in kernel.wishes},
                kernel.version,
                kernel.commit,
            ),
            default=None,
        )

    def named(self, repo: RepoId) -> tuple[LockedKernel, ...]:
        """Every locked commit of a repository."""
        return tuple(kernel for kernel in self.kernels if kernel.repo == repo)

    def dependencies_of(self, kernel: LockedKernel) -> tuple[LockedKernel, ...]:
        """The locked kernels that a kernel loads."""
        found = (self.find(requirement) for requirement in kernel.depends)
        return tuple(item for item in found if item is not None)

    def _declared_wish(self, repo: RepoId) -> Wish | None:
        return next((item.requirement.wish for item in self.declared if item.requirement.repo == repo), None)


def plain_wish(wish: Wish) -> Wish:
    """The wish in its one form: the revision `v3` is version 3."""
    if isinstance(wish, AtRevision):
        number = version_of_branch(wish.revision)
        return wish if number is None else ExactVersion(number)
    return wish


def wish_text(wish: Wish) -> str:
    """A wish as locks and project files write it, `*` for any version."""
    return str(plain_wish(wish)) or ANY


def parse_wish(repo: RepoId, text: str) -> Wish:
    """The inverse of `wish_text`.

    Raises:
        InvalidDocumentError: If the text asks for nothing that a repository could have.
    """
    if text == ANY:
        return AnyVersion()
    if not text:
        raise InvalidDocumentError("requirement", f"is an empty text; write '{ANY}' for any version")
    return plain_wish(Requirement.parse(f"{repo}@{text}").wish)


def sorted_targets(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Targets in their one order, each once."""
    return tuple(sorted(set(targets), key=str))


def _kernel_order(kernel: LockedKernel) -> tuple[str, int, str]:
    return str(kernel.repo), kernel.version, kernel.commit
