"""Names inside a repository: paths of files, and names of branches and tags.

A path is refused unless every operating system can lay it on a disk below a folder, as the file that was meant. Leaves
out: names of repositories (see `kernel_hub.model.requirement`) and paths that are already on a disk (see
`kernel_hub.verify`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import ALPHANUMERIC, Pattern, Word
from kernel_hub.model.requirement import is_commit

ATTESTATION_FOLDER = "attestations"
"""Where a repository keeps the attestations of its builds: beside `build/`, because a build holds listed files only."""

MAX_PATH_BYTES = 1024
MAX_COMPONENT_BYTES = 255
MAX_REF_CHARS = 200

# Windows opens a device for these names in any folder, with any extension.
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))})
_REFUSED_SIGNS = '\\:*?"<>|'
_REFUSED = Pattern(rf"[\x00-\x1f\x7f{re.escape(_REFUSED_SIGNS)}]")
_REF = Word(f"{ALPHANUMERIC}_", f"{ALPHANUMERIC}._/+-")


def attestation_path(label: str) -> str:
    """Where the attestation of a build lies in its repository."""
    return f"{ATTESTATION_FOLDER}/{label}.json"


def is_device_name(text: str) -> bool:
    """Whether Windows takes `text`, or `text` before its first dot, for a device."""
    return text.partition(".")[0].rstrip(" ").lower() in _DEVICES


def check_file_path(path: str, *, document: str = "path") -> str:
    """The path of a file in a repository, unchanged.

    Args:
        path: Relative to the repository's root, '/' separated.
        document: What the path stands in, for the error.

    Raises:
        InvalidDocumentError: If it is empty, absolute, leaves the root, or could not be written on every system.
    """
    problem = _path_problem(path)
    if problem:
        raise InvalidDocumentError(document, f"the path {path!r} {problem}")
    return path


def check_prefix(path: str, *, document: str = "path") -> str:
    """Like `check_file_path` for a folder; "" is the root."""
    return path if path == "" else check_file_path(path, document=document)


def check_tree(paths: Iterable[str], *, document: str = "commit") -> None:
    """Refuse a set of files in which one path is a file and a folder at once.

    Raises:
        InvalidDocumentError: Naming the path.
    """
    files = set(paths)
    for path in files:
        parent = path.rpartition("/")[0]
        while parent:
            if parent in files:
                raise InvalidDocumentError(document, f"{parent!r} would be a file and, for {path!r}, a folder")
            parent = parent.rpartition("/")[0]


def check_ref_name(name: str, *, document: str = "branch") -> str:
    """The name of a branch or tag, unchanged.

    Raises:
        InvalidDocumentError: If git would refuse it, or if it could be taken for a commit id or a full reference.
    """
    problem = _ref_problem(name)
    if problem:
        raise InvalidDocumentError(document, f"{name!r} {problem}")
    return name


def is_ref_name(name: str) -> bool:
    """Whether `check_ref_name` accepts `name`."""
    return not _ref_problem(name)


def _path_problem(path: str) -> str:
    try:
        length_bytes = len(path.encode("utf-8"))
    except UnicodeEncodeError:
        return "is not Unicode text"
    if not path:
        return "is empty"
    if length_bytes > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if path.startswith("/"):
        return "is absolute"
    # One search instead of one per character: every listing and every warm load asks this of each of its paths.
    if _REFUSED.search(path):
        if any(ord(char) < 32 or ord(char) == 127 for char in path):
            return "has a control character"
        return f"has a {next(char for char in _REFUSED_SIGNS if char in path)!r}"
    for part in path.split("/"):
        problem = _component_problem(part)
        if problem:
            return problem
    return ""


def _component_problem(part: str) -> str:
    if part in ("", ".", ".."):
        return "has an empty, '.' or '..' component"
    if len(part.encode("utf-8")) > MAX_COMPONENT_BYTES:
        return f"has a component of more than {MAX_COMPONENT_BYTES} bytes"
    if part.lower() == ".git":
        return "has a component '.git'"
    if part[-1] in ". ":
        return "has a component that ends in a dot or a space"
    if is_device_name(part):
        return f"has the component {part!r}, which is a device on Windows"
    return ""


def _ref_problem(name: str) -> str:
    if not _REF.matches(name) or len(name) > MAX_REF_CHARS:
        return (
            f"is not a name of at most {MAX_REF_CHARS} letters, digits, '.', '_', '/', '+' and '-' "
            "that starts with a letter, a digit or '_'"
        )
    if is_commit(name):
        return "looks like a commit id"
    if name.startswith("refs/") or name == "HEAD":
        return "is reserved"
    for part in name.split("/"):
        if part == "" or part.startswith(".") or part.endswith((".", ".lock")) or ".." in part:
            return "has an empty component, or one that starts or ends with '.', holds '..' or ends in '.lock'"
    return ""
