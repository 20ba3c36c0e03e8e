"""`kernel-hub select`: judge labels for a machine, without any repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from kernel_hub.cli.command import BACKEND, HOST, Command, UsageError, argument
from kernel_hub.cli.console import error_to_json
from kernel_hub.cli.documents import read_host, read_labels
from kernel_hub.errors import InvalidDocumentError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Sequence

    from kernel_hub.cli.console import Console
    from kernel_hub.model.host import Host
    from kernel_hub.model.selection import Selection

_MAX_LINE_BYTES = 16 << 20


def _run(arguments: Namespace, console: Console) -> int:
    if arguments.stdin:
        if arguments.host is not None or arguments.labels is not None:
            raise UsageError("--stdin takes hosts and labels from standard input", hint="leave out --host and --labels")
        console.as_json = True
        return _answer_lines(arguments.backend, console)
    if arguments.labels is None:
        raise UsageError("no labels to judge", hint="give --labels FILE, or --stdin")
    if arguments.host == arguments.labels == "-":
        raise UsageError("--host and --labels cannot both be standard input")
    host = read_host(arguments.host, console) or _this_host()
    selection = _select(host, read_labels(arguments.labels, console), arguments.backend)
    console.answer(_text(selection), _to_json(selection))
    return 0


def _this_host() -> Host:
    from kernel_hub.api import this_host
    from kernel_hub.settings import load_settings

    return this_host(load_settings())


def _answer_lines(backend: str | None, console: Console) -> int:
    """One line out for each line in; a bad line is answered too, and remembered in the exit code."""
    exit_code = 0
    for number, line in enumerate(_lines(console.source), start=1):
        try:
            host, labels = _question(line, f"line {number}")
            console.line(_to_json(_select(host, labels, backend)))
        except InvalidDocumentError as error:
            console.line(error_to_json(error))
            exit_code = error.exit_code
    return exit_code


def _lines(source: BinaryIO | None) -> Iterator[bytes]:
    """The lines of a stream, each cut off one byte above the limit, so that none can fill the memory."""
    while source is not None and (line := source.readline(_MAX_LINE_BYTES + 1)):
        rest = line
        while len(rest) > _MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = source.readline(_MAX_LINE_BYTES + 1)
        yield line


def _question(line: bytes, name: str) -> tuple[Host, Sequence[str]]:
    from kernel_hub.model.document import load_json_value
    from kernel_hub.model.host import Host

    value = load_json_value(line, name=name, limit_bytes=_MAX_LINE_BYTES)
    if not isinstance(value, dict):
        raise InvalidDocumentError(name, "is not an object with 'host' and 'labels'")
    for key in ("host", "labels"):
        if key not in value:
            raise InvalidDocumentError(name, "is missing", location=key)
    labels = value["labels"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InvalidDocumentError(name, "is not a list of texts", location="labels")
    return Host.from_json(value["host"], name=f"{name}: host"), labels


def _select(host: Host, labels: Sequence[str], backend: str | None) -> Selection:
    from kernel_hub.select import select, variants_of_names

    return select(variants_of_names(labels), host.for_backend(backend))


def _to_json(selection: Selection) -> dict[str, Any]:
    return {
        "accepted": [verdict.variant.name for verdict in selection.accepted],
        "rejected": [
            {
                "label": verdict.variant.name,
                "reason": verdict.reason.value,
                "wanted": verdict.wanted,
                "found": verdict.found,
            }
            for verdict in selection.rejected
        ],
    }


def _text(selection: Selection) -> str:
    from kernel_hub.refusal import machine, nearest

    lines = [f"machine: {machine(selection.host)}"]
    lines.extend(f"fits: {verdict.variant.name}" for verdict in selection.accepted)
    lines.extend(f"not: {near.text}" for near in nearest(selection))
    lines.extend(f"note: {note}" for note in selection.notes)
    return "\n".join(lines)


SELECT = Command(
    "select",
    "judge labels of builds for a machine",
    "Judge labels for a machine: those that fit, best first, then the others with the reason, closest first. GPU "
    "architectures are not looked at, because only metadata tells them. Exits with 0 also if nothing fits: that is an "
    "answer. With --stdin, each line in is a JSON object {'host': {...}, 'labels': [...]}, other keys are ignored; each "
    "line out is {'accepted': [...], 'rejected': [{'label', 'reason', 'wanted', 'found'}]} in the same order. A line that "
    "cannot be read is answered by {'error': {...}}, the lines after it are still answered, and the exit code is 2.",
    (
        HOST,
        argument("--labels", metavar="FILE", text="labels, one on each line or a JSON list ('-': standard input)"),
        argument("--stdin", action="store_true", text="answer questions from standard input, line by line, in JSON"),
        BACKEND,
    ),
    _run,
)
