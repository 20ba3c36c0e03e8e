"""The command line: argv -> one library call -> a rendered value. The only part that prints or exits.

Exit codes: 0 done, 1 unexpected, otherwise the error's own (`kernel_hub.errors`), 2 for a wrong command line too, 130 when
interrupted, 141 when the reader of the output went away.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import BinaryIO, TextIO

from kernel_hub.cli.console import Console, OutputLostError
from kernel_hub.errors import KernelHubError

INTERRUPTED = 130
READER_GONE = 141


def main(argv: Sequence[str] | None = None, *, source: BinaryIO | None = None) -> int:
    """Run one command.

    Args:
        argv: The arguments after the program's name; default: this process's.
        source: What to read as standard input; default: this process's.

    Returns:
        The exit code.
    """
    try:
        return _main(list(sys.argv[1:] if argv is None else argv), source)
    except KeyboardInterrupt:
        # It came where no command ran yet, or where one was already interrupted.
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return INTERRUPTED


def _main(words: list[str], source: BinaryIO | None) -> int:
    if source is None:
        source = getattr(sys.stdin, "buffer", None)
    console = Console(_lenient(sys.stdout), _lenient(sys.stderr), source, as_json="--json" in words)
    try:
        code = _answer(words, console)
        console.flush()
    except OutputLostError as error:
        console.discard()
        if isinstance(error.reason, BrokenPipeError):
            return READER_GONE
        console.notice(f"error: {error}")
        return KernelHubError.exit_code
    return code


def _answer(words: list[str], console: Console) -> int:
    try:
        from kernel_hub.cli.parser import parse

        parsed = parse(words)
        if parsed is None:
            return 0
        command, arguments = parsed
        with console.log_records(verbose=arguments.verbose):
            return command.run(arguments, console)
    except KernelHubError as error:
        console.fail(error)
        return error.exit_code
    except KeyboardInterrupt:
        console.interrupted(INTERRUPTED)
        return INTERRUPTED
    except OutputLostError:
        raise
    except Exception as error:
        import traceback

        console.notice(traceback.format_exc().rstrip())
        message = f"unexpected {type(error).__name__}: {error}"
        console.fail(KernelHubError(message, hint="this is a fault of kernel_hub; please report it"))
        return KernelHubError.exit_code


def _lenient(stream: TextIO | None) -> TextIO | None:
    """The stream, set to write an escape for what its encoding lacks instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
    return stream
