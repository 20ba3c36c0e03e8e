"""Local overrides: kernels that are taken from a folder, as environment texts name them. Pure.

`KERNEL_HUB_OVERRIDES` and the ecosystem's `LOCAL_KERNELS` hold `org/name=folder` entries, separated by the operating
system's path separator (or by ':' as the ecosystem has it), or a JSON object of names and folders. Ours wins where both
name a kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.value import dataclass
from kernel_hub.places import written_json, written_path

VARIABLES = ("LOCAL_KERNELS", "KERNEL_HUB_OVERRIDES")
_FARTHEST_SLIP = 2
_FORMS = (
    'write org/name=/path/to/folder, several with \':\' between them, or a JSON object: {"org/name": "/path/to/folder"}'
)


@dataclass(frozen=True, slots=True)
class Override:
    """A kernel that is taken from a folder instead of its source.

    Attributes:
        repo: The kernel.
        path: The folder, absolute.
        defined_in: The variable and entry that say so, for records and errors.
    """

    repo: RepoId
    path: Path
    defined_in: str


def read_overrides(environment: Mapping[str, str], here: Path) -> tuple[Override, ...]:
    """The overrides of an environment, sorted by kernel.

    Args:
        environment: Variables by name.
        here: The folder that relative paths start from.

    Raises:
        InvalidDocumentError: Naming the variable and the entry that cannot be read.
    """
    found: dict[RepoId, Override] = {}
    for name in VARIABLES:
        text = environment.get(name, "").strip()
        for repo, path in _override_entries(name, text):
            found[repo] = Override(
                repo, (here / written_path(path, f"{name}: {repo}")).absolute(), f"{name}: {repo}={path}"
            )
    return tuple(found[repo] for repo in sorted(found))


def near_misses(overrides: Iterable[Override], repo: RepoId) -> tuple[Override, ...]:
    """The overrides that do not apply to a kernel, and whose name is probably a misspelling of its name."""
    return tuple(
        override
        for override in overrides
        if override.repo.namespace == repo.namespace
        and override.repo != repo
        and _is_slip(repo.name, override.repo.name)
    )


def _override_entries(name: str, text: str) -> list[tuple[RepoId, str]]:
    if not text:
        return []
    if text.startswith("{"):
        value = written_json(text, name, hint=_FORMS)
        if not isinstance(value, dict) or not all(isinstance(path, str) and path for path in value.values()):
            raise InvalidDocumentError(name, "is not an object of repository names and folders", hint=_FORMS)
        return [(_repo(name, repo), path) for repo, path in value.items()]
    return [_override_entry(name, entry) for entry in _split_entries(text)]


def _split_entries(text: str) -> list[str]:
    """Split `repo=path` entries at the OS's path separator, or at ':' as the ecosystem does.

    A piece without '=' or whose part before '=' is no repository name belongs to the path before it; so a path may hold
    ':' (a Windows drive, or any POSIX path) without being torn apart.
    """
    entries: list[str] = []
    for separator in dict.fromkeys((os.pathsep, ":")):
        pieces = text.split(separator)
        entries = []
        for piece in pieces:
            if _starts_entry(piece) or not entries:
                entries.append(piece)
            else:
                entries[-1] += separator + piece
        if len(entries) > 1:
            break
    return [entry.strip() for entry in entries if entry.strip()]


def _starts_entry(piece: str) -> bool:
    repo, found, _ = piece.strip().partition("=")
    if not found and piece.strip():
        return False
    try:
        RepoId.parse(repo)
    except InvalidDocumentError:
        return not piece.strip()
    return True


def _override_entry(name: str, entry: str) -> tuple[RepoId, str]:
    repo, found, path = entry.partition("=")
    if not found or not path.strip():
        raise InvalidDocumentError(name, f"{entry!r} is not of the form 'org/name=folder'", hint=_FORMS)
    return _repo(name, repo.strip()), path.strip()


def _repo(name: str, text: str) -> RepoId:
    try:
        return RepoId.parse(text)
    except InvalidDocumentError as error:
        raise InvalidDocumentError(name, f"{text!r} is no kernel's name: {error.problem}", hint=_FORMS) from None


def _is_slip(asked: str, written: str) -> bool:
    """Whether one name is probably a misspelling of the other: few letters differ, and more are the same."""
    distance = _edit_distance(asked, written)
    return distance <= _FARTHEST_SLIP and 2 * distance < max(len(asked), len(written))


def _edit_distance(one: str, other: str) -> int:
    """How many letters must be put in, taken out or changed to make one text of the other."""
    above = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        current = [row]
        for column, against in enumerate(other, start=1):
            current.append(min(above[column] + 1, current[-1] + 1, above[column - 1] + (letter != against)))
        above = current
    return above[-1]
