"""`kernel-hub build` and `variants`: from a kernel's sources to its builds, and which there would be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernel_hub.cli.check import finding_to_json, require_builder
from kernel_hub.cli.command import Command, UsageError, argument
from kernel_hub.cli.console import error_to_json, size_text
from kernel_hub.cli.ending import ending_when_asked_to
from kernel_hub.errors import KernelHubError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kernel_hub.build.matrix import Job, Matrix
    from kernel_hub.build.pipeline import BuildReport, Progress
    from kernel_hub.build.reproduce import Comparison
    from kernel_hub.cli.console import Console

    _One = Callable[[Path, Namespace, Console], "_Outcome"]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of one kernel: what to say of it, with which code to exit, and the error that says why."""

    text: str
    document: dict[str, Any]
    code: int = 0
    error: KernelHubError | None = None


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs: {arguments.jobs} is not a number of compilers from 1")
    folders = [Path(folder) for folder in arguments.folder or ["."]]
    if len(folders) > 1 and arguments.output:
        raise UsageError("--output: the builds of several kernels cannot lie in one folder", hint="leave it out")
    if not arguments.dry_run:
        require_builder()
    with ending_when_asked_to():
        return _of_all(folders, arguments, console)


def _of_all(folders: Sequence[Path], arguments: Namespace, console: Console) -> int:
    if arguments.fetch_toolkit is not None:
        _fetch(arguments, console)
    one = _dry if arguments.dry_run else _compare if arguments.check_reproducible else _build
    if len(folders) == 1:
        outcomes = [one(folders[0], arguments, console)]
        document = outcomes[0].document
    else:
        # One that fails does not keep the others from being built.
        outcomes = [_caught(one, folder, arguments, console) for folder in folders]
        document = {"kernels": [outcome.document for outcome in outcomes]}
    console.answer("\n".join(outcome.text for outcome in outcomes if outcome.text), document)
    if not console.as_json:
        console.flush()
        for outcome in outcomes:
            if outcome.error is not None:
                console.fail(outcome.error)
    return next((outcome.code for outcome in outcomes if outcome.code), 0)


def _caught(one: _One, folder: Path, arguments: Namespace, console: Console) -> _Outcome:
    try:
        outcome = one(folder, arguments, console)
    except KernelHubError as error:
        outcome = _Outcome("", error_to_json(error), error.exit_code, error)
    return replace(outcome, document={"folder": str(folder)} | outcome.document)


def _dry(folder: Path, arguments: Namespace, _console: Console) -> _Outcome:
    from kernel_hub.build.pipeline import choose, matrix_of
    from kernel_hub.build.project import open_project

    matrix = matrix_of(folder)
    jobs = choose(matrix, open_project(folder), arguments.backend, arguments.variant)
    return _Outcome(_plan_text(matrix, jobs), _plan_to_json(matrix, jobs))


def _build(folder: Path, arguments: Namespace, console: Console) -> _Outcome:
    from pathlib import Path

    from kernel_hub.build.pipeline import build, require_whole
    from kernel_hub.errors import ToolchainError

    report = build(
        folder,
        output=Path(arguments.output) if arguments.output else None,
        backends=arguments.backend,
        variants=arguments.variant,
        parallel=arguments.jobs,
        on_progress=_progress(console),
    )
    try:
        if not arguments.allow_missing:
            require_whole(report)
    except ToolchainError as error:
        # What was built stays, so it is told as well.
        return _Outcome(_text(report), _to_json(report) | error_to_json(error), error.exit_code, error)
    return _Outcome(_text(report), _to_json(report))


def _fetch(arguments: Namespace, console: Console) -> None:
    from kernel_hub.build.toolchain import find_machine
    from kernel_hub.build.toolkits import fetch_toolkit, wanted_toolkits
    from kernel_hub.settings import load_build_settings

    settings = load_build_settings()
    for name in wanted_toolkits(arguments.fetch_toolkit, arguments.variant or (), find_machine(settings)):
        if console.is_watched:
            console.notice(f"fetching {name} into {settings.toolkits}, once (CUDA: about 300 MB)")
        fetch_toolkit(name, settings.toolkits, offline=settings.offline)


def _compare(folder: Path, arguments: Namespace, _console: Console) -> _Outcome:
    from kernel_hub.build.reproduce import compare_builds
    from kernel_hub.errors import BuildError

    comparison = compare_builds(folder, backends=arguments.backend, variants=arguments.variant, parallel=arguments.jobs)
    code = 0 if comparison.identical else BuildError.exit_code
    return _Outcome(_comparison_text(comparison), _comparison_to_json(comparison), code)


def _variants(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.build.pipeline import matrix_of

    matrix = matrix_of(Path(arguments.folder))
    console.answer(_plan_text(matrix, matrix.jobs), _plan_to_json(matrix, matrix.jobs))
    return 0


def _plan_text(matrix: Matrix, jobs: Sequence[Job]) -> str:
    lines = [f"{job.label} ({job.document})" + (f", {job.remark}" if job.remark else "") for job in jobs]
    lines.extend(f"not: {item}" + (f"; {item.remedy}" if item.remedy else "") for item in matrix.omissions)
    return "\n".join(lines)


def _plan_to_json(matrix: Matrix, jobs: Sequence[Job]) -> dict[str, Any]:
    return {
        "variants": [
            {
                "label": str(job.label),
                "backend": job.backend.value,
                "archs": list(job.archs),
                "recipe": job.document,
                "remark": job.remark or None,
            }
            for job in jobs
        ],
        "omissions": [
            {
                "backend": omission.backend.value,
                "recipe": omission.document,
                "reason": omission.reason,
                "remedy": omission.remedy or None,
            }
            for omission in matrix.omissions
        ],
    }


def _comparison_text(comparison: Comparison) -> str:
    if comparison.identical:
        return "\n".join(f"{label}: built twice, every byte the same" for label in comparison.labels)
    return "\n".join(str(difference) for difference in comparison.differences)


def _comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "identical": comparison.identical,
        "labels": list(comparison.labels),
        "differences": [
            {"label": item.label, "path": item.path, "explanation": item.explanation} for item in comparison.differences
        ],
    }


def _progress(console: Console) -> Callable[[Progress], None] | None:
    if not console.is_watched:
        return None

    def show(progress: Progress) -> None:
        console.notice(f"{progress.label}: {progress.step} ({progress.done} of {progress.total})")

    return show


def _text(report: BuildReport) -> str:
    dirty = " from changed sources" if report.dirty else ""
    lines = [f"{report.name} version {report.version}{dirty}: {report.output}"]
    for build in report.builds:
        lines.append(f"  built: {build.label} ({size_text(build.size_bytes)}, {build.seconds:.1f} s)")
        lines.extend(f"    finding: {finding}" for finding in build.findings)
    lines.extend(f"  not: {omission}" for omission in report.omissions)
    lines.extend(f"  note: {note}" for note in report.notes)
    return "\n".join(lines)


def _to_json(report: BuildReport) -> dict[str, Any]:
    return {
        "name": report.name,
        "version": report.version,
        "output": str(report.output),
        "builds": [
            {
                "label": build.label,
                "folder": str(build.folder),
                "id": build.id,
                "size_bytes": build.size_bytes,
                "seconds": round(build.seconds, 3),
                "findings": [finding_to_json(finding) for finding in build.findings],
            }
            for build in report.builds
        ],
        "omissions": [str(omission) for omission in report.omissions],
        "dirty": report.dirty,
        "notes": list(report.notes),
    }


_FOLDER = argument(
    "folder", metavar="DIR", nargs="?", default=".", text="the folder with build.toml; default: this one"
)
BUILD = Command(
    "build",
    "build a kernel from its sources",
    "Build every variant of a kernel that this machine can build, each into a folder named by its label, with metadata "
    "and digests. Breaches of rules that publishing would refuse are listed with it. Exits with 8 if a compiler fails, "
    "or if a backend that the recipe or --backend names has no build here, be it for lack of a compiler or because "
    "nothing here can build it: the others are built all the same, and each that is missing is listed with the reason. "
    "With --allow-missing that is no failure, as long as there is a build. Of several folders each is built, even if "
    "another fails.",
    (
        argument(
            "folder",
            metavar="DIR",
            nargs="*",
            text="the folders with build.toml, each built for itself; default: this one",
        ),
        argument("--output", metavar="DIR", text="where the builds go; default: build/ beside build.toml"),
        argument("--backend", metavar="NAME", action="append", text="build for this backend only; may be repeated"),
        argument("--variant", metavar="LABEL", action="append", text="build this label only; may be repeated"),
        argument(
            "--fetch-toolkit",
            metavar="RELEASE",
            action="append",
            nargs="?",
            const="",
            text="install a CUDA toolkit, such as 13.2, or cutlass_3_8, from NVIDIA's Python packages into a folder of our "
            "own, unless it is here; may be repeated; without RELEASE, those that --variant needs, else 13.0 and 13.2",
        ),
        argument("--jobs", metavar="N", type=int, text="how many compilers run at once; default: one per processor"),
        argument("--allow-missing", action="store_true", text="succeed without the backends that cannot be built here"),
        argument("--dry-run", action="store_true", text="build nothing, only list what would be built and what not"),
        argument(
            "--check-reproducible",
            action="store_true",
            text="build twice elsewhere and compare every byte; exits with 8 if one differs",
        ),
    ),
    _run,
)
VARIANTS = Command(
    "variants",
    "list the builds that a kernel's sources have here",
    "List the builds that 'kernel-hub build' would make on this machine, and the backends of the recipe that have none "
    "here with the reason and what to do about it. Builds nothing; the same as 'build --dry-run', but exits with 0 also "
    "if nothing can be built.",
    (_FOLDER,),
    _variants,
)
