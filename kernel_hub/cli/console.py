"""Where a command reads and writes: standard streams, as text for people or as JSON for programs.

Text from elsewhere (labels, messages of servers) is shown with its control characters escaped, so that nothing a
repository contains can drive the reader's terminal. There is no colour.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, TextIO

from kernel_hub.errors import KernelHubError

# C0 and C1 controls but line feed and tab, and the marks that reorder text.
_ESCAPES = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *(code for code in range(0x20) if chr(code) not in "\n\t"),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    )
}


class OutputLostError(Exception):
    """A stream takes nothing any more.

    Attributes:
        reason: What the operating system said: `BrokenPipeError` if the reader has gone away, which is nobody's fault.
    """

    def __init__(self, reason: OSError) -> None:
        super().__init__(f"the output cannot be written: {reason.strerror or reason}")
        self.reason = reason


def printable(text: str) -> str:
    """`text` with control characters written as escapes; line feeds and tabs stay."""
    return text.translate(_ESCAPES)


def error_to_json(error: KernelHubError) -> dict[str, object]:
    """An error as every command writes it under `--json`."""
    return {
        "error": {
            "type": type(error).__name__,
            "message": error.message,
            "hint": error.hint(),
            "exit_code": error.exit_code,
        }
    }


class Console:
    """The streams of one run of the command line.

    Args:
        output: Takes answers; None if it is closed.
        notices: Takes errors and notices; None if it is closed.
        source: What a command that reads standard input reads; None if it is closed.
        as_json: Whether answers and errors are JSON documents on `output`.
    """

    def __init__(
        self, output: TextIO | None, notices: TextIO | None, source: BinaryIO | None, *, as_json: bool
    ) -> None:
        self._output = output
        self._notices = notices
        self.source = source
        self.as_json = as_json
        self._awaits_json = as_json

    def answer(self, text: str, value: object) -> None:
        """Write an answer: `value` as an indented JSON document if JSON is asked for, else `text`."""
        self._awaits_json = False
        self._write(self._output, _document(value) if self.as_json else printable(text))

    def line(self, value: object) -> None:
        """Write one JSON value on a line of its own and send it off, for readers that wait for each line."""
        self._awaits_json = False
        self._write(self._output, _document(value, indent=None))
        self.flush()

    def fail(self, error: KernelHubError) -> None:
        """Write an error: a JSON document on the output if JSON is asked for, else text beside it."""
        if self.as_json:
            self._write(self._output, _document(error_to_json(error)))
        else:
            hint = f"\n  hint: {error.hint()}" if error.hint() else ""
            self.notice(f"error: {error.message}{hint}")

    def interrupted(self, exit_code: int) -> None:
        """Write that the command was interrupted, in JSON as an error of that name if there was no answer before."""
        if self._awaits_json:
            stopped = {"type": "KeyboardInterrupt", "message": "interrupted", "hint": "", "exit_code": exit_code}
            self._write(self._output, _document({"error": stopped}))
        else:
            self.notice("interrupted")

    def notice(self, text: str) -> None:
        """Write a line for people beside the answer."""
        self._write(self._notices, printable(text))
        self._flush(self._notices)

    @property
    def is_watched(self) -> bool:
        """Whether somebody reads notices as they come: a terminal, and not a program that asked for JSON."""
        return self._notices is not None and not self.as_json and self._notices.isatty()

    def progress(self) -> Callable[[str, int, int], None] | None:
        """A listener for downloads that writes a line for each finished file; None if nobody watches a terminal."""
        if not self.is_watched:
            return None

        def show(path: str, done_bytes: int, all_bytes: int) -> None:
            if done_bytes >= all_bytes:
                self.notice(f"fetched {path} ({size_text(all_bytes)})")

        return show

    @contextmanager
    def log_records(self, *, verbose: bool) -> Iterator[None]:
        """Show the library's log records as notices: warnings, or with `verbose` every decision it reports."""
        import logging

        class _Notices(logging.Handler):
            def emit(handler, record: logging.LogRecord) -> None:  # noqa: N805
                self.notice(f"{record.levelname.lower()}: {handler.format(record)}")

        records = _Notices(logging.INFO if verbose else logging.WARNING)
        logger = logging.getLogger("kernel_hub")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(records)
        logger.setLevel(records.level)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(records)
            logger.setLevel(level)
            logger.propagate = propagate

    def flush(self) -> None:
        """Send off the answers written so far."""
        self._flush(self._output)

    def discard(self) -> None:
        """Drop what cannot be written any more, so that the interpreter does not fail on it when it ends."""
        # A stream of a test, or one that is closed, has no descriptor; then there is nothing to redirect.
        with suppress(OSError, ValueError, AttributeError):
            descriptor = os.open(os.devnull, os.O_WRONLY)
            os.dup2(descriptor, self._output.fileno())  # type: ignore[union-attr]
            os.close(descriptor)

    @staticmethod
    def _write(stream: TextIO | None, text: str) -> None:
        if stream is None:
            return
        try:
            stream.write(text + "\n")
        except OSError as error:
            raise OutputLostError(error) from error

    @staticmethod
    def _flush(stream: TextIO | None) -> None:
        if stream is None:
            return
        try:
            stream.flush()
        except OSError as error:
            raise OutputLostError(error) from error


def _document(value: object, *, indent: int | None = 2) -> str:
    # Imported here, because the answer to `--help` needs no JSON and should not wait for it.
    import json

    return json.dumps(value, indent=indent)


def counted(count: int, noun: str) -> str:
    """A number with what it counts, e.g. `1 kernel`, `2 kernels`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_text(size_bytes: int) -> str:
    """A length for people, e.g. `1.5 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
