"""Making the commits of a plan at a sink, on a branch or as a proposal, and reading back what came of them.

Leaves out what goes into which commit (see `kernel_hub.build.sending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kernel_hub.build.outgoing import Outgoing
from kernel_hub.build.sending import Plan, files_of
from kernel_hub.errors import PublishRefusedError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, FileEntry, Proposal, Sink

MAIN = "main"
README = "README.md"


def send(
    sink: Sink,
    repo: RepoId,
    branch: str,
    head: str,
    outgoing: Outgoing,
    commits: Sequence[Plan],
    readme: bytes | None,
) -> str:
    """Write the builds, then the card; the head of the builds' branch."""
    for number, plan in enumerate(commits, start=1):
        if not plan.is_empty:
            part = f", part {number} of {len(commits)}" if len(commits) > 1 else ""
            head = sink.commit(
                repo,
                branch,
                parent=head,
                additions=_additions(plan),
                deletions=plan.deletions,
                message=f"{_title(outgoing)}{part}",
            )
    if readme is not None:
        sink.commit(
            repo,
            MAIN,
            parent=sink.refs(repo).branches[MAIN],
            additions=[Addition(README, readme)],
            deletions=(),
            message=f"Card of version {outgoing.metadata.version}",
        )
    return head


def propose_builds(
    sink: Sink, repo: RepoId, branch: str, head: str, outgoing: Outgoing, commits: Sequence[Plan]
) -> Proposal:
    if len(commits) > 1:
        raise PublishRefusedError(
            f"these builds are too large for one commit ({len(commits)} would be needed), and a proposal is one",
            hint="propose fewer builds at a time",
        )
    return sink.propose(
        repo,
        branch,
        parent=head,
        additions=_additions(commits[0]),
        deletions=commits[0].deletions,
        message=_title(outgoing),
    )


def _additions(plan: Plan) -> list[Addition]:
    return [Addition(file.path, file.source) for file in plan.additions]


def _title(outgoing: Outgoing) -> str:
    metadata = outgoing.metadata
    return f"{metadata.name} version {metadata.version}: {_counted(outgoing.builds, 'build')}"


def _counted(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


def require_arrival(sink: Sink, repo: RepoId, branch: str, commit: str, outgoing: Outgoing) -> None:
    """Read back what was published and compare every file's identity with the one that was verified here."""
    head = sink.refs(repo).branches.get(branch)
    if head is None:
        raise PublishRefusedError(f"{sink.name} took the commit, but shows no branch {branch!r} of {repo}")
    there = listed(sink.files(repo, commit))
    files = files_of(outgoing)
    replaced = tuple(f"build/{build.label}/" for build in outgoing.builds)
    wrong = [path for path, file in files.items() if path not in there or not file.is_listed_as(there[path])]
    wrong += [path for path in there if path.startswith(replaced) and path not in files]
    if wrong:
        raise PublishRefusedError(
            f"{sink.name} took the commit {commit[:12]} of {repo}, but shows other files than were sent: "
            f"{', '.join(sorted(wrong)[:5])}",
            hint="publish again; a file that was changed during publication is one cause",
        )


def listed(entries: Iterable[FileEntry]) -> Mapping[str, FileEntry]:
    return {entry.path: entry for entry in entries}
