"""Build every kernel of this folder and publish all of its builds: `python -m registry.publish --to TARGET`.

TARGET is a registry folder, made if it is absent, or the URL of a Hub. Builds that this machine has no toolchain for are
named, and are an error unless `--allow-missing` says that the others are enough.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.build.pipeline import BuildReport, Progress, build, require_whole
from kernel_hub.build.publish import PublishReport, publish
from kernel_hub.cli.console import error_to_json
from kernel_hub.errors import KernelHubError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Sink
from kernel_hub.settings import load_settings
from kernel_hub.sources.target import open_sink

REGISTRY = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Published:
    """What came of one kernel."""

    built: BuildReport
    report: PublishReport


def kernels(root: Path = REGISTRY) -> list[Path]:
    """The folders of all kernels, by name."""
    return sorted(path.parent for path in root.glob("*/build.toml"))


def publish_all(
    folders: Sequence[Path],
    sink: Sink,
    namespace: str,
    *,
    allow_dirty: bool = False,
    allow_missing: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> list[Published]:
    """Build and publish kernels, one after the other.

    Args:
        folders: The kernels' sources; the builds go to `build/` of each.
        sink: Where to.
        namespace: What the repositories' names begin with.
        allow_dirty: Also publish builds whose sources differ from their commit.
        allow_missing: Also publish if a backend of a recipe has no build here.
        on_progress: Called after each step of a build.

    Raises:
        KernelHubError: The first that a build or a publication raises; kernels before it are published then.
    """
    done = []
    for folder in folders:
        built = build(folder, on_progress=on_progress)
        if not allow_missing:
            require_whole(built)
        report = publish(folder, sink, RepoId(namespace, folder.name), allow_dirty=allow_dirty)
        done.append(Published(built, report))
    return done


def main(arguments: list[str] | None = None) -> int:
    """Exits with 0, or with the code of the error that ended it."""
    names = [folder.name for folder in kernels()]
    parser = argparse.ArgumentParser(prog="python -m registry.publish", description=main.__doc__)
    parser.add_argument("--to", required=True, metavar="TARGET", help="a registry folder, or the URL of a Hub")
    parser.add_argument("--namespace", default="local", help="what the repositories' names begin with; default: local")
    parser.add_argument("--only", action="append", choices=names, help="this kernel; may be given several times")
    parser.add_argument("--allow-dirty", action="store_true", help="publish builds of sources that were not committed")
    parser.add_argument("--allow-missing", action="store_true", help="publish although a backend has no build here")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    given = parser.parse_args(arguments)
    shown = sys.stderr.isatty()

    def progress(step: Progress) -> None:
        print(f"{step.label}: {step.done} of {step.total}, {step.step}", file=sys.stderr)

    try:
        done = publish_all(
            [REGISTRY / name for name in given.only or names],
            open_sink(load_settings(), given.to),
            given.namespace,
            allow_dirty=given.allow_dirty,
            allow_missing=given.allow_missing,
            on_progress=progress if shown else None,
        )
    except KernelHubError as error:
        if given.json:
            print(json.dumps(error_to_json(error)))
        else:
            hint = f"\nhint: {error.hint()}" if error.hint() else ""
            print(f"error: {error.message}{hint}", file=sys.stderr)
        return error.exit_code
    rows = [
        {
            "repo": str(one.report.repo),
            "version": one.report.version,
            "commit": one.report.commit,
            "status": one.report.status.value,
            "labels": list(one.report.labels),
            "omissions": [str(omission) for omission in one.built.omissions],
            "notes": list(one.report.notes),
        }
        for one in done
    ]
    if given.json:
        print(json.dumps({"target": given.to, "kernels": rows}, indent=2))
        return 0
    for row in rows:
        print(f"{row['repo']}@v{row['version']}: {row['status']}, {', '.join(row['labels'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
