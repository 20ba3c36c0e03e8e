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
    from kernel_hub.cli.console import Console


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
        if not folder.exists():
            folder, trusted = _download(arguments, console, stack)
            if not trusted and not unrun:
                unrun = "not tried: this user does not trust its publisher"
        elif arguments.backend is not None or arguments.trust_remote_code:
            raise UsageError("--backend and --trust-remote-code are for published kernels, and this is a folder")
        report = check(folder, run=not unrun)
    console.answer(_text(report, unrun), _to_json(report, unrun))
    return 0 if report.passed else BuildError.exit_code


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
        "notes": list(report.notes),
    }


CHECK = Command(
    "check",
    "check builds against the rules for every build",
    "Check finished builds: metadata and digests, names, Python imports, and in native modules symbol versions, the "
    "stable ABIs of torch and Python, libraries and GPU architectures; then import each in a process of its own, which "
    "runs its code. Of a published kernel the build for this machine is fetched, verified and checked, and imported only "
    "if its publisher is trusted. Every finding names its file, the line or symbol, and the fix. Exits with 8 if there "
    "is one.",
    (
        argument(
            "target",
            metavar="DIR | REPO",
            nargs="?",
            default=".",
            text="a kernel's folder with build/, a folder of builds, one build, or org/name@v1; default: this folder",
        ),
        argument("--no-import", action="store_true", text="do not run the builds' code"),
        BACKEND,
        TRUST,
    ),
    _run,
)
