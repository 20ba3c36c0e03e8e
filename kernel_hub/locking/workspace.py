"""A project with its lock on disk: what `kernel-hub lock`, `add` and their like work on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError, NotLockedError
from kernel_hub.locking.difference import Change, changes
from kernel_hub.locking.files import replace_whole
from kernel_hub.locking.make import KEEP, Connect, Upgrade, make_lock
from kernel_hub.locking.project import Project, find_project, read_project
from kernel_hub.locking.reading import read_lock
from kernel_hub.locking.standing import Ask
from kernel_hub.model.lock import Lock
from kernel_hub.model.lock_names import OWN
from kernel_hub.model.lock_text import format_lock
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Source
from kernel_hub.model.target import Target
from kernel_hub.settings import Settings
from kernel_hub.sources.configured import Connection, ask_directly, connect


@dataclass(frozen=True, slots=True)
class Relocked:
    """What locking came to.

    Attributes:
        path: The lock's file.
        lock: The new lock.
        changed: Whether its text differs from the file's.
        changes: What differs, by entry.
        notes: What a reader should know.
    """

    path: Path
    lock: Lock
    changed: bool
    changes: tuple[Change, ...]
    notes: tuple[str, ...]


def project_at(folder: Path) -> Project:
    """The project of a folder, or of the nearest one above it.

    Raises:
        InvalidDocumentError: If there is none, or its file is malformed.
    """
    found = find_project(folder)
    if found is None:
        raise InvalidDocumentError(
            str(folder), "is in no project: there is no pyproject.toml here or above", hint="name one: --project FOLDER"
        )
    return read_project(found)


def lock_at(path: Path) -> Lock:
    """A lock of our own format.

    Raises:
        NotLockedError: If there is none.
        InvalidDocumentError: If it cannot be read, or is of another format.
    """
    if not path.exists():
        raise NotLockedError(f"there is no lock at {path}", hint="make one: kernel-hub lock")
    found = read_lock(path)
    if not isinstance(found.lock, Lock):
        raise InvalidDocumentError(
            str(path), f"is a lock of another tool, not a {OWN}", hint="lock the project: kernel-hub lock"
        )
    return found.lock


def relock(
    project: Project,
    settings: Settings,
    *,
    targets: Iterable[Target] | None = None,
    upgrade: Upgrade = KEEP,
) -> Relocked:
    """Make a project's lock anew, keeping what fits; nothing is written yet.

    Args:
        project: The project.
        settings: Where kernels come from.
        targets: The machines to lock for; None for those of the lock that is there.
        upgrade: What is looked up again.

    Raises:
        As `make_lock`, and InvalidDocumentError if the lock that is there cannot be read.
    """
    path = project.lock_path
    previous = lock_at(path) if path.exists() else None
    machines = tuple(targets) if targets is not None else (previous.targets if previous else ())
    made = make_lock(project.declared, connector(settings), targets=machines, previous=previous, upgrade=upgrade)
    # Version control may have changed the ends of lines, which means nothing.
    before = path.read_bytes().replace(b"\r\n", b"\n") if path.exists() else None
    return Relocked(path, made.lock, before != format_lock(made.lock), changes(previous, made.lock), made.notes)


def write(relocked: Relocked) -> None:
    """Put a new lock in its place, whole.

    Raises:
        CacheError: If it cannot be written.
    """
    if relocked.changed:
        replace_whole(relocked.path, format_lock(relocked.lock))


def connector(settings: Settings, *, refresh: bool = True) -> Connect:
    """What connects repositories to their sources and caches."""
    known: dict[str, Connection] = {}

    def connected(repo: RepoId) -> Connection:
        if repo.namespace not in known:
            known[repo.namespace] = connect(settings, repo.namespace, host_facts={}, refresh=refresh)
        return known[repo.namespace]

    return connected


def asker(settings: Settings) -> Ask:
    """What asks sources directly, for what is there now."""

    def asked(repo: RepoId) -> Source | None:
        return ask_directly(settings, repo.namespace)

    return asked
