"""From a kernel's folder to its builds: read the recipes, plan, make each build, report.

Leaves out: publishing (see `kernel_hub.build.publish`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.build.machine import Machine
from kernel_hub.build.matrix import Job, Matrix, Omission, plan
from kernel_hub.build.project import Project, open_project
from kernel_hub.build.provenance import origin_of
from kernel_hub.build.toolchain import find_machine
from kernel_hub.build.workshop import Build, Progress, Workshop, alone, processors
from kernel_hub.errors import BuildError, ToolchainError
from kernel_hub.model.repo_path import ATTESTATION_FOLDER

__all__ = ["Build", "BuildReport", "Progress", "build", "choose", "matrix_of", "require_whole"]


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What came of building a kernel.

    Attributes:
        name: The kernel's name.
        version: Its major version.
        output: The folder of all builds.
        builds: In order of their labels.
        omissions: What was not built, each with its reason.
        unmade: Those of them that leave a backend that was asked for (by the recipe, or by the caller) without a build.
        dirty: Whether the sources differ from their commit; None outside git.
        notes: What a reader should know.
    """

    name: str
    version: int
    output: Path
    builds: tuple[Build, ...]
    omissions: tuple[Omission, ...]
    dirty: bool | None
    notes: tuple[str, ...]
    unmade: tuple[Omission, ...] = ()


def matrix_of(folder: Path, *, machine: Machine | None = None) -> Matrix:
    """Which builds a kernel has on a machine, without building any.

    Args:
        folder: The kernel's folder.
        machine: Where it would be built; by default here.
    """
    return plan(open_project(folder).recipes, machine or find_machine())


def build(
    folder: Path,
    *,
    output: Path | None = None,
    backends: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    parallel: int | None = None,
    machine: Machine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> BuildReport:
    """Build a kernel.

    Args:
        folder: The kernel's folder, with `build.toml`.
        output: Where the builds go, each in a folder named by its label; by default `build` in the kernel's folder.
        backends: Build for these only.
        variants: Build these labels only.
        parallel: How many compilers run at once; by default one for each processor that this process may use.
        machine: The toolchains to use; by default those found here.
        on_progress: Called after each step, from the thread that did it.

    Returns:
        What was built, and what was not and why; see `require_whole` for whether that was all.

    Raises:
        InvalidDocumentError: If a recipe is malformed or names files that are not there.
        ToolchainError: If what was asked for can't be built here, or nothing can.
        CompileError: If a compiler fails; builds that were there before stay as they were.
        CheckFailedError: If a finished build breaks a rule, e.g. needs a newer system than builds may need.
    """
    project = open_project(folder)
    target = (output or project.folder / "build").absolute()
    if target.exists() and not target.is_dir():
        raise BuildError(
            f"{target} is not a folder, so no build can be put there", hint="name another one: --output DIR"
        )
    machine = machine or find_machine()
    matrix = plan(project.recipes, machine)
    jobs = choose(matrix, project, backends, variants)
    work = target.with_name(f".{target.name}-work")
    origin = origin_of(project.folder, leaving_out=(target, work, target.parent / ATTESTATION_FOLDER))
    workshop = Workshop(project, machine, origin, work, parallel or processors(), on_progress)
    with alone(work):
        builds = tuple(workshop.make(job, target) for job in jobs)
    card = project.folder / "CARD.md"
    if card.is_file():
        shutil.copyfile(card, target / "CARD.md")
    return BuildReport(
        name=project.first.name,
        version=project.first.version,
        output=target,
        builds=builds,
        omissions=matrix.omissions,
        dirty=origin.state.dirty if origin.state else None,
        notes=tuple(note for recipe in project.recipes.values() for note in recipe.notes),
        unmade=_unmade(matrix, backends, variants),
    )


def require_whole(report: BuildReport) -> None:
    """Refuse what came of a build if a backend that was asked for has none.

    Every reason counts, be it a compiler that is not installed or a toolchain that this release does not drive: whoever
    publishes must not learn from users which builds are missing.

    Raises:
        ToolchainError: Naming each backend, why it has no build, and what to do about it.
    """
    if report.unmade:
        reasons = "\n".join(f"  {omission}" for omission in report.unmade)
        raise ToolchainError(
            f"{report.name} has backends that were not built here:\n{reasons}", hint=_way_out(report.unmade)
        )


def _unmade(matrix: Matrix, backends: Sequence[str] | None, variants: Sequence[str] | None) -> tuple[Omission, ...]:
    if variants is not None:
        return ()
    return tuple(item for item in matrix.unmade if backends is None or item.backend.value in backends)


def _way_out(omissions: Sequence[Omission]) -> str:
    return "; ".join((*_remedies(omissions), "or accept builds of the other backends alone: --allow-missing"))


def _remedies(omissions: Iterable[Omission]) -> Iterable[str]:
    return dict.fromkeys(omission.remedy for omission in omissions if omission.remedy)


def choose(
    matrix: Matrix, project: Project, backends: Sequence[str] | None, variants: Sequence[str] | None
) -> tuple[Job, ...]:
    """The jobs that were asked for; all if nothing was.

    Raises:
        ToolchainError: If one of them can't be built here, or nothing can.
        BuildError: If two of them would be one build.
    """
    jobs = matrix.jobs
    reasons = "\n".join(f"  {omission}" for omission in matrix.omissions)
    if backends is not None:
        for name in backends:
            if not any(job.backend.value == name for job in jobs):
                raise ToolchainError(
                    f"{project.first.name} has no build for backend {name!r} here\n{reasons}".rstrip(),
                    hint="; ".join(_remedies(item for item in matrix.unmade if item.backend.value == name)),
                )
        jobs = tuple(job for job in jobs if job.backend.value in backends)
    if variants is not None:
        known = {str(job.label) for job in jobs}
        for label in variants:
            if label not in known:
                here = ", ".join(sorted(known)) or "none"
                raise ToolchainError(
                    f"{project.first.name} has no build {label!r} here\n{reasons}".rstrip(), hint=f"builds here: {here}"
                )
        jobs = tuple(job for job in jobs if str(job.label) in variants)
    if not jobs:
        raise ToolchainError(
            f"nothing of {project.first.name} can be built here\n{reasons}".rstrip(),
            hint="; ".join(_remedies(matrix.omissions)),
        )
    _require_distinct(jobs)
    return jobs


def _require_distinct(jobs: Sequence[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        label = str(job.label)
        if label in seen:
            raise BuildError(f"{seen[label].document} and {job.document} both make the build {label}")
        seen[label] = job
