"""The parser, made from the commands. Answers `--help` without importing anything that takes time to load."""

from __future__ import annotations

import argparse
from typing import Final, NoReturn

import kernel_hub
from kernel_hub.cli.build import BUILD
from kernel_hub.cli.cache import CACHE
from kernel_hub.cli.command import Argument, Command, UsageError, argument
from kernel_hub.cli.demo import DEMO
from kernel_hub.cli.host import HOST
from kernel_hub.cli.kernels import DOWNLOAD, EXPLAIN, HAS, INFO, VERSIONS
from kernel_hub.cli.locked import AUDIT, EXPORT, OUTDATED, TREE
from kernel_hub.cli.locks import ADD, LOCK_COMMAND, REMOVE, SYNC
from kernel_hub.cli.mirror import BUNDLE, MIRROR, UNBUNDLE
from kernel_hub.cli.publish import PUBLISH
from kernel_hub.cli.select import SELECT
from kernel_hub.cli.serve import SERVE
from kernel_hub.cli.trust import NEW_KEY, SIGN, TRUST, VERIFY
from kernel_hub.cli.yank import YANK

PROGRAM: Final = "kernel-hub"
SUMMARY: Final = "Resolve, verify, build, publish and serve compute kernels."

COMMANDS: Final = (
    *(DEMO, HOST, EXPLAIN, HAS, VERSIONS, INFO, DOWNLOAD, CACHE, SELECT),
    *(ADD, REMOVE, LOCK_COMMAND, SYNC, TREE, OUTDATED, AUDIT, EXPORT, MIRROR, BUNDLE, UNBUNDLE),
    *(TRUST, VERIFY, NEW_KEY, SIGN),
    *(BUILD, PUBLISH, YANK, SERVE),
)
SHARED: Final = (
    argument("--json", action="store_true", text="write the answer, or the error, as JSON on standard output"),
    argument("-v", "--verbose", action="store_true", text="report decisions on standard error"),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"see '{self.prog} --help'")


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(prog=PROGRAM, description=SUMMARY, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {kernel_hub.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        child = commands.add_parser(
            command.name, help=command.summary, description=command.description, allow_abbrev=False
        )
        for entry in (*command.arguments, *SHARED):
            _add(child, entry)
    return parser


def parse(words: list[str]) -> tuple[Command, argparse.Namespace] | None:
    """The command that a command line names, with its arguments; None if help or the version was asked for and printed.

    Raises:
        UsageError: If the command line is not one of this program.
    """
    parser = make_parser()
    try:
        arguments = parser.parse_args(words)
    except SystemExit:
        # argparse ends the program after it has printed help or the version; every fault of the user goes to `error`.
        return None
    if arguments.command is None:
        raise UsageError(
            f"{PROGRAM}: no command given; there are {', '.join(command.name for command in COMMANDS)}",
            hint=f"see '{PROGRAM} --help'",
        )
    return next(command for command in COMMANDS if command.name == arguments.command), arguments


def _add(parser: argparse.ArgumentParser, entry: Argument) -> None:
    parser.add_argument(*entry.names, help=entry.text, **entry.settings)
