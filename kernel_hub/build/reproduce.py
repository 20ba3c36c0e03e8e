"""Building a kernel twice, in two folders, and comparing the bytes: does the output depend on anything but the sources?

Differences are explained as far as files say why: the sections of a native module that differ, the first line of a text.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_hub.build.audit.elf import section_names, section_of
from kernel_hub.build.machine import Machine
from kernel_hub.build.matrix import Job, plan
from kernel_hub.build.pipeline import choose
from kernel_hub.build.project import open_project
from kernel_hub.build.provenance import SourceOrigin, origin_of
from kernel_hub.build.toolchain import find_machine
from kernel_hub.build.workshop import Workshop, processors
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.tree import paths_of

_SHOWN_CHARS = 120
# Of two lengths, so that a path that slips into the output moves what follows it.
_NAMES = ("first", "second time")


@dataclass(frozen=True, slots=True)
class Difference:
    """A file of a build that came out in two ways.

    Attributes:
        label: The build.
        path: The file.
        explanation: What differs in it.
    """

    label: str
    path: str
    explanation: str

    def __str__(self) -> str:
        return f"{self.label}/{self.path}: {self.explanation}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of building twice.

    Attributes:
        labels: The builds that were compared.
        differences: In order of label and path.
    """

    labels: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether every byte is the same."""
        return not self.differences


def compare_builds(
    folder: Path,
    *,
    backends: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    parallel: int | None = None,
    machine: Machine | None = None,
) -> Comparison:
    """Build a kernel twice and compare. The kernel's folder and its builds are left alone.

    Args:
        folder: The kernel's folder.
        backends, variants, parallel, machine: As `kernel_hub.build.pipeline.build`.

    Raises:
        BuildError: As `build`.
        InvalidDocumentError: As `build`.
    """
    project = open_project(folder)
    # A cache would give the second build what the first one made.
    machine = replace(machine or find_machine(), compiler_cache=None)
    jobs = choose(plan(project.recipes, machine), project, backends, variants)
    output = project.folder / "build"
    work = output.with_name(f".{output.name}-work")
    origin = origin_of(project.folder, leaving_out=(output, work))
    with tempfile.TemporaryDirectory(prefix="kernel-hub-twice-") as scratch:
        results = []
        for name in _NAMES:
            place = Path(scratch) / name
            leave_out = shutil.ignore_patterns(output.name, work.name, ".git", "__pycache__")
            shutil.copytree(project.folder, place / "kernel", symlinks=True, ignore=leave_out)
            results.append(_build(place, jobs, origin, machine, parallel or processors()))
        labels = tuple(str(job.label) for job in jobs)
        return Comparison(labels, tuple(found for label in labels for found in _compare(label, *results)))


def _build(place: Path, jobs: Sequence[Job], origin: SourceOrigin, machine: Machine, parallel: int) -> Path:
    workshop = Workshop(open_project(place / "kernel"), machine, origin, place / "work", parallel, None)
    for job in jobs:
        workshop.make(job, place / "out")
    return place / "out"


def _compare(label: str, one: Path, other: Path) -> Iterator[Difference]:
    here, there = one / label, other / label
    for path in sorted({*paths_of(here), *paths_of(there)}):
        if not (here / path).is_file() or not (there / path).is_file():
            yield Difference(label, path, "is there in one build only")
        elif (here / path).read_bytes() != (there / path).read_bytes():
            yield Difference(label, path, explain(here / path, there / path))


def explain(one: Path, other: Path) -> str:
    """In what two files of one name differ, in words."""
    try:
        return _explain_native(one, other)
    except InvalidDocumentError:
        pass
    lines = zip(one.read_bytes().splitlines(), other.read_bytes().splitlines(), strict=False)
    for number, (left, right) in enumerate(lines, 1):
        if left != right:
            return f"line {number} is {_shown(left)} and {_shown(right)}"
    return f"one has {one.stat().st_size} bytes, the other {other.stat().st_size}"


def _explain_native(one: Path, other: Path) -> str:
    names = section_names(one)
    if names != section_names(other):
        return "the sections differ"
    # The build id is made from all the rest.
    differing = [name for name in names if section_of(one, name) != section_of(other, name) and "build-id" not in name]
    for name in differing:
        left, right = section_of(one, name) or b"", section_of(other, name) or b""
        texts = set(left.split(b"\0")) ^ set(right.split(b"\0"))
        telling = sorted(
            text for text in texts if len(text) > 3 and text.isascii() and text.decode("ascii").isprintable()
        )
        if telling:
            return f"sections {', '.join(differing)} differ, e.g. in {_shown(telling[0])}"
    return f"sections {', '.join(differing)} differ" if differing else "the headers differ"


def _shown(text: bytes) -> str:
    return repr(text[:_SHOWN_CHARS].decode("utf-8", "replace"))
