"""Finding the lock that applies to a call: where it may lie, and in which order the places are asked.

1. a file that the call names: then no other is asked;
2. the lock by which the kernel was loaded that is being imported just now; else the one that `KERNEL_HUB_LOCK` names, and
   then no other is asked;
3. the metadata of the installed distribution that the calling code belongs to (`kernel-hub.lock`, else the ecosystem's
   `kernels.lock`), or, if the code is not installed, the project that it lies in: an editable install is that;
4. the project of the working folder.

Of 3 and 4, the first lock that holds the kernel is used. A lock that cannot be read is an error wherever it lies, never a
reason to load something unlocked.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_hub.errors import NotLockedError, RepositoryNotFoundError
from kernel_hub.model.lock_names import OWN, PEER
from kernel_hub.model.value import dataclass
from kernel_hub.settings import LOCK_VARIABLE, Settings

if TYPE_CHECKING:
    from kernel_hub.model.lock_pin import FoundLock, LockedPin
    from kernel_hub.model.requirement import RepoId, Requirement
    from kernel_hub.registries import Registry

# Where build backends put files of a distribution's metadata: setuptools beside it, hatchling in a folder of its own.
METADATA_PLACES = (OWN, f"extra_metadata/{OWN}", PEER)
_INSTALLED_IN = frozenset({"site-packages", "dist-packages"})
_LOG = logging.getLogger("kernel_hub")
_ACTIVE: ContextVar[FoundLock | None] = ContextVar("kernel_hub_lock", default=None)


@dataclass(frozen=True, slots=True)
class Caller:
    """The code that asks for a kernel.

    Attributes:
        module: The name of its module, e.g. "app.model"; "__main__" for a script.
        file: The module's file, if it has one.
    """

    module: str
    file: str | None

    @property
    def place(self) -> tuple[Path, str] | None:
        """The folder that its top-level package is imported from, and its file below that; None if it has no file."""
        if self.file is None:
            return None
        path = Path(self.file).absolute()
        names = self.module.split(".")
        depth = len(names) if path.stem == "__init__" else len(names) - 1
        if self.module == "__main__" or depth >= len(path.parents):
            depth = 0
        root = path.parents[depth]
        return root, path.relative_to(root).as_posix()


def calling_code(package: str) -> Caller | None:
    """The nearest caller outside a package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame = frame.f_back
    names = frame.f_globals
    spec = names.get("__spec__")
    module = (
        spec.name if spec is not None and names.get("__name__") == "__main__" else names.get("__name__", "__main__")
    )
    return Caller(module, names.get("__file__"))


@contextlib.contextmanager
def importing(pin: LockedPin | None) -> Iterator[None]:
    """While the block runs, kernels that the imported code asks for are those of the same lock."""
    token = _ACTIVE.set(pin.found if pin is not None else _ACTIVE.get())
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def find_pin(
    settings: Settings,
    requirement: Requirement,
    *,
    lock_file: Path | None = None,
    caller: Caller | None = None,
    required: bool = False,
) -> LockedPin | None:
    """What the lock that applies says of a kernel.

    Args:
        settings: Where the working folder is, and what the environment says of locks.
        requirement: The kernel, and what is wanted of it.
        lock_file: The lock that the call names.
        caller: The code that asks.
        required: Whether it is an error that no lock holds the kernel.

    Raises:
        NotLockedError: If none does, and one must.
        InvalidDocumentError: If a lock cannot be read.
    """
    asked = []
    for found in _places(settings, lock_file, caller):
        pin = found.pin(requirement)
        if pin is not None:
            return pin
        asked.append(found)
    if required or settings.locked_only:
        raise _not_locked(settings, requirement, asked)
    for found in asked:
        if found.lock.named(requirement.repo):
            _LOG.warning("%s %s; %s is loaded unlocked", found, found.says_of(requirement.repo), requirement)
    return None


def binding_of(settings: Settings, locked: LockedPin) -> Registry | None:
    """The registry that the lock's own project binds the kernel's namespace to; None if there is no need of one.

    A lock is also found from another folder than its project's, where the project's bindings do not hold. What was locked
    in a registry must never be asked for on the Hub: whoever took the name there could answer.

    Raises:
        RepositoryNotFoundError: If it was bound when the lock was made, and now nothing binds it.
        InvalidDocumentError: If the project's bindings cannot be read.
    """
    namespace = locked.pin.repo.namespace
    if not locked.was_bound or settings.registry_of(namespace) is not None:
        return None
    project = locked.found.path.with_name("pyproject.toml")
    if project.is_file():
        # Imported here, because few locks are found from elsewhere.
        from kernel_hub.registries import registries_of_project, registry_of

        found = registry_of(registries_of_project(project), namespace)
        if found is not None:
            return found
    raise unbound(locked.pin.repo, str(locked.found))


def unbound(repo: RepoId, lock: str) -> RepositoryNotFoundError:
    """The error for what was locked in a registry and now would be asked for on the Hub.

    Args:
        repo: The kernel.
        lock: The lock.
    """
    namespace = repo.namespace
    return RepositoryNotFoundError(
        f"{repo} cannot be looked up: the lock {lock} was made with {namespace!r} bound to a registry, "
        "and here nothing binds it",
        hint=f"bind {namespace!r} to that registry here too: KERNEL_HUB_REGISTRIES='{namespace}=URL', or "
        f"[tool.kernel-hub.registries] in the pyproject.toml beside the lock",
    )


def _read(path: Path, found_by: str) -> FoundLock:
    # Imported here, because every load looks for a lock and few find one.
    from kernel_hub.locking.reading import read_lock

    return read_lock(path, found_by=found_by)


def _places(settings: Settings, lock_file: Path | None, caller: Caller | None) -> Iterator[FoundLock]:
    if lock_file is not None:
        yield _read(lock_file, "named by the call")
        return
    active = _ACTIVE.get()
    if active is not None:
        yield active
    if settings.lock_file is not None:
        yield _read(settings.lock_file, LOCK_VARIABLE)
        return
    seen = set()
    for path, found_by in (*_places_of_caller(caller), *_project_lock(settings.folder)):
        if path not in seen:
            seen.add(path)
            yield _read(path, found_by)


def _places_of_caller(caller: Caller | None) -> Iterator[tuple[Path, str]]:
    place = caller.place if caller is not None else None
    if caller is None or place is None:
        return
    root, file = place
    for path in _locks_of_distributions(root):
        if _lists(path, file):
            yield path, f"metadata of the distribution that {caller.module} belongs to"
    if not _INSTALLED_IN & set(root.parts):
        yield from _project_lock(root)


def _project_lock(folder: Path) -> Iterator[tuple[Path, str]]:
    """The lock in a folder, or beside the nearest project file upwards that has one."""
    for place in (folder, *folder.parents):
        path = place / OWN
        # Above the folder itself, a stray file is not taken for a project's lock.
        if path.is_file() and (place == folder or (place / "pyproject.toml").is_file()):
            yield path, f"the project in {place}"
            return


@lru_cache(maxsize=64)
def _locks_of_distributions(root: Path) -> tuple[Path, ...]:
    """The locks in the metadata of distributions installed in a folder."""
    try:
        names = sorted(entry.name for entry in root.iterdir() if entry.name.endswith(".dist-info"))
    except OSError:
        return ()
    candidates = (
        next((root / name / place for place in METADATA_PLACES if (root / name / place).is_file()), None)
        for name in names
    )
    return tuple(path for path in candidates if path is not None)


@lru_cache(maxsize=256)
def _lists(lock: Path, file: str) -> bool:
    """Whether the distribution in whose metadata a lock lies installed a file."""
    import csv

    folder = next(place for place in lock.parents if place.suffix == ".dist-info")
    try:
        with (folder / "RECORD").open(encoding="utf-8", newline="") as record:
            return any(row and row[0] == file for row in csv.reader(record))
    except OSError:
        return False


def _not_locked(settings: Settings, requirement: Requirement, asked: list[FoundLock]) -> NotLockedError:
    if asked:
        said = "; ".join(f"{found} {found.says_of(requirement.repo)}" for found in asked)
    else:
        said = f"no lock was found from {settings.folder} upwards"
    why = "" if not settings.locked_only else ", and KERNEL_HUB_LOCKED allows only what is locked"
    return NotLockedError(
        f"{requirement} is not locked: {said}{why}",
        hint=f"declare and lock it: kernel-hub add {requirement}",
    )
