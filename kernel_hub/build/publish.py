"""Publishing builds to any sink: one commit on the version's branch, the card on `main`, then a look at what is there now.

Repository format, sections (g) and (h). Readers see the branch as it was or with all of the new builds. Nothing is deleted
but stale files of the builds that are published; only a branch that this creates starts without the builds that the branch
it starts from may hold, which are of another version. What is there already is not sent, and no change is no commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_hub.build.audit.check import require_passed
from kernel_hub.build.audit.finding import PUBLISHES_ANYWAY
from kernel_hub.build.audit.known import find_knowledge
from kernel_hub.build.audit.layout import check_build
from kernel_hub.build.card import PLAIN_CARD, Card, public_names, render_card
from kernel_hub.build.outgoing import FOLDERS, Outgoing, OutgoingFile, collect
from kernel_hub.build.toolchain import find_torch
from kernel_hub.errors import PublishRefusedError, RepositoryNotFoundError, ToolchainError
from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.repo_path import check_ref_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, FileEntry, GitBlob, LfsBlob, Refs, Sink

MAIN = "main"
README = "README.md"


class Status(StrEnum):
    """What became of a publication."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a publication changes; pure.

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


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What came of publishing.

    Attributes:
        status: Published, unchanged, or only planned.
        repo: The repository.
        target: The sink's name.
        version: The kernel's major version.
        branch: The branch of the builds.
        commit: The branch's head; None if it is only planned and does not exist.
        labels: The builds that were published.
        added: Paths that were sent.
        deleted: Paths that were removed.
        unchanged: How many files were there already.
        card: Whether the card was written.
        sent_bytes: The sum of the sent files' lengths.
        notes: What a reader should know.
    """

    status: Status
    repo: RepoId
    target: str
    version: int
    branch: str
    commit: str | None
    labels: tuple[str, ...]
    added: tuple[str, ...]
    deleted: tuple[str, ...]
    unchanged: int
    card: bool
    sent_bytes: int
    notes: tuple[str, ...]


def publish(
    builds: Path,
    sink: Sink,
    repo: RepoId,
    *,
    branch: str | None = None,
    private: bool = False,
    allow_dirty: bool = False,
    dry_run: bool = False,
) -> PublishReport:
    """Publish the builds of a folder.

    Args:
        builds: A kernel's folder with `build/`, the folder of the builds, or one build.
        sink: Where to.
        repo: The repository; created if it is not there.
        branch: The branch of the builds; by default `v<version>`.
        private: Whether a repository that is created is private.
        allow_dirty: Publish builds whose sources differ from their commit.
        dry_run: Change nothing, only say what would be.

    Returns:
        What was sent, and what was there already.

    Raises:
        CheckFailedError: If a build breaks a rule that builds must keep.
        PublishRefusedError: If a build is not what its digest says, the builds do not belong together, their sources
            were not committed, or the target shows something else afterwards.
        InvalidDocumentError: If metadata, a label, the card or the branch's name is malformed.
        ConflictError: If the branch was moved meanwhile; nothing was changed then.
        FetchError: If the target can't be reached.
    """
    outgoing = collect(builds)
    _require_checked(outgoing)
    notes = _dirt(outgoing, allow_dirty)
    target = check_ref_name(branch or f"v{outgoing.metadata.version}")
    if target == MAIN:
        raise PublishRefusedError(f"builds are not published to {MAIN!r}, which holds the card", hint="name a branch")
    # Everything that can be wrong here is found before the target is touched.
    readme = _readme(outgoing, repo)
    refs = _refs(sink, repo, private=private, create=not dry_run)
    head = refs.branches.get(target)
    start = head or refs.branches.get(MAIN)
    plan = planned(outgoing, sink.files(repo, start) if start else (), new_branch=head is None)
    write_card, reason = _card_is_due(sink, repo, refs, outgoing, readme)
    notes += [reason] if reason else []
    status = Status.UNCHANGED if plan.is_empty and head and not write_card else Status.PUBLISHED
    if dry_run:
        status = status if status is Status.UNCHANGED else Status.PLANNED
    elif status is Status.PUBLISHED:
        # The head that was planned on is the parent, so that a branch that was moved meanwhile is a conflict.
        head = head or sink.create_branch(repo, target, start=start)
        head = _send(sink, repo, target, head, outgoing, plan, readme if write_card else None)
        _require_arrival(sink, repo, target, head, outgoing)
    return PublishReport(
        status=status,
        repo=repo,
        target=sink.name,
        version=outgoing.metadata.version,
        branch=target,
        commit=head,
        labels=tuple(build.label for build in outgoing.builds),
        added=tuple(file.path for file in plan.additions),
        deleted=plan.deletions,
        unchanged=plan.unchanged,
        card=write_card,
        sent_bytes=sum(file.size_bytes for file in plan.additions),
        notes=tuple(notes),
    )


def _require_checked(outgoing: Outgoing) -> None:
    try:
        torch = find_torch()
    except ToolchainError:
        # Without torch here, all but its own functions can be checked.
        torch = None
    known = find_knowledge(torch)
    for build in outgoing.builds:
        require_passed(build.label, check_build(build.folder, build.label, known), tolerated=PUBLISHES_ANYWAY)


def planned(outgoing: Outgoing, there: Iterable[FileEntry], *, new_branch: bool) -> Plan:
    """What to send and to remove, so that a branch holds the builds as they are here, and no attestation of older ones.

    Args:
        outgoing: What is here.
        there: What the branch holds, or the branch that it starts from.
        new_branch: Whether the branch is to be created.
    """
    listed = {entry.path: entry for entry in there}
    files = _files(outgoing)
    additions = [file for path, file in files.items() if path not in listed or not file.is_listed_as(listed[path])]
    replaced = FOLDERS if new_branch else tuple(place for build in outgoing.builds for place in build.places)
    stale = [path for path in listed if path.startswith(replaced) and path not in files]
    return Plan(tuple(additions), tuple(sorted(stale)), len(files) - len(additions))


def _files(outgoing: Outgoing) -> dict[str, OutgoingFile]:
    files = [file for build in outgoing.builds for file in build.files]
    return {file.path: file for file in (*files, *outgoing.benchmarks)}


def _dirt(outgoing: Outgoing, allowed: bool) -> list[str]:
    """Refuse builds of uncommitted sources; if they are allowed, a note about them."""
    dirty = [build.label for build in outgoing.builds if (found := build.metadata.provenance) and found.dirty]
    if not dirty:
        return []
    said = f"built from sources that differ from their commit: {', '.join(dirty)}"
    if not allowed:
        raise PublishRefusedError(said, hint="commit the sources and build again, or allow it with --allow-dirty")
    return [said]


def _refs(sink: Sink, repo: RepoId, *, private: bool, create: bool) -> Refs:
    try:
        return sink.refs(repo)
    except RepositoryNotFoundError:
        if not create:
            return Refs({})
    sink.create_repo(repo, private=private)
    return sink.refs(repo)


def _readme(outgoing: Outgoing, repo: RepoId) -> bytes:
    metadata = outgoing.metadata
    functions, layers = public_names(outgoing.builds[0].folder)
    card = Card(
        repo_id=str(repo),
        version=metadata.version,
        license=metadata.license.lower(),
        functions=functions,
        layers=layers,
        has_benchmark=any(file.path == "benchmarks/benchmark.py" for file in outgoing.benchmarks),
        upstream=metadata.upstream,
        source=metadata.source,
    )
    return render_card(PLAIN_CARD if outgoing.card is None else outgoing.card, card)


def _card_is_due(sink: Sink, repo: RepoId, refs: Refs, outgoing: Outgoing, readme: bytes) -> tuple[bool, str]:
    """Whether to write the card, and why not if that needs saying."""
    version = outgoing.metadata.version
    newer = max(refs.versions(), default=version)
    if newer > version:
        return False, f"the card stays that of version {newer}, which is newer"
    main = refs.branches.get(MAIN)
    entry = _listed(sink.files(repo, main)).get(README) if main else None
    return entry is None or not _is_of(entry, readme), ""


def _is_of(entry: FileEntry, content: bytes) -> bool:
    identity = StoredBlob.of(content)
    return entry.blob in (GitBlob(identity.git_id), LfsBlob(identity.digest))


def _send(
    sink: Sink, repo: RepoId, branch: str, head: str, outgoing: Outgoing, plan: Plan, readme: bytes | None
) -> str:
    """Write the builds, then the card; the head of the builds' branch."""
    metadata = outgoing.metadata
    if not plan.is_empty:
        head = sink.commit(
            repo,
            branch,
            parent=head,
            additions=[Addition(file.path, file.source) for file in plan.additions],
            deletions=plan.deletions,
            message=f"{metadata.name} version {metadata.version}: {_counted(outgoing.builds, 'build')}",
        )
    if readme is not None:
        sink.commit(
            repo,
            MAIN,
            parent=sink.refs(repo).branches[MAIN],
            additions=[Addition(README, readme)],
            deletions=(),
            message=f"Card of version {metadata.version}",
        )
    return head


def _counted(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


def _require_arrival(sink: Sink, repo: RepoId, branch: str, commit: str, outgoing: Outgoing) -> None:
    """Read back what was published and compare every file's identity with the one that was verified here."""
    head = sink.refs(repo).branches.get(branch)
    if head is None:
        raise PublishRefusedError(f"{sink.name} took the commit, but shows no branch {branch!r} of {repo}")
    there = _listed(sink.files(repo, commit))
    files = _files(outgoing)
    replaced = tuple(f"build/{build.label}/" for build in outgoing.builds)
    wrong = [path for path, file in files.items() if path not in there or not file.is_listed_as(there[path])]
    wrong += [path for path in there if path.startswith(replaced) and path not in files]
    if wrong:
        raise PublishRefusedError(
            f"{sink.name} took the commit {commit[:12]} of {repo}, but shows other files than were sent: "
            f"{', '.join(sorted(wrong)[:5])}",
            hint="publish again; a file that was changed during publication is one cause",
        )


def _listed(entries: Iterable[FileEntry]) -> Mapping[str, FileEntry]:
    return {entry.path: entry for entry in entries}
