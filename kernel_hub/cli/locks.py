"""`kernel-hub lock`, `sync`, `add`, `remove`: a project's lock, made, brought and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import Argument, Command, UsageError, argument
from kernel_hub.cli.console import size_text
from kernel_hub.cli.documents import read_host

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable
    from pathlib import Path

    from kernel_hub.cli.console import Console
    from kernel_hub.locking.project import Project
    from kernel_hub.locking.workspace import Relocked
    from kernel_hub.model.lock import Lock
    from kernel_hub.model.target import Target
    from kernel_hub.settings import Settings

PROJECT = argument(
    "--project", metavar="FOLDER", text="the project's folder; default: the nearest one upwards with a pyproject.toml"
)
LOCK = argument("--lock", metavar="FILE", text="the lock; default: the project's kernel-hub.lock")
TARGETS = argument(
    "--target",
    metavar="TARGET",
    action="append",
    text="a machine, e.g. linux-x86_64-cu128-torch2.13, or a file as 'kernel-hub host --json' writes it; repeatable",
)


def project_of(arguments: Namespace) -> Project:
    """The project that a command line means."""
    from pathlib import Path

    from kernel_hub.locking.workspace import project_at

    return project_at(Path(arguments.project).expanduser().absolute() if arguments.project else Path.cwd())


def lock_of(arguments: Namespace) -> tuple[Path, Lock]:
    """The lock that a command line means, with its path."""
    from pathlib import Path

    from kernel_hub.locking.workspace import lock_at

    named = getattr(arguments, "lock", None)
    path = Path(named).expanduser().absolute() if named else project_of(arguments).lock_path
    return path, lock_at(path)


def targets_of(texts: Iterable[str], console: Console) -> list[Target]:
    """Targets from their texts, or from host files."""
    from pathlib import Path

    from kernel_hub.errors import InvalidDocumentError
    from kernel_hub.model.target import Target

    found = []
    for text in texts:
        try:
            found.append(Target.parse(text))
        except InvalidDocumentError:
            if text != "-" and not Path(text).expanduser().is_file():
                raise
            host = read_host(text, console)
            assert host is not None
            found.append(Target.of(host))
    return found


def table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Rows with their columns aligned."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines]


def report(relocked: Relocked, console: Console, *, written: bool) -> None:
    """Say what locking came to."""
    for note in relocked.notes:
        console.notice(f"note: {note}")
    kernels = relocked.lock.kernels
    what = f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'}"
    state = f"{what} locked in" if written else f"{what} would be locked in"
    lines = [f"{state} {relocked.path}" if relocked.changed else f"{relocked.path} is up to date: {what}"]
    if relocked.changes:
        lines += [f"  {line}" for line in table([("kernel", "change", "before", "after"), *_rows(relocked)])]
    console.answer(
        "\n".join(lines),
        {
            "lock": str(relocked.path),
            "changed": relocked.changed,
            "written": written and relocked.changed,
            "kernels": len(kernels),
            "changes": [change.to_json() for change in relocked.changes],
            "notes": list(relocked.notes),
        },
    )


def _rows(relocked: Relocked) -> list[tuple[str, str, str, str]]:
    return [change.row for change in relocked.changes]


def _lock(arguments: Namespace, console: Console) -> int:
    from kernel_hub.locking.workspace import relock, write
    from kernel_hub.settings import load_settings

    project = project_of(arguments)
    settings = load_settings(folder=project.folder)
    if arguments.check:
        return _check(arguments, project, settings, console)
    if arguments.all_targets and arguments.target:
        raise UsageError("--all-targets and --target exclude each other")
    targets = None if not arguments.target else targets_of(arguments.target, console)
    relocked = relock(
        project,
        settings,
        targets=() if arguments.all_targets else targets,
        upgrade=_upgrade(arguments.upgrade, project),
    )
    if not arguments.dry_run:
        write(relocked)
    report(relocked, console, written=not arguments.dry_run)
    return 0


def _upgrade(names: list[str] | None, project: Project) -> Any:
    from kernel_hub.locking.make import KEEP, Upgrade
    from kernel_hub.locking.workspace import lock_at
    from kernel_hub.model.requirement import RepoId

    if names is None:
        return KEEP
    repos = frozenset(RepoId.parse(name) for name in names if name)
    known = {item.requirement.repo for item in project.declared}
    if project.lock_path.exists():
        known |= {kernel.repo for kernel in lock_at(project.lock_path).kernels}
    strange = sorted(str(repo) for repo in repos - known)
    if strange:
        raise UsageError(f"--upgrade: {strange[0]} is neither declared nor locked")
    return Upgrade(everything="" in names, repos=repos)


def _check(arguments: Namespace, project: Project, settings: Settings, console: Console) -> int:
    from kernel_hub.locking.check import check_lock
    from kernel_hub.locking.workspace import asker, lock_at

    if arguments.upgrade is not None or arguments.target or arguments.all_targets or arguments.dry_run:
        raise UsageError("--check takes none of --upgrade, --target, --all-targets and --dry-run")
    checked = check_lock(project.declared, lock_at(project.lock_path), asker(settings))
    for standing in checked.unasked:
        console.notice(f"note: whether {standing.kernel} was withdrawn is not known: {standing.reason}")
    count = len(checked.standings)
    console.answer(
        f"{project.lock_path} agrees with the project: {count} kernel{'' if count == 1 else 's'}",
        {"lock": str(project.lock_path), "kernels": [standing.to_json() for standing in checked.standings]},
    )
    return 0


def _sync(arguments: Namespace, console: Console) -> int:
    from kernel_hub.api import this_host
    from kernel_hub.locking.sync import Syncer
    from kernel_hub.locking.workspace import connector
    from kernel_hub.settings import load_settings

    path, lock = lock_of(arguments)
    settings = load_settings(folder=path.parent)
    syncer = Syncer(settings, lock, path, connector(settings, refresh=False), progress=console.progress())
    if arguments.all_builds:
        if arguments.target or arguments.host:
            raise UsageError("--all-builds takes neither --target nor --host")
        synced = list(syncer.every_build())
    elif arguments.target:
        synced = [item for target in targets_of(arguments.target, console) for item in syncer.for_target(target)]
    else:
        synced = list(syncer.for_host(read_host(arguments.host, console) or this_host(settings)))
    unique = list({(item.kernel.repo, item.kernel.commit, item.build.label): item for item in synced}.values())
    for note in dict.fromkeys(f"{item.kernel.repo}: {item.note}" for item in unique if item.note):
        console.notice(f"note: {note}")
    lines = [f"{item.kernel} {item.build.label} ({size_text(item.build.size_bytes)})" for item in unique]
    console.answer("\n".join(lines) or f"{path} locks nothing", {"builds": [item.to_json() for item in unique]})
    return 0


def _add(arguments: Namespace, console: Console) -> int:
    from dataclasses import replace

    from kernel_hub.locking.project import add_declaration
    from kernel_hub.locking.workspace import connector, relock, write
    from kernel_hub.model.lock import Declaration
    from kernel_hub.model.requirement import AnyVersion, ExactVersion, Requirement
    from kernel_hub.resolve import resolve
    from kernel_hub.settings import load_settings

    project = project_of(arguments)
    settings = load_settings(folder=project.folder)
    requirement = Requirement.parse(arguments.repo)
    if isinstance(requirement.wish, AnyVersion):
        pin = resolve(requirement, connector(settings)(requirement.repo).source.refs(requirement.repo))
        requirement = Requirement(requirement.repo, ExactVersion(pin.version if pin.version is not None else 0))
    declaration = Declaration(requirement, tuple(targets_of(arguments.target or (), console)))
    others = tuple(item for item in project.declared if item.requirement.repo != requirement.repo)
    # The lock is made first, so that nothing is declared that cannot be locked.
    relocked = relock(replace(project, declared=(*others, declaration)), settings)
    add_declaration(project.folder, declaration)
    write(relocked)
    report(relocked, console, written=True)
    return 0


def _remove(arguments: Namespace, console: Console) -> int:
    from dataclasses import replace

    from kernel_hub.locking.project import remove_declaration
    from kernel_hub.locking.workspace import relock, write
    from kernel_hub.model.requirement import RepoId
    from kernel_hub.settings import load_settings

    project = project_of(arguments)
    repo = RepoId.parse(arguments.repo)
    left = tuple(item for item in project.declared if item.requirement.repo != repo)
    if len(left) == len(project.declared):
        raise UsageError(f"{repo} is not declared in {project.folder / 'pyproject.toml'}")
    relocked = relock(replace(project, declared=left), load_settings(folder=project.folder))
    remove_declaration(project.folder, repo)
    write(relocked)
    report(relocked, console, written=True)
    return 0


LOCK_COMMAND = Command(
    "lock",
    "pin the project's kernels in kernel-hub.lock",
    "Resolves what pyproject.toml declares, and every kernel that those depend on, to commits, builds and digests, and "
    "writes kernel-hub.lock. Needs no torch and no GPU, and downloads no native code. What the lock holds already is kept "
    "while it fits. Exits with 3 if a kernel, or with --check anything of the lock, is not as declared, and with 4 if "
    "a kernel has no build for a target.",
    (
        PROJECT,
        TARGETS,
        argument("--all-targets", action="store_true", text="lock every build again, after --target was used"),
        argument(
            "--upgrade",
            metavar="NAME",
            nargs="?",
            const="",
            action="append",
            text="look up a kernel again although the lock holds it; without a name, all of them; repeatable",
        ),
        argument("--dry-run", action="store_true", text="show what would change and write nothing"),
        argument(
            "--check", action="store_true", text="write nothing; fail if project and lock disagree or a kernel is gone"
        ),
    ),
    _lock,
)
SYNC = Command(
    "sync",
    "bring the locked builds into the cache",
    "Fetches and verifies what the lock holds for this machine, so that it loads without network. Notes on the standard "
    "error say which publishers would not be trusted at loading.",
    (
        PROJECT,
        LOCK,
        TARGETS,
        argument("--host", metavar="FILE", text="another machine, as 'kernel-hub host --json' writes it"),
        argument("--all-builds", action="store_true", text="bring every locked build"),
    ),
    _sync,
)
_NAMED: Argument = argument("repo", metavar="REPO", text="the kernel: org/name, org/name@v1 or 'org/name@>=1,<3'")
ADD = Command(
    "add",
    "declare a kernel in pyproject.toml and lock it",
    "Writes the kernel into [tool.kernel-hub.dependencies], comments and order kept, and locks the project. Without a "
    "version, the newest is taken. Nothing is written if it cannot be locked.",
    (_NAMED, PROJECT, TARGETS),
    _add,
)
REMOVE = Command(
    "remove",
    "take a kernel out of pyproject.toml and the lock",
    "Removes the kernel's line and what only it needed from the lock.",
    (argument("repo", metavar="REPO", text="the kernel: org/name"), PROJECT),
    _remove,
)
