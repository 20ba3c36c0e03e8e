"""Reading the files that a command line names: a host, a list of labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.errors import InvalidDocumentError

if TYPE_CHECKING:
    from kernel_hub.cli.console import Console
    from kernel_hub.model.host import Host

_MAX_BYTES = 16 << 20
_STANDARD_INPUT = "-"
_HOST_FORM = "see what one looks like: kernel-hub host --json"


def read_document(path: str, console: Console) -> tuple[bytes, str]:
    """The bytes of a file that the caller named, and what to call it in errors.

    Raises:
        InvalidDocumentError: If it cannot be read or is longer than 16 MiB.
    """
    from pathlib import Path

    name = "standard input" if path == _STANDARD_INPUT else path
    try:
        if path == _STANDARD_INPUT:
            content = b"" if console.source is None else console.source.read(_MAX_BYTES + 1)
        else:
            with Path(path).expanduser().open("rb") as stream:
                content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidDocumentError(name, f"cannot be read: {error.strerror or error}") from error
    if len(content) > _MAX_BYTES:
        raise InvalidDocumentError(name, f"is longer than {_MAX_BYTES} bytes")
    return content, name


def read_host(path: str | None, console: Console) -> Host | None:
    """The machine described in a file; None if no file is named.

    Every fact may be left out but one: a file that names neither the CPU nor the system describes no machine.

    Raises:
        InvalidDocumentError: Naming the file and the key at fault.
    """
    if path is None:
        return None
    from kernel_hub.model.document import load_json_value
    from kernel_hub.model.host import Host

    content, name = read_document(path, console)
    try:
        host = Host.from_json(load_json_value(content, name=name, limit_bytes=_MAX_BYTES), name=name)
    except InvalidDocumentError as error:
        raise InvalidDocumentError(
            error.document, error.problem, location=error.location, hint=error.hint() or _HOST_FORM
        ) from None
    if host.cpu is None and host.os is None:
        raise InvalidDocumentError(name, "names neither 'cpu' nor 'os', so it describes no machine", hint=_HOST_FORM)
    return host


def read_labels(path: str, console: Console) -> list[str]:
    """Labels from a file: a JSON list of texts, or one label on each line that is not blank.

    Raises:
        InvalidDocumentError: Naming the file.
    """
    from kernel_hub.model.document import load_json_value

    content, name = read_document(path, console)
    if content.lstrip()[:1] == b"[":
        value = load_json_value(content, name=name, limit_bytes=_MAX_BYTES)
        if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
            raise InvalidDocumentError(name, "is not a list of texts")
        return value
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidDocumentError(name, f"is not UTF-8 (byte {error.start})") from error
    return [line.strip() for line in lines if line.strip()]
