"""Marking a version or a build as taken back, without deleting it (see `kernel_hub.model.yanked`)."""

from __future__ import annotations

from datetime import date

from kernel_hub.errors import PublishRefusedError, VersionNotFoundError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, Sink
from kernel_hub.model.yanked import FILE_NAME, MAX_BYTES, Yank, format_yanks, parse_yanks
from kernel_hub.select import variants_of


def yank(
    sink: Sink, repo: RepoId, version: int, *, build: str | None = None, reason: str = "", on: date, undo: bool = False
) -> tuple[Yank, ...]:
    """Mark a version or one of its builds, or take the mark away again, in one commit on the version's branch.

    Args:
        sink: Where the kernel is published.
        repo: The kernel.
        version: Its version.
        build: The build; None for the whole version.
        reason: Why, for people who use it.
        on: The day to write down.
        undo: Take the mark away instead.

    Returns:
        Every mark that the version has now.

    Raises:
        VersionNotFoundError: If there is no such version.
        PublishRefusedError: If there is no such build, no reason, or no mark to take away.
        ConflictError: If the branch moved meanwhile.
    """
    versions = sink.refs(repo).versions()
    if version not in versions:
        raise VersionNotFoundError(f"{repo} has no version v{version}", available=tuple(versions))
    if not undo and not reason.strip():
        raise PublishRefusedError("a yank needs a reason", hint="say in a sentence what is wrong: --reason TEXT")
    head = versions[version]
    listed = sink.files(repo, head)
    builds = {variant.name for variant in variants_of(listed)}
    if build is not None and build not in builds and not undo:
        raise PublishRefusedError(
            f"{repo}@v{version} has no build {build}; it has: {', '.join(sorted(builds)) or 'none'}"
        )
    is_there = any(entry.path == FILE_NAME for entry in listed)
    before = parse_yanks(sink.read(repo, head, FILE_NAME, limit_bytes=MAX_BYTES)) if is_there else ()
    others = tuple(mark for mark in before if mark.build != build)
    if undo and len(others) == len(before):
        raise PublishRefusedError(f"{build or f'v{version}'} of {repo} is not yanked")
    after = others if undo else (*others, Yank(build, reason.strip(), on))
    sink.commit(
        repo,
        f"v{version}",
        parent=head,
        additions=[Addition(FILE_NAME, format_yanks(after))] if after else [],
        deletions=[] if after else [FILE_NAME],
        message=f"{'Restore' if undo else 'Yank'} {build or f'v{version}'}",
    )
    return after
