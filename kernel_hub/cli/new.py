"""`kernel-hub new`: the sources of a kernel to begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.cli.command import Command, argument

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.build.blueprint import Blueprint
    from kernel_hub.build.scaffold import project_files, require_free, write_project

    wanted = [text.strip() for text in arguments.backends.split(",") if text.strip()]
    blueprint = Blueprint.parse(arguments.name, wanted, arguments.abi, arguments.license)
    folder = Path(arguments.output or blueprint.name)
    content = project_files(blueprint)
    if arguments.dry_run:
        require_free(folder)
    else:
        write_project(folder, content)
    document = {
        "name": blueprint.name,
        "folder": str(folder),
        "backends": [part.value for part in blueprint.parts],
        "abi": blueprint.abi.value if blueprint.compiled else None,
        "files": list(content),
        "written": not arguments.dry_run,
    }
    lines = [f"{folder}: {'would be made' if arguments.dry_run else 'made'}"]
    lines += [f"  {name}" for name in content]
    if not arguments.dry_run:
        lines.append(f"next: cd {folder} && kernel-hub build && kernel-hub check && python -m pytest tests")
    console.answer("\n".join(lines), document)
    return 0


NEW = Command(
    "new",
    "write the sources of a new kernel",
    "Write a project that builds, passes every check and is tested: recipe, sources, Python package, card, tests against "
    "PyTorch, a benchmark and a workflow for continuous integration. Its one function is a gated SiLU, to be replaced. "
    "A folder that holds something already is refused.",
    (
        argument("name", metavar="NAME", text="the kernel's name: lower-case letters, digits and '-'"),
        argument(
            "--backends",
            metavar="LIST",
            default="cpu",
            text="what it is written for, with commas between: cpu, cuda, triton; default: cpu",
        ),
        argument(
            "--abi",
            choices=("stable", "classic", "tvm-ffi"),
            default="stable",
            text="what compiled code is written against: torch's stable ABI (default), torch's C++ interface, or tvm-ffi",
        ),
        argument("--license", metavar="ID", default="Apache-2.0", text="the kernel's licence; default: Apache-2.0"),
        argument("--output", metavar="DIR", text="the folder to make; default: NAME below this one"),
        argument("--dry-run", action="store_true", text="write nothing, only list the files"),
    ),
    _run,
)
