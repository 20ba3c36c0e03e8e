"""The reference page of the command line, made from the commands and the error classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernel_hub import errors
from kernel_hub.cli import INTERRUPTED, READER_GONE
from kernel_hub.cli.command import Argument, Command, UsageError
from kernel_hub.cli.parser import COMMANDS, PROGRAM, SHARED, SUMMARY


def page() -> str:
    """`docs/reference/cli.md`."""
    lines = [
        "# The command line",
        "",
        "<!-- Generated from kernel_hub/cli by docs/generate.py. -->",
        "",
        f"`{PROGRAM} COMMAND ...`, or `python -m kernel_hub COMMAND ...`. {SUMMARY}",
        "",
        "Answers go to standard output, errors, notices and progress to standard error; progress is shown on a terminal "
        "only. There is no colour. `--version` prints the version, `--help` after a command its arguments.",
        "",
        "| command | does |",
        "|---|---|",
        *(f"| [`{command.name}`](#{command.name}) | {command.summary} |" for command in COMMANDS),
        "",
        "## JSON",
        "",
        "With `--json`, a command writes one JSON document on standard output: its answer, or an error in this form. "
        "Lists are in a stable order.",
        "",
        "```json",
        '{"error": {"type": "VersionNotFoundError", "message": "...", "hint": "...", "exit_code": 3}}',
        "```",
        "",
        "## Exit codes",
        "",
        "| code | means | errors |",
        "|---|---|---|",
        *(f"| {code} | {meaning} | {names} |" for code, meaning, names in exit_codes()),
        "",
        "## Arguments of every command",
        "",
        *_arguments(SHARED),
        "",
    ]
    for command in COMMANDS:
        lines.extend(_section(command))
    return "\n".join(lines)


def exit_codes() -> list[tuple[int, str, str]]:
    """Every exit code with its meaning and the errors that lead to it."""
    rows = [(0, "done", "")]
    rows.append(
        (
            1,
            "an unexpected error, output that cannot be written, or a library that is not installed",
            "`KernelHubError`",
        )
    )
    stages = sorted(errors.KernelHubError.__subclasses__(), key=lambda stage: stage.exit_code)
    for stage in stages:
        if stage.__module__ != errors.__name__:
            continue
        summary = (stage.__doc__ or "").strip().splitlines()[0].split(". ")[0].rstrip(".")
        meaning = f"{summary[0].lower()}{summary[1:]}"
        if stage is errors.InvalidDocumentError:
            meaning += ", or a wrong command line"
        # An error that no narrower one fits bears the name of its stage; wrong command lines have one of their own.
        own = {stage.__name__, UsageError.__name__} if stage is errors.InvalidDocumentError else {stage.__name__}
        names = ", ".join(f"`{name}`" for name in sorted({*own, *_leaves(stage)}))
        rows.append((stage.exit_code, meaning, names))
    rows.append((INTERRUPTED, "interrupted by Ctrl-C", ""))
    rows.append((READER_GONE, "the reader of the output went away", ""))
    return rows


def _leaves(stage: type[errors.KernelHubError]) -> Iterator[str]:
    below = [child for child in stage.__subclasses__() if child.__module__ == errors.__name__]
    if not below:
        yield stage.__name__
    for child in below:
        yield from {child.__name__, *_leaves(child)}


def _section(command: Command) -> Iterator[str]:
    required = [entry.shown for entry in command.arguments if not entry.names[0].startswith("-")]
    yield from (f"## {command.name}", "")
    yield from (f"`{' '.join([PROGRAM, command.name, *required, '[OPTION ...]'])}`", "")
    yield from (command.description, "")
    if command.arguments:
        yield from (*_arguments(command.arguments), "")


def _arguments(arguments: Sequence[Argument]) -> Iterator[str]:
    yield from ("| argument | meaning |", "|---|---|")
    for entry in arguments:
        yield f"| `{entry.shown}` | {entry.text} |"
