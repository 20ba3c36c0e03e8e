"""The lock that goes into a distribution's metadata when a project is built, whatever builds it.

`kernel_hub.locking.setuptools_hook` and `hatchling_hook` put it there; `kernel_hub.locking.lookup` finds it again.
"""

from __future__ import annotations

from pathlib import Path

from kernel_hub.errors import LockOutdatedError, NotLockedError
from kernel_hub.locking.check import disagreements
from kernel_hub.locking.project import PROJECT_FILE, read_project
from kernel_hub.locking.workspace import lock_at


def lock_to_ship(folder: Path) -> Path | None:
    """The lock of the project in `folder`; None if the project has nothing to do with kernels.

    Raises:
        NotLockedError: If the project declares kernels in our table and has no lock.
        LockOutdatedError: If project and lock disagree.
        InvalidDocumentError: If either is malformed.
    """
    if not (folder / PROJECT_FILE).is_file():
        return None
    project = read_project(folder)
    if not project.lock_path.is_file():
        if project.declares_own:
            raise NotLockedError(
                f"{project.folder} declares kernels, but has no {project.lock_path.name} to put into its metadata",
                hint="lock them before you build: kernel-hub lock",
            )
        return None
    problems = disagreements(project.declared, lock_at(project.lock_path))
    if problems:
        raise LockOutdatedError(
            f"{project.lock_path} does not agree with the project: {'; '.join(problems)}",
            problems=problems,
            hint="bring it up to date before you build: kernel-hub lock",
        )
    return project.lock_path
