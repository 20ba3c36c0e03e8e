"""Checking finished builds: every rule, second opinions, and a trial import. The report is a value; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_hub.build.against import check_interface
from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.audit.known import find_knowledge
from kernel_hub.build.audit.layout import check_build
from kernel_hub.build.audit.native import Knowledge
from kernel_hub.build.audit.reviews import NativeModule, Review, Reviews, news, review
from kernel_hub.build.audit.trial import Imported, NotTried, try_import
from kernel_hub.build.interface import ApiRecord
from kernel_hub.build.machine import Machine
from kernel_hub.build.toolchain import find_machine
from kernel_hub.errors import CheckFailedError, InvalidDocumentError, PublishRefusedError
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.variant import ArchLabel, Label, parse_label

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class CheckedBuild:
    """A build and what was found.

    Attributes:
        label: What it is called.
        folder: Where it lies.
        findings: Every breach of a rule, in order.
        imported: What came of importing it, in words; "" if that was not asked for.
    """

    label: str
    folder: Path
    findings: tuple[Finding, ...]
    imported: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        builds: In order of their labels.
        notes: What could not be checked here, and why.
        reviews: What other checkers did, those that are not installed among them.
    """

    builds: tuple[CheckedBuild, ...]
    notes: tuple[str, ...] = ()
    reviews: tuple[Review, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return not any(build.findings for build in self.builds)


def check(
    folder: Path, *, machine: Machine | None = None, run: bool = True, against: ApiRecord | None = None
) -> CheckReport:
    """Check the builds of a folder.

    Args:
        folder: A kernel's folder with `build/`, the folder of the builds, or one build.
        machine: The toolchains that are here; found if not given.
        run: Whether to import each build in a child process. That runs its code.
        against: What the builds' version offers already, to hold them to.

    Raises:
        PublishRefusedError: If there is no build.
        ToolchainError: If a library that checking needs is not installed.
    """
    machine = machine or find_machine()
    known = find_knowledge(machine.torch)
    notes = [] if known.shims is not None else ["torch is not installed here: its C functions were not checked"]
    folders = build_folders(folder)
    second = review(tuple(_natives(folders)), known)
    builds = tuple(_checked(path, machine, known, second, run=run) for path in folders)
    if against is not None:
        builds = tuple(
            replace(build, findings=(*build.findings, *check_interface(build.folder, against))) for build in builds
        )
        notes += _of_other_version(builds, against)
    return CheckReport(builds, tuple(notes), second.reviews)


def build_folders(folder: Path) -> Sequence[Path]:
    """The builds of a folder: looked for in `build/`, then in itself; last, the folder is taken for one build.

    Raises:
        PublishRefusedError: If there is none.
    """
    root = folder.resolve()
    for place in (root / "build", root):
        within = place.iterdir() if place.is_dir() else ()
        found = sorted(path for path in within if path.is_dir() and (path / "metadata.json").is_file())
        if found:
            return found
    if (root / "metadata.json").is_file():
        return [root]
    raise PublishRefusedError(f"{folder} holds no build", hint="build the kernel first: kernel-hub build")


def require_passed(label: str, findings: Sequence[Finding], *, tolerated: Set[Rule] = frozenset()) -> None:
    """Refuse a build that breaks rules.

    Args:
        label: What it is called.
        findings: What a check found.
        tolerated: Rules that it may break here.

    Raises:
        CheckFailedError: Naming the first breaches; it carries all that count.
    """
    counted = [finding for finding in findings if finding.rule not in tolerated]
    if counted:
        shown = "\n".join(f"  {finding}" for finding in counted[:_SHOWN])
        more = f"\n  and {len(counted) - _SHOWN} more" if len(counted) > _SHOWN else ""
        raise CheckFailedError(f"{label} breaks rules that builds must keep:\n{shown}{more}", findings=counted)


def _natives(folders: Sequence[Path]) -> Iterator[NativeModule]:
    for folder in folders:
        label = _label_of(folder)
        if isinstance(label, ArchLabel):
            for file in sorted(folder.rglob("*.so")):
                if file.is_file():
                    yield NativeModule(file, file.relative_to(folder).as_posix(), label)


def _label_of(folder: Path) -> Label | None:
    try:
        return parse_label(folder.name)
    except InvalidDocumentError:
        return None


def _of_other_version(builds: Sequence[CheckedBuild], against: ApiRecord) -> list[str]:
    for build in builds:
        try:
            version = Metadata.parse((build.folder / "metadata.json").read_bytes()).version
        except InvalidDocumentError:
            continue
        if version != against.version:
            return [
                f"version {version} was not held to what version {against.version} offers: a version is a new start"
            ]
    return []


def _checked(folder: Path, machine: Machine, known: Knowledge, second: Reviews, *, run: bool) -> CheckedBuild:
    findings = check_build(folder, folder.name, known)
    theirs = (item for file, found in second.findings.items() if file.is_relative_to(folder) for item in found)
    findings = (*findings, *news(findings, theirs))
    if not run:
        return CheckedBuild(folder.name, folder, findings)
    try:
        label = parse_label(folder.name)
        metadata = Metadata.parse((folder / "metadata.json").read_bytes())
    except InvalidDocumentError:
        return CheckedBuild(folder.name, folder, findings, "not tried: it can't be told what it is")
    libraries = tuple(toolkit.libraries for toolkit in reversed(machine.cuda))
    outcome = try_import(folder, label, metadata.id, machine, libraries=libraries)
    match outcome:
        case Imported(lazily=lazily):
            said = "imported, functions bound lazily" if lazily else "imported"
        case NotTried(reason=reason):
            said = f"not tried: {reason}"
        case Finding():
            findings, said = (*findings, outcome), "failed"
    return CheckedBuild(folder.name, folder, findings, said)
