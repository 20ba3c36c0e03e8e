"""`kernel-hub explain`, `has`, `versions`, `info`, `download`: questions about a kernel, and fetching one."""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import (
    BACKEND,
    DEVICE,
    HOST,
    NO_ARCH_CHECK,
    REPO,
    REVISION,
    TRUST,
    VERSION,
    Command,
    UsageError,
    argument,
)
from kernel_hub.cli.console import error_to_json
from kernel_hub.cli.documents import read_host
from kernel_hub.cli.host import facts_text

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console
    from kernel_hub.loader import Loader
    from kernel_hub.plan import Request


def _loader(arguments: Namespace, console: Console) -> Loader:
    from kernel_hub.api import this_host
    from kernel_hub.loader import Loader
    from kernel_hub.settings import load_settings

    settings = load_settings()
    host = read_host(getattr(arguments, "host", None), console)
    return Loader(settings, host or this_host(settings), progress=console.progress())


def _request(arguments: Namespace) -> Request:
    from kernel_hub.model.requirement import Requirement
    from kernel_hub.plan import Request

    return Request(
        Requirement.parse(arguments.repo, version=arguments.version, revision=arguments.revision),
        backend=arguments.backend,
        device=arguments.device,
        trust_remote_code=arguments.trust_remote_code,
        check_arch=not arguments.no_arch_check,
    )


def _explain(arguments: Namespace, console: Console) -> int:
    from kernel_hub.refusal import SHOWN

    plan = _loader(arguments, console).plan(_request(arguments))
    text = plan.text(shown=None if arguments.all or arguments.verbose else SHOWN)
    if arguments.verbose:
        text += f"\n  facts:\n{indent(facts_text(plan.selection.host), '    ')}"
    console.answer(text, plan.to_json())
    return 0


def _has(arguments: Namespace, console: Console) -> int:
    answer = _loader(arguments, console).availability(_request(arguments))
    document: dict[str, Any] = {
        "available": answer.available,
        "known": answer.known,
        "reason": answer.reason,
        "error": None,
    }
    if answer.error is not None:
        document |= error_to_json(answer.error)
    hint = answer.error.hint() if answer.error is not None and not answer.known else ""
    console.answer(f"{answer.answer}: {answer.reason}" + (f"\n  hint: {hint}" if hint else ""), document)
    return answer.error.exit_code if answer.error is not None else 0


def _versions(arguments: Namespace, console: Console) -> int:
    from kernel_hub.model.requirement import RepoId

    name, mark, _ = arguments.repo.partition("@")
    if mark:
        raise UsageError(
            "'kernel-hub versions' takes no version; it lists them all", hint=f"kernel-hub versions {name}"
        )
    versions = _loader(arguments, console).versions(RepoId.parse(arguments.repo))
    lines = [f"v{number} {commit}" for number, commit in versions.items()]
    console.answer(
        "\n".join(lines) or f"{arguments.repo} has no versions",
        {
            "repo": arguments.repo,
            "versions": [{"version": number, "commit": commit} for number, commit in versions.items()],
        },
    )
    return 0


def _info(arguments: Namespace, console: Console) -> int:
    from kernel_hub.api import this_host
    from kernel_hub.inspection import inspect
    from kernel_hub.model.requirement import Requirement
    from kernel_hub.plan import Request
    from kernel_hub.settings import load_settings

    settings = load_settings()
    host = read_host(arguments.host, console) or this_host(settings)
    requirement = Requirement.parse(arguments.repo, version=arguments.version, revision=arguments.revision)
    inspection = inspect(settings, host, Request(requirement))
    console.answer(str(inspection), inspection.to_json())
    return 0


def _download(arguments: Namespace, console: Console) -> int:
    verified = _loader(arguments, console).download(_request(arguments))
    artifact = verified.artifact
    console.answer(
        f"{artifact.label} of {artifact.origin} is verified and lies in {artifact.root}",
        {
            "label": artifact.label,
            "origin": str(artifact.origin),
            "path": str(artifact.root),
            "files": len(verified.files),
            "tree_digest": str(verified.tree_digest),
            "has_manifest": verified.has_manifest,
        },
    )
    return 0


_WHICH = (REPO, VERSION, REVISION, BACKEND, DEVICE, NO_ARCH_CHECK, TRUST)

EXPLAIN = Command(
    "explain",
    "show what loading a kernel would do and why",
    "Show the commit that a kernel resolves to, whether its code may run, the build that would be loaded, and why the "
    "others would not: the closest ones, or all with --all; with --verbose also each fact of the machine and how it was "
    "found. Nothing is downloaded but metadata. Exits with 0 also if no "
    "build fits, because that is an answer; 'has' says it with the exit code.",
    (*_WHICH, HOST, argument("--all", action="store_true", text="list every build that does not fit")),
    _explain,
)
HAS = Command(
    "has",
    "say whether a kernel can be loaded, also as the exit code",
    "Print 'yes' and the build that would be loaded, 'no' and the reason, or 'unknown' if it could not be found out. "
    "Exits with 0 for yes, and else with the code of the error that loading would raise: 3 if there is no such kernel, 4 if "
    "no build fits, 5 if nobody could be asked, 6 if its code may not run, and so on.",
    (*_WHICH, HOST),
    _has,
)
VERSIONS = Command(
    "versions",
    "list the versions of a kernel",
    "List the versions of a kernel with their commits, oldest first.",
    (argument("repo", metavar="REPO", text="the kernel: org/name"),),
    _versions,
)
INFO = Command(
    "info",
    "describe the builds of a kernel",
    "Describe every build of the commit that a kernel resolves to: size, licence, backend, architectures, what it "
    "depends on, what it was built from by which builder, and whether it fits this machine, or the one of --host. Nothing "
    "is downloaded but metadata.",
    (REPO, VERSION, REVISION, HOST),
    _info,
)
DOWNLOAD = Command(
    "download",
    "fetch and verify a kernel without importing it",
    "Put the build that would be loaded here into the cache, or repair it there, and verify it.",
    _WHICH,
    _download,
)
