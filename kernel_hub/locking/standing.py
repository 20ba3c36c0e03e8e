"""What became of locked commits at their source: whether they are there, whether a branch left them, whether newer is to be had.

A kernel is withdrawn when its repository, its version branch or its commit is gone, or when its publisher yanked it. A branch
was rewritten when the locked commit is not in its history any more: then somebody replaced what was published, which
deserves a look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from kernel_hub.errors import FetchError, ResolutionError
from kernel_hub.model.lock import LockedKernel
from kernel_hub.model.requirement import AtRevision, RepoId, is_commit
from kernel_hub.model.source import History, Refs, Source
from kernel_hub.model.yanked import FILE_NAME, MAX_BYTES, parse_yanks

Ask: TypeAlias = Callable[[RepoId], Source | None]


class State(StrEnum):
    """What became of a locked commit."""

    CURRENT = "current"
    BEHIND = "behind"
    REWRITTEN = "rewritten"
    WITHDRAWN = "withdrawn"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a source says of a locked kernel now.

    Attributes:
        kernel: The kernel.
        state: What became of its commit.
        reason: In words.
        newest: The newest version that the repository has; None if it has none or was not asked.
        head: The head of the branch that the kernel was locked from; None if there is none.
    """

    kernel: LockedKernel
    state: State
    reason: str
    newest: int | None = None
    head: str | None = None

    @property
    def is_outdated(self) -> bool:
        """Whether there is a newer commit of its version, or a newer version."""
        return self.state is State.BEHIND or (self.newest is not None and self.newest > self.kernel.version)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "kernel": str(self.kernel.repo),
            "version": self.kernel.version,
            "commit": self.kernel.commit,
            "state": self.state.value,
            "reason": self.reason,
            "newest_version": self.newest,
            "head": self.head,
        }


def standing_of(kernel: LockedKernel, ask: Ask) -> Standing:
    """Ask the source of a kernel what became of it."""
    source = ask(kernel.repo)
    if source is None:
        return Standing(kernel, State.UNKNOWN, "the network may not be used")
    try:
        refs = source.refs(kernel.repo)
        return _judge(kernel, source, refs)
    except ResolutionError as error:
        return Standing(kernel, State.WITHDRAWN, error.message)
    except FetchError as error:
        return Standing(kernel, State.UNKNOWN, error.message)


def _judge(kernel: LockedKernel, source: Source, refs: Refs) -> Standing:
    newest = max(refs.versions(), default=None)
    branch = _branch(kernel)
    head = refs.branches.get(branch) or refs.tags.get(branch)
    yanked = _yanked(kernel, source, head) if head is not None else ""
    if yanked:
        return Standing(kernel, State.WITHDRAWN, yanked, newest, head)
    if head == kernel.commit:
        return Standing(kernel, State.CURRENT, f"the head of {branch}", newest, head)
    # Raises if the commit is gone.
    source.commit_of(kernel.repo, kernel.commit)
    if is_commit(branch):
        return Standing(kernel, State.CURRENT, "locked by its commit, which is there", newest)
    if head is None:
        return Standing(kernel, State.WITHDRAWN, f"the branch {branch} is gone", newest)
    if not isinstance(source, History):
        return Standing(kernel, State.BEHIND, f"{branch} moved to {head[:12]}", newest, head)
    commits = source.commits(kernel.repo, branch)
    if kernel.commit in commits:
        count = commits.index(kernel.commit)
        reason = f"{count} commit{'' if count == 1 else 's'} behind {branch} ({head[:12]})"
        return Standing(kernel, State.BEHIND, reason, newest, head)
    reason = f"not in the history of {branch} any more, which was rewritten to {head[:12]}"
    return Standing(kernel, State.REWRITTEN, reason, newest, head)


def _yanked(kernel: LockedKernel, source: Source, head: str) -> str:
    """Why the publisher took back what is locked, as the branch says now; empty if it did not."""
    if all(entry.path != FILE_NAME for entry in source.files(kernel.repo, head)):
        return ""
    content = source.read(kernel.repo, head, FILE_NAME, limit_bytes=MAX_BYTES)
    marks = parse_yanks(content, name=f"{FILE_NAME} of {kernel.repo}")
    return "; ".join(str(mark) for mark in marks if any(mark.concerns(build.label) for build in kernel.builds))


def _branch(kernel: LockedKernel) -> str:
    """The branch, tag or commit that a kernel was locked from."""
    revisions = [wish.revision for wish in kernel.wishes if isinstance(wish, AtRevision)]
    return revisions[0] if revisions and len(revisions) == len(kernel.wishes) else f"v{kernel.version}"
