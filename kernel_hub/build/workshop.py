"""Making one build: compile its sources, link it for old systems, put it together, check it, move it into place.

Leaves out which builds there are (see `kernel_hub.build.pipeline`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.build.assemble import assemble, module_id, put_in_place
from kernel_hub.build.audit.check import require_passed
from kernel_hub.build.audit.finding import BUILDS_ANYWAY, Finding
from kernel_hub.build.audit.known import find_knowledge
from kernel_hub.build.audit.layout import check_build, native_name
from kernel_hub.build.built_with import Tool
from kernel_hub.build.command import Floor, Layout, Step, compile_steps, framework_libraries, link_step
from kernel_hub.build.compile import run_step, run_steps
from kernel_hub.build.cuda import is_inert_path
from kernel_hub.build.floor import prepare_floor, prepare_placeholders
from kernel_hub.build.generated import REGISTRATION_HEADER
from kernel_hub.build.identity import compiler_identity, header_digests, rocm_identity, toolkit_identity
from kernel_hub.build.machine import Compiler, Machine
from kernel_hub.build.matrix import Job, NativeJob
from kernel_hub.build.project import Project
from kernel_hub.build.provenance import SourceOrigin
from kernel_hub.build.records import Records
from kernel_hub.build.toolchain import child_environment, library_finder
from kernel_hub.build.turns import in_turn
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
        findings: Rules that it breaks and that do not keep it from being built; publishing refuses most of them.
    """

    label: str
    folder: Path
    id: str
    size_bytes: int
    seconds: float
    findings: tuple[Finding, ...] = ()


def processors() -> int:
    """How many processors this program may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def alone(work: Path) -> Iterator[None]:
    """Be the only one who uses a working folder; whoever comes second waits."""
    _prepare(work)
    with in_turn(work / "lock"):
        yield


def _prepare(work: Path) -> None:
    """Make a working folder: kept between builds, and never part of anyone's commit."""
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n", encoding="ascii")
    (work / "tmp").mkdir(exist_ok=True)


class Workshop:
    """Makes one kernel's builds on one machine; what they share is made once.

    Args:
        project: The kernel's folder.
        machine: The toolchains.
        origin: Where the sources come from.
        work: A folder on the output's disk, kept between builds.
        parallel: How many compilers run at once.
        on_progress: Called after each step, from the thread that did it.
    """

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
        self._known = find_knowledge(machine.torch)
        self._floors: dict[str, Floor] = {}

    def make(self, job: Job, output: Path) -> Build:
        """Make one build in the folder of all builds.

        Raises:
            CompileError: If a compiler fails.
            CheckFailedError: If the build breaks a rule; the one that was there before stays.
        """
        start_ns = time.monotonic_ns()
        _prepare(self._work)
        label = str(job.label)
        work = self._work / label
        library = self._compile(job, work) if isinstance(job, NativeJob) else None
        stage = work / "stage"
        tools = self._tools_of(job) if isinstance(job, NativeJob) else ()
        headers = header_digests(job.headers) if isinstance(job, NativeJob) else {}
        made = assemble(
            job, self._project.folder, self._origin, library=library, stage=stage, tools=tools, headers=headers
        )
        findings = check_build(stage, label, self._known)
        require_passed(label, findings, tolerated=BUILDS_ANYWAY)
        put_in_place(stage, output / label)
        _require_sound(output / label, made.metadata)
        self._tell(label, "assemble", 1, 1)
        seconds = (time.monotonic_ns() - start_ns) / 1e9
        return Build(label, output / label, made.metadata.id, made.size_bytes, seconds, findings)

    def _compile(self, job: NativeJob, work: Path) -> Path:
        compiler = self._compiler_of(job)
        name = module_id(job, self._origin)
        library = work / native_name(job.label, name)
        layout = Layout(self._project.folder, work / "include", work / "objects", library)
        layout.generated.mkdir(parents=True, exist_ok=True)
        (layout.generated / "registration.h").write_text(REGISTRATION_HEADER, encoding="ascii")
        _require_inert(job, layout)
        logs = work / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        environment = child_environment(self._work / "tmp", compiler.path, *_device_compilers(job))
        cache = self._machine.compiler_cache
        launcher = () if cache is None else (str(cache.path),)
        environment |= {} if cache is None else cache.environment
        steps = compile_steps(job, name, layout, compiler.path, self._machine.python_include, launcher=launcher)
        if not steps:
            raise BuildError(f"{job.document} names no source for {job.label}")
        count = self._counter(str(job.label), len(steps) + 1)
        records = Records(json.dumps([tool.to_json() for tool in self._tools_of(job)]))
        current = [step for step in steps if records.is_current(step)]
        outdated = [step for step in steps if step not in current]
        for step in current:
            count(step)
        for step in outdated:
            records.forget(step)

        def finish(step: Step) -> None:
            records.remember(step)
            count(step)

        run_steps(outdated, environment, logs, parallel=self._parallel, on_done=finish)
        for old in work.glob(f"*{layout.library.suffix}"):
            old.unlink()
        objects = [step.output for step in steps]
        floor, libraries = self._floor_of(job, environment), self._libraries_of(job, environment)
        link = link_step(job, layout, objects, compiler.path, floor, libraries)
        run_steps([link], environment, logs, parallel=1, on_done=count)
        return layout.library

    def _tools_of(self, job: NativeJob) -> tuple[Tool, ...]:
        """The compilers that a job needs; another digest of one makes every step outdated."""
        found = compiler_identity(self._compiler_of(job))
        if job.toolkit is not None:
            return found, toolkit_identity(job.toolkit)
        return (found, rocm_identity(job.rocm)) if job.rocm is not None else (found,)

    def _compiler_of(self, job: NativeJob) -> Compiler:
        compiler = job.cross or self._machine.compiler
        if compiler is None:
            raise ToolchainError(f"{job.label} needs a C++ compiler")
        return compiler

    def _floor_of(self, job: NativeJob, environment: dict[str, str]) -> Floor:
        cpu, compiler = job.label.cpu, self._compiler_of(job)
        if cpu not in self._floors:
            folder = self._work / "floor" if job.cross is None else self._work / f"floor-{cpu}"
            find, run = library_finder(compiler), self._runner(environment)
            self._floors[cpu] = prepare_floor(compiler, cpu, folder, find, run)
        return self._floors[cpu]

    def _libraries_of(self, job: NativeJob, environment: dict[str, str]) -> Path:
        """Where to link with the framework's libraries; those that are installed are for this machine's processor."""
        if job.cross is None:
            return job.sdk.libraries
        folder = self._work / f"placeholders-{job.label.cpu}"
        return prepare_placeholders(job.cross, framework_libraries(job), folder, self._runner(environment))

    def _runner(self, environment: dict[str, str]) -> Callable[[Step], None]:
        def run(step: Step) -> None:
            run_step(step, environment, self._work / "logs" / f"{step.name.replace(' ', '-')}.log")

        return run

    def _counter(self, label: str, total: int) -> Callable[[Step], None]:
        """A function that tells of each step that is done; steps are done in several threads."""
        lock, done = threading.Lock(), 0

        def count(step: Step) -> None:
            nonlocal done
            with lock:
                done += 1
                self._tell(label, step.name, done, total)

        return count

    def _tell(self, label: str, step: str, done: int, total: int) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(label, step, done, total))


def _require_sound(folder: Path, metadata: Metadata) -> None:
    """Read a build back and compare it with what was meant."""
    written = Metadata.parse((folder / "metadata.json").read_bytes())
    if written != metadata or manifest_of(folder) != metadata.manifest:
        raise BuildError(f"{folder} was changed while it was made")


def _device_compilers(job: NativeJob) -> list[Path]:
    return [*([job.toolkit.nvcc] if job.toolkit else []), *([job.rocm.hipcc] if job.rocm else [])]


def _require_inert(job: NativeJob, layout: Layout) -> None:
    toolkit = job.toolkit or job.rocm
    if toolkit is None:
        return
    driver = "nvcc" if job.rocm is None else "hipcc"
    libraries = [library.root for library in job.headers]
    for path in (layout.folder, layout.objects, job.sdk.root, toolkit.root, *libraries):
        if not is_inert_path(path):
            raise ToolchainError(
                f"{job.label}: {driver} would hand the name of {path} to a shell, which does not take it for a name",
                hint="move it to a folder whose name has letters, digits, '-', '_' and '.' only",
            )
