"""`kernel-hub cache`: what kernels take on this disk, whether it is intact, and what can go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import Command, UsageError, argument
from kernel_hub.cli.console import counted, size_text

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console
    from kernel_hub.model.requirement import RepoId
    from kernel_hub.settings import Settings

_ACTIONS = ("list", "verify", "prune", "path")
_DAY_S = 86400.0


def _run(arguments: Namespace, console: Console) -> int:
    from kernel_hub.model.requirement import RepoId
    from kernel_hub.settings import load_settings

    action = arguments.action
    if arguments.repo is not None and action in ("prune", "path"):
        raise UsageError(f"'kernel-hub cache {action}' takes no REPO")
    if action != "prune" and (arguments.dry_run or arguments.lock or arguments.unused_for is not None):
        raise UsageError("--unused-for, --lock and --dry-run belong to 'kernel-hub cache prune'")
    settings = load_settings()
    repo = None if arguments.repo is None else RepoId.parse(arguments.repo)
    match action:
        case "list":
            return _list(settings, repo, console)
        case "verify":
            return _verify(settings, repo, console)
        case "prune":
            return _prune(settings, arguments, console)
        case _:
            return _path(settings, console)


def _list(settings: Settings, repo: RepoId | None, console: Console) -> int:
    from datetime import UTC, datetime

    from kernel_hub.caches import builds_in_caches
    from kernel_hub.cli.locks import table

    found = builds_in_caches(settings, repo)
    rows = [
        (
            str(item.build.repo),
            ", ".join(item.build.refs) or item.build.commit[:12],
            item.build.label,
            size_text(item.build.size_bytes),
            datetime.fromtimestamp(item.build.last_used_s, UTC).date().isoformat(),
            counted(len(item.build.missing), "file") + " missing" if item.build.missing else "whole",
        )
        for item in found
    ]
    size_bytes = sum(item.build.size_bytes for item in found)
    lines = table([("kernel", "at", "build", "size", "last used", "state"), *rows]) if rows else []
    lines.append(f"{counted(len(found), 'build')}, {size_text(size_bytes)}")
    console.answer("\n".join(lines), {"builds": [item.to_json() for item in found], "size_bytes": size_bytes})
    return 0


def _verify(settings: Settings, repo: RepoId | None, console: Console) -> int:
    from kernel_hub.caches import damage_in_caches
    from kernel_hub.errors import VerificationError

    damaged = list(damage_in_caches(settings, repo))
    lines = [f"damaged: {item.path} (of {item.repo})" for item in damaged]
    lines.append(f"{counted(len(damaged), 'file')} damaged" if damaged else "every file is what its name says")
    documents: list[dict[str, Any]] = [
        {"repo": str(item.repo), "path": str(item.path), "expected": item.expected, "found": item.found}
        for item in damaged
    ]
    console.answer("\n".join(lines), {"damaged": documents})
    if damaged:
        console.notice("note: remove what is damaged; the next load, or 'kernel-hub download', fetches it again")
    return VerificationError.exit_code if damaged else 0


def _prune(settings: Settings, arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.caches import prune_caches
    from kernel_hub.locking.workspace import lock_at

    days = arguments.unused_for
    if days is not None and days < 0:
        raise UsageError(f"--unused-for: {days} is not a number of days from 0")
    locks = [lock_at(Path(name).expanduser().absolute()) for name in arguments.lock or ()]
    pruned = prune_caches(
        settings,
        keep={(kernel.repo, kernel.commit) for lock in locks for kernel in lock.kernels},
        unused_for_s=None if days is None else days * _DAY_S,
        dry_run=arguments.dry_run,
    )
    done = "would be removed" if arguments.dry_run else "removed"
    lines = [f"{done}: {path}" for path in pruned.paths]
    lines.append(f"{size_text(pruned.freed_bytes)} {'would be freed' if arguments.dry_run else 'freed'}")
    console.answer(
        "\n".join(lines),
        {
            "removed": [str(path) for path in pruned.paths],
            "freed_bytes": pruned.freed_bytes,
            "dry_run": arguments.dry_run,
        },
    )
    return 0


def _path(settings: Settings, console: Console) -> int:
    from kernel_hub.caches import cache_folders

    folders = [str(folder) for folder in cache_folders(settings)]
    console.answer("\n".join(folders), {"caches": folders})
    return 0


CACHE = Command(
    "cache",
    "list, verify and prune the kernels on this disk",
    "'list' shows each build with its size and the day of its last use; 'verify' reads every file and exits with 6 if one "
    "is damaged; 'prune' removes what broken downloads left, files that no commit leads to and, with --unused-for, commits "
    "that nothing names any more; 'path' prints the folders. Looked at are the kernels in the Hugging Face cache and the "
    "caches of bound registries; models and data sets are left alone.",
    (
        argument("action", choices=_ACTIONS, text="what to do"),
        argument("repo", metavar="REPO", nargs="?", text="org/name, to list or verify one kernel; default: all"),
        argument(
            "--unused-for",
            metavar="DAYS",
            type=float,
            text="prune also commits unused for so many days, unless a branch or tag in the cache names them",
        ),
        argument(
            "--lock", metavar="FILE", action="append", text="a lock whose commits are not pruned; may be repeated"
        ),
        argument("--dry-run", action="store_true", text="prune nothing, only say what would go"),
    ),
    _run,
)
