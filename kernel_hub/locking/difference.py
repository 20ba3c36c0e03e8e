"""What distinguishes two locks, kernel by kernel: for people before a lock is written, and for `--check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernel_hub.model.lock import Lock, LockedKernel
from kernel_hub.model.requirement import RepoId


class ChangeKind(StrEnum):
    """How an entry differs."""

    ADDED = "added"
    REMOVED = "removed"
    MOVED = "moved"
    BUILDS = "builds"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class Change:
    """One entry that differs.

    Attributes:
        kind: How.
        repo: Of which kernel.
        before, after: The entry in either lock; None where it is not.
    """

    kind: ChangeKind
    repo: RepoId
    before: LockedKernel | None
    after: LockedKernel | None

    @property
    def row(self) -> tuple[str, str, str, str]:
        """The change as a table's row: kernel, what happened, before, after."""
        return str(self.repo), self.kind.value, _brief(self.before), _brief(self.after)

    def to_json(self) -> dict[str, Any]:
        """The change as JSON values."""
        return {
            "kernel": str(self.repo),
            "change": self.kind.value,
            "before": _entry(self.before),
            "after": _entry(self.after),
        }


def changes(before: Lock | None, after: Lock) -> tuple[Change, ...]:
    """Every entry that differs, sorted by repository; entries of one repository are paired by version, then in order."""
    old = before.kernels if before else ()
    repos = sorted({kernel.repo for kernel in (*old, *after.kernels)}, key=str)
    return tuple(change for repo in repos for change in _of_repo(repo, old, after.kernels))


def _of_repo(repo: RepoId, old: tuple[LockedKernel, ...], new: tuple[LockedKernel, ...]) -> Iterator[Change]:
    before = [kernel for kernel in old if kernel.repo == repo and kernel not in new]
    after = [kernel for kernel in new if kernel.repo == repo and kernel not in old]
    for same in (
        lambda left, right: left.commit == right.commit,
        lambda left, right: left.version == right.version,
        _any,
    ):
        for left in list(before):
            right = next((item for item in after if same(left, item)), None)
            if right is not None:
                before.remove(left)
                after.remove(right)
                yield Change(_kind(left, right), repo, left, right)
    yield from (Change(ChangeKind.REMOVED, repo, kernel, None) for kernel in before)
    yield from (Change(ChangeKind.ADDED, repo, None, kernel) for kernel in after)


def _any(_left: LockedKernel, _right: LockedKernel) -> bool:
    return True


def _kind(left: LockedKernel, right: LockedKernel) -> ChangeKind:
    if left.commit != right.commit:
        return ChangeKind.MOVED
    return ChangeKind.BUILDS if left.builds != right.builds else ChangeKind.RECORD


def _brief(kernel: LockedKernel | None) -> str:
    if kernel is None:
        return "-"
    return f"v{kernel.version} {kernel.commit[:12]}, {len(kernel.builds)} build{'' if len(kernel.builds) == 1 else 's'}"


def _entry(kernel: LockedKernel | None) -> dict[str, Any] | None:
    if kernel is None:
        return None
    return {
        "version": kernel.version,
        "commit": kernel.commit,
        "builds": [build.label for build in kernel.builds],
    }
