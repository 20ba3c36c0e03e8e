"""What a publication changes, and in which commits: one that switches, or, where that is too large for a Hub, whole builds each.

A Hub's client says of one commit: at most 25,000 files in large-file storage, and 1 GB of others, which it carries itself.
Here the bounds are lower. A build is never divided, so that a reader sees each build as it was or as it is to be. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_hub.build.outgoing import FOLDERS, Outgoing, OutgoingBuild, OutgoingFile
from kernel_hub.errors import PublishRefusedError
from kernel_hub.model.source import FileEntry


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one commit may hold.

    Attributes:
        files: How many it may add and remove.
        carried_bytes: The sum of the lengths of those that it carries itself.
        large_from_bytes: The length from which on a file is surely not carried, but sent before.
    """

    files: int = 10_000
    carried_bytes: int = 256 << 20
    large_from_bytes: int = 10 << 20


BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a publication changes.

    Attributes:
        additions: Files to send, new or changed.
        deletions: Paths to remove.
        unchanged: How many files are there already.
    """

    additions: tuple[OutgoingFile, ...]
    deletions: tuple[str, ...]
    unchanged: int

    @property
    def is_empty(self) -> bool:
        return not self.additions and not self.deletions


def files_of(outgoing: Outgoing) -> dict[str, OutgoingFile]:
    """Everything to publish, by path."""
    files = [file for build in outgoing.builds for file in build.files]
    own = () if outgoing.api is None else (outgoing.api,)
    return {file.path: file for file in sorted((*files, *outgoing.benchmarks, *own), key=lambda file: file.path)}


def planned(outgoing: Outgoing, there: Iterable[FileEntry], *, new_branch: bool) -> Plan:
    """What to send and to remove, so that a branch holds the builds as they are here, and no attestation of older ones.

    Args:
        outgoing: What is here.
        there: What the branch holds, or the branch that it starts from.
        new_branch: Whether the branch is to be created.
    """
    listed = {entry.path: entry for entry in there}
    files = files_of(outgoing)
    additions = [file for path, file in files.items() if path not in listed or not file.is_listed_as(listed[path])]
    replaced = FOLDERS if new_branch else tuple(place for build in outgoing.builds for place in build.places)
    stale = [path for path in listed if path.startswith(replaced) and path not in files]
    return Plan(tuple(additions), tuple(sorted(stale)), len(files) - len(additions))


def divided(plan: Plan, builds: Sequence[OutgoingBuild], bounds: Bounds) -> tuple[Plan, ...]:
    """The commits of a plan, in order; one if it fits into one. What belongs to no build goes into the last.

    Raises:
        PublishRefusedError: If one build alone is too large for a commit.
    """
    if _fits(plan, bounds):
        return (plan,)
    parts = [_part_of(plan, build) for build in builds]
    claimed = {file.path for part in parts for file in part.additions} | {
        path for part in parts for path in part.deletions
    }
    rest = Plan(
        tuple(file for file in plan.additions if file.path not in claimed),
        tuple(path for path in plan.deletions if path not in claimed),
        0,
    )
    commits: list[Plan] = []
    for named, part in (*zip((f"build {build.label}" for build in builds), parts), ("what belongs to no build", rest)):
        if not _fits(part, bounds):
            raise PublishRefusedError(
                f"{named} changes {len(part.additions) + len(part.deletions)} files with {_carried(part, bounds)} bytes "
                f"that a commit carries; at most {bounds.files} files and {bounds.carried_bytes} bytes go into one",
                hint="data of this size belongs into fewer and larger files, which are sent before the commit",
            )
        joined = _joined(commits[-1], part) if commits else part
        if _fits(joined, bounds):
            commits[-1:] = [joined]
        else:
            commits.append(part)
    return tuple(commits)


def _part_of(plan: Plan, build: OutgoingBuild) -> Plan:
    return Plan(
        tuple(file for file in plan.additions if file.path.startswith(build.places)),
        tuple(path for path in plan.deletions if path.startswith(build.places)),
        0,
    )


def _joined(left: Plan, right: Plan) -> Plan:
    return Plan(left.additions + right.additions, left.deletions + right.deletions, 0)


def _fits(plan: Plan, bounds: Bounds) -> bool:
    return len(plan.additions) + len(plan.deletions) <= bounds.files and _carried(plan, bounds) <= bounds.carried_bytes


def _carried(plan: Plan, bounds: Bounds) -> int:
    return sum(file.size_bytes for file in plan.additions if file.size_bytes < bounds.large_from_bytes)
