"""`kernel-hub build`: from a kernel's sources to its builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import Command, UsageError, argument
from kernel_hub.cli.console import size_text

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from kernel_hub.build.pipeline import BuildReport, Progress
    from kernel_hub.cli.console import Console


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.build.pipeline import build

    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError(f"--jobs: {arguments.jobs} is not a number of compilers from 1")
    report = build(
        Path(arguments.folder),
        output=Path(arguments.output) if arguments.output else None,
        backends=arguments.backend,
        variants=arguments.variant,
        parallel=arguments.jobs,
        on_progress=_progress(console),
    )
    console.answer(_text(report), _to_json(report))
    return 0


def _progress(console: Console) -> Callable[[Progress], None] | None:
    if not console.is_watched:
        return None

    def show(progress: Progress) -> None:
        console.notice(f"{progress.label}: {progress.step} ({progress.done} of {progress.total})")

    return show


def _text(report: BuildReport) -> str:
    dirty = " from changed sources" if report.dirty else ""
    lines = [f"{report.name} version {report.version}{dirty}: {report.output}"]
    lines.extend(
        f"  built: {build.label} ({size_text(build.size_bytes)}, {build.seconds:.1f} s)" for build in report.builds
    )
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
            }
            for build in report.builds
        ],
        "omissions": [str(omission) for omission in report.omissions],
        "dirty": report.dirty,
        "notes": list(report.notes),
    }


BUILD = Command(
    "build",
    "build a kernel from its sources",
    "Build every variant of a kernel that this machine can build, each into a folder named by its label, with metadata "
    "and digests. What cannot be built here is listed with its reason; that alone is no failure. Exits with 8 if a "
    "compiler fails, or if what was asked for cannot be built here.",
    (
        argument("folder", metavar="DIR", nargs="?", default=".", text="the folder with build.toml; default: this one"),
        argument("--output", metavar="DIR", text="where the builds go; default: build/ beside build.toml"),
        argument("--backend", metavar="NAME", action="append", text="build for this backend only; may be repeated"),
        argument("--variant", metavar="LABEL", action="append", text="build this label only; may be repeated"),
        argument("--jobs", metavar="N", type=int, text="how many compilers run at once; default: one per processor"),
    ),
    _run,
)
