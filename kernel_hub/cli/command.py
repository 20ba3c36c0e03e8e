"""A command of the command line as a value: its name, its arguments, what it runs.

The parser and the reference page are both made from these values. Nothing here imports a library that takes time to load;
a command imports what it needs when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_hub.errors import KernelHubError

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console
    from kernel_hub.settings import Settings


class UsageError(KernelHubError):
    """A command line that says something else than the command takes."""

    exit_code = 2


class MissingExtraError(KernelHubError):
    """A command whose libraries are not installed with the loader's."""


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Imports of libraries that only an extra of this package installs.

    Raises:
        MissingExtraError: If one is not there, with what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("kernel_hub"):
            raise
        hint = f"pip install 'kernel-hub[{extra}]'"
        library = error.name.partition(".")[0]
        raise MissingExtraError(f"this command needs {library}, which is not installed", hint=hint) from error


def token_in(settings: Settings, variable: str | None) -> str | None:
    """The token in an environment variable; None if none is named.

    Raises:
        UsageError: If the variable is not set.
    """
    if variable is None:
        return None
    token = settings.environ.get(variable)
    if not token:
        raise UsageError(f"--token-env: the variable {variable} is not set", hint="set it to the token")
    return token


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument or option.

    Attributes:
        names: `("repo",)` for an argument, `("-v", "--verbose")` for an option.
        text: What it means, one sentence.
        settings: What `argparse.ArgumentParser.add_argument` takes beside the names and the text.
    """

    names: tuple[str, ...]
    text: str
    settings: Mapping[str, Any]

    @property
    def shown(self) -> str:
        """How the reference page writes it, e.g. `--host FILE`."""
        metavar = self.settings.get("metavar")
        if not self.names[0].startswith("-"):
            name = metavar or self.names[0].upper()
            return {"?": f"[{name}]", "*": f"[{name} ...]"}.get(str(self.settings.get("nargs")), str(name))
        if metavar is None and "choices" in self.settings:
            metavar = f"{{{','.join(map(str, self.settings['choices']))}}}"
        if metavar and self.settings.get("nargs") == "?":
            metavar = f"[{metavar}]"
        return ", ".join(self.names) + (f" {metavar}" if metavar else "")


def argument(*names: str, text: str, **settings: Any) -> Argument:
    """An `Argument`, written as `add_argument` is called."""
    return Argument(names, text, settings)


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: The word after `kernel-hub`.
        summary: One line for the list of commands.
        description: What it does, what it prints, and when it exits with which code.
        arguments: Its own arguments; those of every command are added by the parser.
        run: Does it and returns the exit code; raises `KernelHubError` for every expected failure.
    """

    name: str
    summary: str
    description: str
    arguments: Sequence[Argument]
    run: Callable[[Namespace, Console], int]


HOST = argument(
    "--host",
    metavar="FILE",
    text="the machine to ask about, as 'kernel-hub host --json' writes it ('-': standard input); default: this machine",
)
BACKEND = argument(
    "--backend", metavar="NAME", text="the backend to ask for (cpu, cuda, rocm, ...); default: what fits the machine"
)
REPO = argument(
    "repo",
    metavar="REPO",
    text="the kernel: org/name, org/name@v1, 'org/name@>=1,<3' or org/name@REVISION",
)
VERSION = argument("--version", metavar="VERSION", text="a version of the kernel (1) or specifiers ('>=1,<3')")
REVISION = argument("--revision", metavar="REVISION", text="a branch, tag or commit instead of a version")
DEVICE = argument(
    "--device", metavar="N", type=int, text="the only GPU that must be able to run it; default: every visible one"
)
TRUST = argument("--trust-remote-code", action="store_true", text="allow code of any publisher")
NO_ARCH_CHECK = argument(
    "--no-arch-check", action="store_true", text="choose without looking at the GPU architectures of builds"
)
