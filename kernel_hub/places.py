"""Paths and URLs that people wrote, and files that may not be looked at: typed errors and plain answers, never a crash.

Python's own functions raise bare errors for a home folder that is not known, a parent folder that may not be read, a URL with
half a bracket. Containers, service users and typing errors bring all of them about.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from kernel_hub.errors import InvalidDocumentError


def written_path(text: str | Path, said_by: str) -> Path:
    """A path as somebody wrote it, with `~` and `~user` replaced.

    Args:
        text: What was written.
        said_by: The variable, argument or file and key that says it.

    Raises:
        InvalidDocumentError: If a home folder is not known, or the text cannot be a path.
    """
    if "\0" in str(text):
        raise InvalidDocumentError(said_by, f"{str(text)!r} holds a NUL character, which no path has")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise InvalidDocumentError(
            said_by, f"the home folder in {str(text)!r} is not known", hint="write the whole path"
        ) from None


def below_home(*parts: str, instead: str) -> Path:
    """A path below the user's home folder.

    Args:
        parts: What follows the home folder.
        instead: The variable that says the path where there is no home folder.

    Raises:
        InvalidDocumentError: If this user has no home folder.
    """
    try:
        return Path.home().joinpath(*parts)
    except RuntimeError:
        raise InvalidDocumentError(
            "HOME",
            "is not set, and this user has no home folder",
            hint=f"set {instead} to a folder that may be written",
        ) from None


def is_file(path: Path) -> bool:
    """Whether there is a file that may be looked at; one behind a folder that may not be entered is as good as none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """Whether there is anything of that name that may be looked at, be it a file, a folder or a device."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def working_folder() -> Path:
    """The working folder; the root of the file system if it was deleted."""
    try:
        return Path.cwd()
    except OSError:
        return Path(Path(__file__).anchor)


def written_url(text: str, said_by: str) -> SplitResult:
    """A URL as somebody wrote it, in its parts.

    Raises:
        InvalidDocumentError: If it is malformed.
    """
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InvalidDocumentError(said_by, f"{text!r} is not a URL: {error}") from None
    return parts


def written_json(text: str, said_by: str, *, hint: str = "") -> Any:
    """A JSON value as somebody wrote it.

    Raises:
        InvalidDocumentError: If it is malformed, or nested too deep.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidDocumentError(said_by, f"is not JSON: {error.msg}", hint=hint) from None
    except RecursionError:
        raise InvalidDocumentError(said_by, "is not JSON: nested too deep", hint=hint) from None
