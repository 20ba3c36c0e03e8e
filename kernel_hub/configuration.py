"""Reading configuration files: TOML with known keys, and nothing that is passed over in silence.

A key that nobody reads is a setting that its writer believes in, so it is an error that names the file, the key and what was
probably meant. Leaves out which files there are (see `kernel_hub.settings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernel_hub.errors import InvalidDocumentError

_MAX_BYTES = 1 << 20


def read_file(path: Path) -> bytes:
    """The bytes of a configuration file.

    Raises:
        InvalidDocumentError: If it cannot be read, or is longer than any configuration file is.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidDocumentError(str(path), f"cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise InvalidDocumentError(str(path), f"is longer than {_MAX_BYTES} bytes")
    return content


def read_toml(path: Path) -> Mapping[str, Any]:
    """The tables of a TOML file.

    Raises:
        InvalidDocumentError: If it cannot be read, or is not TOML.
    """
    # Imported here, because most loads find no such file.
    import tomllib

    try:
        return tomllib.loads(read_file(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocumentError(str(path), f"is not TOML: {error}") from error


def table_in(document: Mapping[str, Any], path: Path, *keys: str) -> Mapping[str, Any]:
    """A table inside tables; empty if it is absent.

    Raises:
        InvalidDocumentError: If something else stands there.
    """
    table: Any = document
    for key in keys:
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise InvalidDocumentError(str(path), "is not a table", location=".".join(keys))
    return table  # type: ignore[no-any-return]


def require_known(keys: Iterable[str], known: Iterable[str], path: Path, *, inside: str = "") -> None:
    """Refuse keys that nobody reads.

    Args:
        keys: Those that are there.
        known: Those that are read.
        path: The file.
        inside: The table that they stand in; empty for the top of the file.

    Raises:
        InvalidDocumentError: Naming the first key in order of names, and the known one that it resembles.
    """
    names = sorted(known)
    for key in sorted(set(keys) - set(names)):
        # Imported here, because only this error needs it.
        import difflib

        close = difflib.get_close_matches(key.lower().replace("_", "-"), names, n=1)
        meant = f"did you mean {close[0]!r}?" if close else f"the keys are: {', '.join(names)}"
        raise InvalidDocumentError(str(path), "unknown key", location=f"{inside}.{key}" if inside else key, hint=meant)
