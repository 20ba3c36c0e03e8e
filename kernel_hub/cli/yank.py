"""`kernel-hub yank`: take a published version or build back, without deleting it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.cli.command import Command, argument, token_in

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console


def _run(arguments: Namespace, console: Console) -> int:
    from datetime import UTC, datetime

    from kernel_hub.build.yank import yank
    from kernel_hub.model.requirement import RepoId
    from kernel_hub.settings import load_settings
    from kernel_hub.sources.target import open_sink

    settings = load_settings()
    repo = RepoId.parse(arguments.repo)
    sink = open_sink(settings, arguments.to, token=token_in(settings, arguments.token_env), create=False)
    marks = yank(
        sink,
        repo,
        arguments.version,
        build=arguments.build,
        reason=arguments.reason or "",
        on=datetime.now(UTC).date(),
        undo=arguments.undo,
    )
    console.answer(
        "\n".join(
            [f"{repo}@v{arguments.version} at {sink.name}:", *(f"  {mark}" for mark in marks or ["nothing is yanked"])]
        ),
        {
            "repo": str(repo),
            "version": arguments.version,
            "target": sink.name,
            "yanked": [{"build": mark.build, "reason": mark.reason, "on": mark.on.isoformat()} for mark in marks],
        },
    )
    return 0


YANK = Command(
    "yank",
    "take a published version or build back without deleting it",
    "Marks a version, or one of its builds, on its branch. What is yanked still loads for whoever asks for it, with a warning "
    "that carries the reason; 'kernel-hub lock --check' fails for locks that hold it.",
    (
        argument("repo", metavar="REPO", text="the kernel: org/name"),
        argument("--version", metavar="N", type=int, required=True, text="the version"),
        argument("--build", metavar="LABEL", text="one build; default: the whole version"),
        argument("--reason", metavar="TEXT", text="what is wrong, for the people who use it"),
        argument("--undo", action="store_true", text="take the mark away again"),
        argument(
            "--to", metavar="TARGET", required=True, text="where it is published: a registry folder or a Hub's URL"
        ),
        argument("--token-env", metavar="NAME", text="the variable that holds a token for the target"),
    ),
    _run,
)
