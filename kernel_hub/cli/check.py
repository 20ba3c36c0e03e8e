"""`kernel-hub check`: whether builds keep the rules that every build must keep."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import BACKEND, TRUST, Command, UsageError, argument, needing

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from kernel_hub.build.audit.check import CheckReport
    from kernel_hub.build.audit.finding import Finding
    from kernel_hub.build.interface import ApiRecord
    from kernel_hub.cli.console import Console
    from kernel_hub.model.requirement import RepoId, Requirement


def require_builder() -> None:
    """Refuse a command that builds or checks where the libraries for that are not installed.

    They are asked for at once, not when the first of them is needed, so that a command that lacks them always fails alike.

    Raises:
        MissingExtraError: If one is not there.
    """
    with needing("build"):
        import abi3info  # noqa: F401
        import elftools  # noqa: F401
        import jinja2  # noqa: F401


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """A finding as commands write it under `--json`."""
    return {
        "rule": finding.rule.value,
        "path": finding.path,
        "line": finding.line or None,
        "subject": finding.subject or None,
        "problem": finding.problem,
        "fix": finding.fix,
    }


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.build.audit.check import check
    from kernel_hub.errors import BuildError

    require_builder()
    with ExitStack() as stack:
        folder = Path(arguments.target)
        unrun = "not asked for" if arguments.no_import else ""
        against = None if arguments.against is None else _offered(arguments, folder)
        if not folder.exists():
            folder, trusted = _download(arguments, console, stack)
            if not trusted and not unrun:
                unrun = "not tried: this user does not trust its publisher"
        elif arguments.backend is not None or arguments.trust_remote_code:
            raise UsageError("--backend and --trust-remote-code are for published kernels, and this is a folder")
        report = check(folder, run=not unrun, against=against)
        if arguments.api is not None:
            _write_api(Path(arguments.api), report)
    console.answer(_text(report, unrun), _to_json(report, unrun))
    return 0 if report.passed else BuildError.exit_code


def _write_api(path: Path, report: CheckReport) -> None:
    from kernel_hub.build.interface_reader import record_api

    try:
        path.write_bytes(record_api(report.builds[0].folder).format())
    except OSError as error:
        raise UsageError(f"--api: {path} can't be written: {error.strerror}") from error


def _offered(arguments: Namespace, folder: Path) -> ApiRecord:
    """What the builds are held to: a record or builds on this disk, or a published version."""
    from pathlib import Path

    from kernel_hub.build.against import published_api
    from kernel_hub.build.audit.check import build_folders
    from kernel_hub.build.interface import ApiRecord
    from kernel_hub.build.interface_reader import record_api
    from kernel_hub.resolve import resolve
    from kernel_hub.settings import load_settings
    from kernel_hub.sources.configured import connect

    path = Path(arguments.against)
    if path.is_file():
        return ApiRecord.parse(path.read_bytes(), name=str(path))
    if path.is_dir():
        return record_api(build_folders(path)[0])
    requirement = _published(arguments.against, folder, arguments.target)
    settings = load_settings()
    # The same question as that of a load, with the same answer: what is bound to a registry is asked there.
    source = connect(settings, requirement.repo.namespace, host_facts={}, refresh=True).source
    pin = resolve(requirement, source.refs(requirement.repo))
    labels = [build.name for build in build_folders(folder)] if folder.exists() else []
    return published_api(source, pin, labels)


def _published(text: str, folder: Path, target: str) -> Requirement:
    """The requirement that `--against` names, in which the repository may be left out."""
    from kernel_hub.build.project import open_project
    from kernel_hub.errors import InvalidDocumentError
    from kernel_hub.model.requirement import Requirement, version_of_branch

    try:
        if version_of_branch(text) is None:
            return Requirement.parse(text)
        if not folder.exists():
            repo: RepoId | None = Requirement.parse(target).repo
        else:
            repo = open_project(folder).first.home.repo if (folder / "build.toml").is_file() else None
    except InvalidDocumentError as error:
        raise UsageError(f"--against: {text} is no folder, record or version of a kernel: {error.message}") from error
    if repo is None:
        hint = f"write org/name@{text}, or give repo-id in [general.hub] of build.toml"
        raise UsageError(f"--against: the kernel whose version {text} is meant is not known", hint=hint)
    return Requirement.parse(f"{repo}@{text}")


def _download(arguments: Namespace, console: Console, stack: ExitStack) -> tuple[Path, bool]:
    """A copy of a published build, and whether its code may run here."""
    import shutil
    import tempfile
    from pathlib import Path

    from kernel_hub.api import this_host
    from kernel_hub.errors import InvalidDocumentError
    from kernel_hub.loader import Loader
    from kernel_hub.model.requirement import Requirement
    from kernel_hub.plan import Request
    from kernel_hub.settings import load_settings
    from kernel_hub.trust import Trusted

    try:
        requirement = Requirement.parse(arguments.target)
    except InvalidDocumentError as error:
        raise UsageError(f"{arguments.target} is neither a folder nor a kernel (org/name@v1)") from error
    settings = load_settings()
    request = Request(requirement, backend=arguments.backend, trust_remote_code=arguments.trust_remote_code)
    plan, verified = Loader(settings, this_host(settings), progress=console.progress()).prefetch(request)
    trusted = plan.trust is None or isinstance(plan.trust, Trusted)
    # A cache may hold links where a build has files, and must not be changed by what an import leaves behind.
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-hub-check-")))
    return Path(shutil.copytree(verified.artifact.root, scratch / verified.artifact.label)), trusted


def _text(report: CheckReport, unrun: str) -> str:
    lines = []
    for build in report.builds:
        count = len(build.findings)
        verdict = f"{count} {'finding' if count == 1 else 'findings'}" if count else "passed"
        lines.append(f"{build.label}: {verdict} (import: {build.imported or unrun})")
        for finding in build.findings:
            place = f"{finding.path}:{finding.line}" if finding.line else finding.path
            subject = f" {finding.subject}" if finding.subject else ""
            lines.append(f"  {place}:{subject} {finding.problem} [{finding.rule}]")
            lines.append(f"    fix: {finding.fix}")
    # Where there is nothing to look at, nothing is missing; JSON says so all the same.
    lines.extend(str(item) for item in report.reviews if item.wanted)
    lines.extend(f"note: {note}" for note in report.notes)
    return "\n".join(lines)


def _to_json(report: CheckReport, unrun: str) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "builds": [
            {
                "label": build.label,
                "findings": [finding_to_json(finding) for finding in build.findings],
                "import": build.imported or unrun,
            }
            for build in report.builds
        ],
        "reviews": [
            {
                "name": item.name,
                "version": item.version or None,
                "modules": item.count,
                "not_run": item.unrun or None,
            }
            for item in report.reviews
        ],
        "notes": list(report.notes),
    }


CHECK = Command(
    "check",
    "check builds against the rules for every build",
    "Check finished builds: metadata and digests, names, Python imports, and in native modules symbol versions, the "
    "stable ABIs of torch and Python, libraries and GPU architectures; then import each in a process of its own, which "
    "runs its code. Of a published kernel the build for this machine is fetched, verified and checked, and imported only "
    "if its publisher is trusted. Every finding names its file, the line or symbol, and the fix. Native "
    "modules are shown to abi3audit and torch-abi-audit too; where one of them did not run, that is said. With --against, "
    "builds must keep what their version offers: no function, parameter or default may go or change, and new parameters "
    "are optional and last. Exits with 0 if nothing was found; with 8 if there is a finding, or no build; with 2 for a "
    "target that is neither folder nor kernel; and as 'download' does if a published kernel cannot be had. With --json: "
    "'passed', 'builds' (each with 'label', 'findings' and 'import'), 'reviews' (each with 'name', 'version', 'modules' "
    "and 'not_run') and 'notes'; a finding has 'rule', 'path', 'line', 'subject', 'problem' and 'fix'.",
    (
        argument(
            "target",
            metavar="DIR | REPO",
            nargs="?",
            default=".",
            text="a kernel's folder with build/, a folder of builds, one build, or org/name@v1; default: this folder",
        ),
        argument(
            "--against",
            metavar="VERSION",
            text="what the builds must keep offering: v1 or org/name@v1, a folder of builds, or an api.json",
        ),
        argument("--api", metavar="FILE", text="write what the first build offers to this file (api.json)"),
        argument("--no-import", action="store_true", text="do not run the builds' code"),
        BACKEND,
        TRUST,
    ),
    _run,
)
