"""`kernel-hub export-wheel`: builds as wheels, for whoever must install kernels with pip."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kernel_hub.cli.check import require_builder
from kernel_hub.cli.command import BACKEND, HOST, TRUST, Command, UsageError, argument, needing
from kernel_hub.cli.console import size_text

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence
    from pathlib import Path

    from kernel_hub.build.wheel import ExportedWheel
    from kernel_hub.cli.console import Console

_LICENSE_FILES = ("LICEN[CS]E*", "COPYING*", "NOTICE*")


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    require_builder()
    with needing("build"):
        import auditwheel  # noqa: F401
    from kernel_hub.build.wheel import export_wheel

    folder = Path(arguments.target)
    with ExitStack() as stack:
        if folder.exists():
            if arguments.backend is not None or arguments.trust_remote_code or arguments.host is not None:
                raise UsageError("--backend, --host and --trust-remote-code are for published kernels, not for folders")
            builds, licenses = _of_folder(folder, arguments.variant)
        else:
            builds, licenses = [_fetched(arguments, console, stack)], []
        out = Path(arguments.out)
        made = [export_wheel(build, out, distribution=arguments.name, licenses=licenses) for build in builds]
    console.answer("\n".join(_lines(made)), {"wheels": [_to_json(item) for item in made]})
    return 0


def _of_folder(folder: Path, labels: Sequence[str] | None) -> tuple[list[Path], list[Path]]:
    from kernel_hub.build.audit.check import build_folders

    there = list(build_folders(folder))
    chosen = [path for path in there if labels is None or path.name in labels]
    for label in labels or ():
        if all(path.name != label for path in there):
            listed = ", ".join(path.name for path in there)
            raise UsageError(f"--variant: there is no build {label!r}", hint=f"there are {listed}")
    found = (path for pattern in _LICENSE_FILES for path in sorted(folder.glob(pattern)))
    return chosen, [path for path in found if path.is_file() and not path.is_symlink()]


def _fetched(arguments: Namespace, console: Console, stack: ExitStack) -> Path:
    """A copy of a published build; pip would ask nobody before it runs, so whether it may is asked here."""
    import shutil
    import tempfile
    from pathlib import Path

    from kernel_hub.admission import admit
    from kernel_hub.api import this_host
    from kernel_hub.cli.documents import read_host
    from kernel_hub.errors import InvalidDocumentError
    from kernel_hub.loader import Loader
    from kernel_hub.model.requirement import Requirement
    from kernel_hub.plan import Request
    from kernel_hub.settings import load_settings

    try:
        requirement = Requirement.parse(arguments.target)
    except InvalidDocumentError as error:
        raise UsageError(f"{arguments.target} is neither a folder nor a kernel (org/name@v1)") from error
    settings = load_settings()
    host = read_host(arguments.host, console) or this_host(settings)
    request = Request(requirement, backend=arguments.backend, trust_remote_code=arguments.trust_remote_code)
    plan, verified = Loader(settings, host, progress=console.progress()).prefetch(request)
    admit(requirement, plan.trust)
    label = verified.artifact.label
    if arguments.variant is not None and label not in arguments.variant:
        raise UsageError(
            f"--variant: this machine takes {label} of {requirement}, not {' or '.join(arguments.variant)}",
            hint="say which machine it is for: --host FILE, as 'kernel-hub host --json' writes it there, or --backend",
        )
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-hub-wheel-")))
    # A cache may hold links where a build has files.
    return Path(shutil.copytree(verified.artifact.root, scratch / label))


def _lines(made: Sequence[ExportedWheel]) -> list[str]:
    lines = []
    for item in made:
        lines.append(f"{item.path} ({size_text(item.size_bytes)})")
        lines.append(f"  build: {item.label}")
        lines.append(f"  import: {item.module}")
        lines.append(f"  requires: {', '.join(item.requires)}")
    return lines


def _to_json(item: ExportedWheel) -> dict[str, Any]:
    return {
        "path": str(item.path),
        "label": item.label,
        "distribution": item.name.distribution,
        "version": str(item.name.version),
        "tag": item.name.tag,
        "import": item.module,
        "requires": list(item.requires),
        "size_bytes": item.size_bytes,
    }


EXPORT_WHEEL = Command(
    "export-wheel",
    "make wheels of builds, for pip",
    "Make a wheel of each build of a folder, or of the build of a published kernel for this machine, which is fetched and "
    "verified first and refused if its publisher is not trusted. The kernel's Python name is what is imported, the build's "
    "label stands in the version (1+torch.stable.abi211.cpu), and the requirement on torch is the label's. pip chooses by "
    "Python and system only: which backend a machine has is for you to know, and nothing is verified after installing. "
    "Tags follow auditwheel's policies. Kernels that need other kernels are refused with 8, and so are builds that are "
    "not what their digest says.",
    (
        argument(
            "target",
            metavar="DIR | REPO",
            nargs="?",
            default=".",
            text="a kernel's folder with build/, a folder of builds, one build, or org/name@v1; default: this folder",
        ),
        argument("--variant", metavar="LABEL", action="append", text="this build only; may be repeated"),
        argument("--out", metavar="DIR", default="dist", text="where the wheels go; default: dist"),
        argument("--name", metavar="NAME", text="what pip calls it; default: the kernel's name"),
        BACKEND,
        HOST,
        TRUST,
    ),
    _run,
)
