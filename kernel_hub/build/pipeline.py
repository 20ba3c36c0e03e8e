"""From a kernel's folder to its builds: read, plan, compile, check the floor, assemble. Ends by reading its own output.

Leaves out: publishing (see `kernel_hub.build.publish`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.build.assemble import Assembled, assemble, module_id
from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.audit.floor import FLOOR, above_floor
from kernel_hub.build.command import Floor, Layout, Step, compile_steps, link_step
from kernel_hub.build.compile import run_step, run_steps
from kernel_hub.build.floor import prepare_floor
from kernel_hub.build.generated import REGISTRATION_HEADER
from kernel_hub.build.machine import Machine
from kernel_hub.build.matrix import Job, Matrix, NativeJob, Omission, plan
from kernel_hub.build.project import Project, open_project
from kernel_hub.build.provenance import SourceOrigin, origin_of
from kernel_hub.build.toolchain import child_environment, find_machine, library_finder
from kernel_hub.errors import BuildError, ToolchainError
from kernel_hub.model.metadata import Metadata
from kernel_hub.tree import manifest_of


@dataclass(frozen=True, slots=True)
class Progress:
    """Something that was done.

    Attributes:
        label: The build it belongs to.
        step: What it was.
        done: How many steps of the build are done.
        total: How many it has.
    """

    label: str
    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Build:
    """A build that was made.

    Attributes:
        label: What it is called.
        folder: Where it lies.
        id: The name of its module and operator namespace.
        size_bytes: The sum of its files' lengths.
        seconds: How long it took.
    """

    label: str
    folder: Path
    id: str
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What came of building a kernel.

    Attributes:
        name: The kernel's name.
        version: Its major version.
        output: The folder of all builds.
        builds: In order of their labels.
        omissions: What was not built, each with its reason.
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
        What was built, and what was not and why.

    Raises:
        InvalidDocumentError: If a recipe is malformed or names files that are not there.
        ToolchainError: If what was asked for can't be built here, or nothing can.
        CompileError: If a compiler fails; builds that were there before stay as they were.
        BuildError: If a finished library needs a newer system than builds may need.
    """
    project = open_project(folder)
    target = (output or project.folder / "build").absolute()
    machine = machine or find_machine()
    matrix = plan(project.recipes, machine)
    jobs = _chosen(matrix, project, backends, variants)
    _require_distinct(jobs)
    work = target.with_name(f".{target.name}-work")
    _prepare(work)
    origin = origin_of(project.folder, leaving_out=(target, work))
    workshop = _Workshop(project, machine, origin, work, parallel or len(os.sched_getaffinity(0)), on_progress)
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
    )


def _chosen(
    matrix: Matrix, project: Project, backends: Sequence[str] | None, variants: Sequence[str] | None
) -> tuple[Job, ...]:
    jobs = matrix.jobs
    reasons = "\n".join(f"  {omission}" for omission in matrix.omissions)
    if backends is not None:
        for name in backends:
            if not any(job.backend.value == name for job in jobs):
                raise ToolchainError(f"{project.first.name} has no build for backend {name!r} here\n{reasons}".rstrip())
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
        raise ToolchainError(f"nothing of {project.first.name} can be built here\n{reasons}".rstrip())
    return jobs


def _require_distinct(jobs: Sequence[Job]) -> None:
    seen: dict[str, Job] = {}
    for job in jobs:
        label = str(job.label)
        if label in seen:
            raise BuildError(f"{seen[label].document} and {job.document} both make the build {label}")
        seen[label] = job


def _prepare(work: Path) -> None:
    """Make the working folder: kept between builds, and never part of anyone's commit."""
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n", encoding="ascii")
    (work / "tmp").mkdir(exist_ok=True)


class _Workshop:
    """One kernel's builds on one machine; what they share is made once."""

    def __init__(
        self,
        project: Project,
        machine: Machine,
        origin: SourceOrigin,
        work: Path,
        parallel: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._project = project
        self._machine = machine
        self._origin = origin
        self._work = work
        self._parallel = parallel
        self._on_progress = on_progress
        self._floor: Floor | None = None

    def make(self, job: Job, output: Path) -> Build:
        start_ns = time.monotonic_ns()
        label = str(job.label)
        work = self._work / label
        library = self._compile(job, work) if isinstance(job, NativeJob) else None
        made = assemble(job, self._project.folder, self._origin, library=library, stage=work / "stage", output=output)
        _require_sound(made)
        self._tell(label, "assemble", 1, 1)
        seconds = (time.monotonic_ns() - start_ns) / 1e9
        return Build(label, made.folder, made.metadata.id, made.size_bytes, seconds)

    def _compile(self, job: NativeJob, work: Path) -> Path:
        compiler, include = self._machine.compiler, self._machine.python_include
        if compiler is None or include is None:
            raise ToolchainError(f"{job.label} needs a C++ compiler and Python.h")
        name = module_id(job, self._origin)
        layout = Layout(self._project.folder, work / "include", work / "objects", work / f"{name}.abi3.so")
        layout.generated.mkdir(parents=True, exist_ok=True)
        (layout.generated / "registration.h").write_text(REGISTRATION_HEADER, encoding="ascii")
        logs = work / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        environment = child_environment(self._work / "tmp", compiler.path)
        steps = compile_steps(job, name, layout, compiler.path, include)
        if not steps:
            raise BuildError(f"{job.document} names no source for {job.label}")
        total, done = len(steps) + 1, 0

        def count(step: Step) -> None:
            nonlocal done
            done += 1
            self._tell(str(job.label), step.name, done, total)

        run_steps(steps, environment, logs, parallel=self._parallel, on_done=count)
        link = link_step(job, layout, [step.output for step in steps], compiler.path, self._floor_of(environment))
        run_steps([link], environment, logs, parallel=1, on_done=count)
        _require_floor(layout.library)
        return layout.library

    def _floor_of(self, environment: dict[str, str]) -> Floor:
        compiler = self._machine.compiler
        if self._floor is None and compiler is not None:
            folder = self._work / "floor"

            def run(step: Step) -> None:
                run_step(step, environment, folder / f"{step.name.replace(' ', '-')}.log")

            self._floor = prepare_floor(compiler, self._machine.cpu, folder, library_finder(compiler), run)
        if self._floor is None:
            raise ToolchainError("there is no C++ compiler")
        return self._floor

    def _tell(self, label: str, step: str, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(label, step, done, total))


def _require_floor(library: Path) -> None:
    too_new = above_floor(read_library(library).undefined)
    if too_new:
        limits = ", ".join(f"{name} {version}" for name, version in FLOOR.items())
        raise BuildError(
            f"{library.name} needs a newer system than builds may need ({limits}): {', '.join(map(str, too_new))}",
            hint="avoid what brings these symbols in, or build with an older compiler",
        )


def _require_sound(made: Assembled) -> None:
    """Read a build back and compare it with what was meant."""
    written = Metadata.parse((made.folder / "metadata.json").read_bytes())
    if written != made.metadata or manifest_of(made.folder) != made.metadata.manifest:
        raise BuildError(f"{made.folder} was changed while it was made")
