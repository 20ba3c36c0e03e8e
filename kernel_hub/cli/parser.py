"""The parser, made from the commands. Answers `--help` without importing anything that takes time to load."""

from __future__ import annotations

import argparse
from typing import Any, Final, NoReturn

import kernel_hub
from kernel_hub.cli.build import BUILD, VARIANTS
from kernel_hub.cli.cache import CACHE
from kernel_hub.cli.check import CHECK
from kernel_hub.cli.command import Argument, Command, UsageError, argument
from kernel_hub.cli.demo import DEMO
from kernel_hub.cli.export_wheel import EXPORT_WHEEL
from kernel_hub.cli.host import HOST
from kernel_hub.cli.kernels import DOWNLOAD, EXPLAIN, HAS, INFO, VERSIONS
from kernel_hub.cli.locked import AUDIT, EXPORT, OUTDATED, TREE
from kernel_hub.cli.locks import ADD, LOCK_COMMAND, REMOVE, SYNC
from kernel_hub.cli.mirror import BUNDLE, MIRROR, UNBUNDLE
from kernel_hub.cli.new import NEW
from kernel_hub.cli.publish import PUBLISH
from kernel_hub.cli.select import SELECT
from kernel_hub.cli.serve import SERVE
from kernel_hub.cli.trust import NEW_KEY, SIGN, TRUST, VERIFY
from kernel_hub.cli.yank import YANK

PROGRAM: Final = "kernel-hub"
SUMMARY: Final = "Resolve, verify, build, publish and serve compute kernels."

GROUPS: Final = {
    "load": (DEMO, HOST, EXPLAIN, HAS, VERSIONS, INFO, DOWNLOAD, CACHE, SELECT),
    "pin": (ADD, REMOVE, LOCK_COMMAND, SYNC, TREE, OUTDATED, AUDIT, EXPORT, MIRROR, BUNDLE, UNBUNDLE),
    "trust": (TRUST, VERIFY, NEW_KEY, SIGN),
    "build and publish": (NEW, VARIANTS, BUILD, CHECK, EXPORT_WHEEL, PUBLISH, YANK, SERVE),
}
COMMANDS: Final = tuple(command for commands in GROUPS.values() for command in commands)
SHARED: Final = (
    argument("--json", action="store_true", text="write the answer, or the error, as JSON on standard output"),
    argument("-v", "--verbose", action="store_true", text="report decisions on standard error"),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"see '{self.prog} --help'")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog=PROGRAM,
        description=SUMMARY,
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {kernel_hub.__version__}")
    for entry in SHARED:
        _add(parser, entry)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", help=argparse.SUPPRESS)
    for command in COMMANDS:
        child = commands.add_parser(command.name, description=command.description, allow_abbrev=False)
        for entry in command.arguments:
            _add(child, entry)
        for entry in SHARED:
            # Without a default here, what was said before the command stays.
            _add(child, entry, default=argparse.SUPPRESS)
    return parser


def parse(words: list[str]) -> tuple[Command, argparse.Namespace] | None:
    """The command that a command line names, with its arguments; None if help or the version was asked for and printed.

    Raises:
        UsageError: If the command line is not one of this program.
    """
    parser = make_parser()
    if not words:
        parser.print_help()
        return None
    _check_command(words)
    try:
        arguments = parser.parse_args(words)
    except SystemExit:
        # argparse ends the program after it has printed help or the version; every fault of the user goes to `error`.
        return None
    if arguments.command is None:
        raise UsageError(f"{PROGRAM}: no command given", hint=f"'{PROGRAM} --help' lists them")
    return next(command for command in COMMANDS if command.name == arguments.command), arguments


def _check_command(words: list[str]) -> None:
    word = next((word for word in words if not word.startswith("-") or word in ("-h", "--help", "--version")), "-")
    names = [command.name for command in COMMANDS]
    if word.startswith("-") or word in names:
        return
    # Imported here, because only a slip needs it.
    import difflib

    close = difflib.get_close_matches(word, names, n=1)
    meant = f"did you mean '{PROGRAM} {close[0]}'? " if close else ""
    raise UsageError(f"{PROGRAM}: {word!r} is no command", hint=f"{meant}'{PROGRAM} --help' lists them")


def _overview() -> str:
    widest = max(len(command.name) for command in COMMANDS)
    lines = []
    for title, commands in GROUPS.items():
        lines.append(f"{title}:")
        lines.extend(f"  {command.name:<{widest}}  {command.summary}" for command in commands)
        lines.append("")
    lines += [
        "examples:",
        f"  {PROGRAM} explain kernels-community/relu",
        f"  {PROGRAM} publish . --to ./registry --repo org/name",
        "",
        f"'{PROGRAM} COMMAND --help' describes one command. README.md and docs/ of the repository say more.",
    ]
    return "\n".join(lines)


def _add(parser: argparse.ArgumentParser, entry: Argument, **changes: Any) -> None:
    parser.add_argument(*entry.names, help=entry.text, **entry.settings, **changes)
