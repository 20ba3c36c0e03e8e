"""A lock in the ecosystem's formats, and as a tree for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.locking.make import Connect
from kernel_hub.model.lock import Lock, LockedKernel, wish_text
from kernel_hub.model.lock_peer import ListingDigest, format_old_peer_lock
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.select import BUILD_FOLDER, variants_of

# The older format was written by a client that knew torch builds only.
_OLD_PREFIX = "torch"


def export_old(lock: Lock, connect: Connect) -> bytes:
    """The ecosystem's older format: a commit and digests of the builds' listings for each repository.

    That format has one entry for a repository: of a kernel that is locked twice, the one that the project asks for itself.

    Raises:
        InvalidDocumentError: If a locked build is not in the source's listing.
        FetchError: If the listing can neither be read nor is remembered.
    """
    found: list[tuple[RepoId, str, Mapping[str, ListingDigest]]] = []
    for repo in dict.fromkeys(kernel.repo for kernel in lock.kernels):
        kernel = lock.find(Requirement(repo))
        assert kernel is not None, f"{repo} is locked, but answers no requirement"
        found.append((kernel.repo, kernel.commit, _listing_digests(kernel, connect)))
    return format_old_peer_lock(found)


def _listing_digests(kernel: LockedKernel, connect: Connect) -> dict[str, ListingDigest]:
    source = connect(kernel.repo).source
    listed = {variant.name: variant for variant in variants_of(source.files(kernel.repo, kernel.commit, BUILD_FOLDER))}
    digests = {}
    for build in kernel.builds:
        if not build.label.startswith(_OLD_PREFIX):
            continue
        if build.label not in listed:
            raise InvalidDocumentError(str(kernel), f"{source.name} does not list its locked build {build.label}")
        inside = f"{BUILD_FOLDER}/{build.label}/"
        files = listed[build.label].files
        digests[build.label] = ListingDigest.of((entry.path.removeprefix(inside), entry.blob) for entry in files)
    return digests


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the dependency tree.

    Attributes:
        requirement: What was asked for.
        kernel: What it is locked to.
        branches: What its builds load; empty where the kernel stands above or before already.
        repeated: Whether it does.
    """

    requirement: Requirement
    kernel: LockedKernel
    branches: tuple[Branch, ...]
    repeated: bool = False

    def lines(self, indent: str = "") -> Iterator[str]:
        """The subtree for people."""
        count = len(self.kernel.builds)
        size_mib = self.kernel.size_bytes / (1 << 20)
        builds = f"{count} build{'' if count == 1 else 's'}, {size_mib:.1f} MiB"
        asked = f"{self.requirement.repo}@{wish_text(self.requirement.wish)}"
        again = " (see above)" if self.repeated else ""
        yield f"{indent}{asked}: v{self.kernel.version} {self.kernel.commit[:12]}, {builds}{again}"
        if not self.repeated:
            for build in self.kernel.builds:
                archs = f" [{', '.join(build.archs)}]" if build.archs else ""
                yield f"{indent}  - {build.label}{archs} {build.size_bytes / 1024:.1f} KiB"
            if self.kernel.python_depends:
                yield f"{indent}  - needs Python: {', '.join(self.kernel.python_depends)}"
        for branch in self.branches:
            yield from branch.lines(indent + "    ")

    def to_json(self) -> dict[str, Any]:
        """The subtree as JSON values."""
        return {
            "kernel": str(self.kernel.repo),
            "requirement": wish_text(self.requirement.wish),
            "version": self.kernel.version,
            "commit": self.kernel.commit,
            "size_bytes": self.kernel.size_bytes,
            "python_depends": list(self.kernel.python_depends),
            "builds": [
                {"label": build.label, "archs": list(build.archs), "size_bytes": build.size_bytes}
                for build in self.kernel.builds
            ],
            "depends": [branch.to_json() for branch in self.branches],
        }


def tree_of(lock: Lock) -> tuple[Branch, ...]:
    """The dependency trees of what the project declares."""
    seen: set[tuple[RepoId, str]] = set()

    def grow(requirement: Requirement, above: frozenset[tuple[RepoId, str]]) -> Branch | None:
        kernel = lock.find(requirement)
        if kernel is None:
            return None
        key = (kernel.repo, kernel.commit)
        if key in above or key in seen:
            return Branch(requirement, kernel, (), repeated=True)
        seen.add(key)
        grown = (grow(item, above | {key}) for item in kernel.depends)
        return Branch(requirement, kernel, tuple(branch for branch in grown if branch is not None))

    found = (grow(item.requirement, frozenset()) for item in lock.declared)
    return tuple(branch for branch in found if branch is not None)
