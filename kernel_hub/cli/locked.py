"""`kernel-hub tree`, `outdated`, `audit`, `export`: questions about a lock, and other forms of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.cli.command import Command, argument
from kernel_hub.cli.locks import LOCK, PROJECT, lock_of, table

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console

_WHICH = (PROJECT, LOCK)


def _tree(arguments: Namespace, console: Console) -> int:
    from kernel_hub.locking.export import tree_of

    path, lock = lock_of(arguments)
    branches = tree_of(lock)
    lines = [line for branch in branches for line in branch.lines()]
    console.answer("\n".join(lines) or f"{path} locks nothing", [branch.to_json() for branch in branches])
    return 0


def _outdated(arguments: Namespace, console: Console) -> int:
    from kernel_hub.locking.standing import State, standing_of
    from kernel_hub.locking.workspace import asker
    from kernel_hub.settings import load_settings

    path, lock = lock_of(arguments)
    ask = asker(load_settings(folder=path.parent))
    standings = [standing_of(kernel, ask) for kernel in lock.kernels]
    for item in standings:
        if item.state in (State.UNKNOWN, State.WITHDRAWN, State.REWRITTEN):
            console.notice(f"note: {item.kernel}: {item.state.value}: {item.reason}")
    rows = [
        (
            str(item.kernel.repo),
            f"v{item.kernel.version} {item.kernel.commit[:12]}",
            f"v{item.kernel.version} {item.head[:12]}" if item.head else "-",
            f"v{item.newest}" if item.newest is not None else "-",
        )
        for item in standings
        if item.is_outdated
    ]
    lines = table([("kernel", "locked", "same version", "newest"), *rows]) if rows else ["nothing is outdated"]
    console.answer("\n".join(lines), {"kernels": [item.to_json() for item in standings]})
    return 0


def _audit(arguments: Namespace, console: Console) -> int:
    from kernel_hub.errors import LockOutdatedError
    from kernel_hub.locking.check import audit_lock
    from kernel_hub.locking.workspace import asker, connector
    from kernel_hub.settings import load_settings

    path, lock = lock_of(arguments)
    settings = load_settings(folder=path.parent)
    remarks = audit_lock(lock, asker(settings), connector(settings, refresh=False))
    rows = [(item.concern.value, str(item.kernel), item.label or "-", item.text) for item in remarks]
    lines = table([("concern", "kernel", "build", "finding"), *rows]) if rows else ["nothing was found"]
    console.answer("\n".join(lines), {"remarks": [item.to_json() for item in remarks]})
    grave = any(item.is_grave for item in remarks)
    return LockOutdatedError.exit_code if grave else 0


def _export(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.locking.export import export_old
    from kernel_hub.locking.files import replace_whole
    from kernel_hub.locking.workspace import connector
    from kernel_hub.model.lock_peer import format_peer_lock
    from kernel_hub.settings import load_settings

    path, lock = lock_of(arguments)
    if arguments.format == "kernels":
        content = format_peer_lock(lock)
    else:
        content = export_old(lock, connector(load_settings(folder=path.parent), refresh=False))
    text = content.decode("utf-8")
    if arguments.output:
        replace_whole(Path(arguments.output).expanduser().absolute(), content)
        console.answer(f"{arguments.output} written", {"output": arguments.output})
    else:
        console.answer(text, {"format": arguments.format, "text": text})
    return 0


TREE = Command(
    "tree",
    "show the locked kernels with what they depend on",
    "Prints each declared kernel with its builds and their sizes, and below it the kernels that its builds load.",
    _WHICH,
    _tree,
)
OUTDATED = Command(
    "outdated",
    "show which locked kernels have something newer",
    "Asks the sources for the head of each locked version and for the newest version.",
    _WHICH,
    _outdated,
)
AUDIT = Command(
    "audit",
    "look for trouble in what is locked",
    "Asks whether each locked commit is still there and in its branch's history, and looks at every locked build: changed "
    "under its commit, unsigned, without digests, built from a dirty tree; and for newer versions. Exits with 3 if "
    "a kernel was withdrawn, a branch rewritten or a build changed, and with 0 for lesser findings.",
    _WHICH,
    _audit,
)
EXPORT = Command(
    "export",
    "write the lock in one of the ecosystem's formats",
    "'kernels' is the format of kernels 0.17 and later, with commits; 'kernels-old' the one before, with a digest for each "
    "build.",
    (
        *_WHICH,
        argument(
            "--format", choices=("kernels", "kernels-old"), default="kernels", text="which format; default: kernels"
        ),
        argument("--output", metavar="FILE", text="where to; default: standard output"),
    ),
    _export,
)
