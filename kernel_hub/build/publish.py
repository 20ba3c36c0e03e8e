"""Publishing builds to any sink: one commit on the version's branch, the card on `main`, then a look at what is there now.

Repository format, sections (g) and (h). Readers see the branch as it was or with all of the new builds. Nothing is deleted
but stale files of the builds that are published; only a branch that this creates starts without the builds that the branch
it starts from may hold, which are of another version. What is there already is not sent, and no change is no commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kernel_hub.build.audit.check import require_passed
from kernel_hub.build.audit.finding import PUBLISHES_ANYWAY
from kernel_hub.build.audit.known import find_knowledge
from kernel_hub.build.audit.layout import check_build
from kernel_hub.build.branch_builds import builds_there
from kernel_hub.build.card import PLAIN_CARD, Card, public_names, render_card
from kernel_hub.build.delivery import MAIN, README, listed, propose_builds, require_arrival, send
from kernel_hub.build.measured import read_results
from kernel_hub.build.outgoing import Outgoing, collect
from kernel_hub.build.promises import keep_promises, outgoing_labels
from kernel_hub.build.sending import BOUNDS, Bounds, divided, planned
from kernel_hub.build.toolchain import find_torch
from kernel_hub.errors import PublishRefusedError, RepositoryNotFoundError, ToolchainError
from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.repo_path import check_ref_name
from kernel_hub.model.requirement import RepoId, version_of_branch
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob, Pin, Proposal, Refs, Sink
from kernel_hub.signatures import PrivateKey
from kernel_hub.signing import sign_folder


class Status(StrEnum):
    """What became of a publication. Proposed is what is on no branch until somebody merges it."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    PLANNED = "planned"
    PROPOSED = "proposed"


@dataclass(frozen=True, slots=True)
class PublishReport:
    """What came of publishing.

    Attributes:
        status: Published, unchanged, or only planned.
        repo: The repository.
        target: The sink's name.
        version: The kernel's major version.
        branch: The branch of the builds.
        commit: The branch's head, or what is proposed; None if it is only planned and does not exist.
        labels: The builds that were published.
        added: Paths that were sent.
        deleted: Paths that were removed.
        unchanged: How many files were there already.
        card: Whether the card was written.
        sent_bytes: The sum of the sent files' lengths.
        notes: What a reader should know.
        proposal: What was proposed instead of being put on the branch.
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
    proposal: Proposal | None = None


def publish(
    builds: Path,
    sink: Sink,
    repo: RepoId,
    *,
    branch: str | None = None,
    private: bool = False,
    allow_dirty: bool = False,
    dry_run: bool = False,
    propose: bool = False,
    key: PrivateKey | None = None,
    bounds: Bounds = BOUNDS,
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
        propose: Put nothing on a branch, but propose it to the owners of the branch, which must be there.
        key: Sign every build with it first, for this repository alone.
        bounds: What one commit may hold.

    Returns:
        What was sent, and what was there already.

    Raises:
        CheckFailedError: If a build breaks a rule that builds must keep, or what its version offers already.
        PublishRefusedError: If a build is not what its digest says, the builds do not belong together, their sources
            were not committed, or the target shows something else afterwards.
        InvalidDocumentError: If metadata, a label, the card or the branch's name is malformed.
        ConflictError: If the branch was moved meanwhile; nothing was changed then.
        FetchError: If the target can't be reached.
    """
    # Attestations of earlier builds are no reason to refuse those that are signed now.
    outgoing = collect(builds, attested=key is None)
    _require_checked(outgoing)
    notes = _dirt(outgoing, allow_dirty)
    if key is not None and dry_run:
        notes.append("the builds would be signed first")
    elif key is not None:
        sign_folder(builds, key, repository=str(repo))
        outgoing = collect(builds)
    target = check_ref_name(branch or f"v{outgoing.metadata.version}")
    if target == MAIN:
        raise PublishRefusedError(f"builds are not published to {MAIN!r}, which holds the card", hint="name a branch")
    if version_of_branch(target) not in (None, outgoing.metadata.version):
        raise PublishRefusedError(
            f"these are builds of version {outgoing.metadata.version}, and {target!r} is the branch of another version",
            hint="raise general.version in build.toml and build again, or leave --branch out",
        )
    # Everything that can be wrong here is found before the target is touched.
    _readme(outgoing, repo)
    refs = _refs(sink, repo, private=private, create=not (dry_run or propose))
    if not refs.branches:
        notes.append("the repository is not there, or not for this user to see: publishing would make it")
    head = refs.branches.get(target)
    if propose and head is None:
        raise PublishRefusedError(
            f"{repo} has no branch {target!r} to propose builds to",
            hint="its owner publishes a first build of this version, or makes the branch; then propose again",
        )
    start = head or refs.branches.get(MAIN)
    there = sink.files(repo, start) if start else ()
    pin = Pin(repo, head, ref=target) if head else None
    outgoing, unsure = keep_promises(outgoing, sink, pin, there)
    notes += [unsure] if unsure else []
    labels = outgoing_labels(outgoing)
    readme = _readme(outgoing, repo, {} if propose else builds_there(sink, pin, there, leaving_out=labels))
    plan = planned(outgoing, there, new_branch=head is None)
    commits = divided(plan, outgoing.builds, bounds)
    write_card, reason = (
        (False, "the card is not proposed: it is written when builds are published")
        if propose
        else _card_is_due(sink, repo, refs, outgoing, readme)
    )
    notes += [reason] if reason else []
    if len(commits) > 1:
        notes.append(f"too large for one commit: {len(commits)} commits of whole builds")
    proposal = None
    status = Status.UNCHANGED if plan.is_empty and head and not write_card else Status.PUBLISHED
    if dry_run:
        status = status if status is Status.UNCHANGED else Status.PLANNED
    elif status is Status.PUBLISHED and propose and head is not None:
        status = Status.PROPOSED
        proposal = propose_builds(sink, repo, target, head, outgoing, commits)
        head = proposal.commit
        require_arrival(sink, repo, target, head, outgoing)
    elif status is Status.PUBLISHED:
        # The head that was planned on is the parent, so that a branch that was moved meanwhile is a conflict.
        head = head or sink.create_branch(repo, target, start=start)
        head = send(sink, repo, target, head, outgoing, commits, readme if write_card else None)
        require_arrival(sink, repo, target, head, outgoing)
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
        proposal=proposal,
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


def _readme(outgoing: Outgoing, repo: RepoId, others: Mapping[str, Metadata | None] | None = None) -> bytes:
    """The card of a version that holds these builds and others that are there already."""
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
        builds={build.label: build.metadata for build in outgoing.builds} | dict(others or {}),
        # The builds lie in a folder of the kernel's own, unless they were put elsewhere.
        measured=read_results(outgoing.builds[0].folder.absolute().parent.parent),
    )
    return render_card(PLAIN_CARD if outgoing.card is None else outgoing.card, card)


def _card_is_due(sink: Sink, repo: RepoId, refs: Refs, outgoing: Outgoing, readme: bytes) -> tuple[bool, str]:
    """Whether to write the card, and why not if that needs saying."""
    version = outgoing.metadata.version
    newer = max(refs.versions(), default=version)
    if newer > version:
        return False, f"the card stays that of version {newer}, which is newer"
    main = refs.branches.get(MAIN)
    entry = listed(sink.files(repo, main)).get(README) if main else None
    return entry is None or not _is_of(entry, readme), ""


def _is_of(entry: FileEntry, content: bytes) -> bool:
    identity = StoredBlob.of(content)
    return entry.blob in (GitBlob(identity.git_id), LfsBlob(identity.digest))
