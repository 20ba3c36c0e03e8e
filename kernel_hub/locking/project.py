"""A project's declared kernels: the tables of its `pyproject.toml`, read and edited in place.

    [tool.kernel-hub.dependencies]
    "org/flash-attn" = "1"                                      # or 1, or ">=1,<3", or "*" for any version
    "org/moe" = { version = 2, targets = ["linux-x86_64-cu128-torch2.13"] }
    "org/attn" = { revision = "main" }

    [tool.kernels.dependencies]                                 # the ecosystem's own table: whole numbers
    "org/axpy" = 1

Editing keeps comments and order, through tomlkit (extra `lock`). Leaves out the registries and other settings in the same
file (see `kernel_hub.settings`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_hub.errors import InvalidDocumentError, MissingDependencyError
from kernel_hub.locking.files import read_bounded, replace_whole
from kernel_hub.model.lock import ANY, Declaration, plain_wish, sorted_targets, wish_text
from kernel_hub.model.lock_names import OWN
from kernel_hub.model.requirement import AtRevision, ExactVersion, RepoId, Requirement
from kernel_hub.model.target import Target

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

PROJECT_FILE = "pyproject.toml"
OWN_TABLE = ("tool", "kernel-hub", "dependencies")
PEER_TABLE = ("tool", "kernels", "dependencies")
_MAX_BYTES = 1 << 20
_FORMS = 'write "1", ">=1,<3", "*", { version = 2, targets = [...] } or { revision = "..." }'


@dataclass(frozen=True, slots=True)
class Project:
    """A folder with a project file.

    Attributes:
        folder: The project's folder.
        declared: The kernels that it asks for, sorted by repository.
        declares_own: Whether it has our own table, with anything in it.
    """

    folder: Path
    declared: tuple[Declaration, ...]
    declares_own: bool

    @property
    def lock_path(self) -> Path:
        """Where its lock lies, or would."""
        return self.folder / OWN


def find_project(folder: Path) -> Path | None:
    """The nearest folder upwards that has a project file, or None."""
    return next((place for place in (folder, *folder.parents) if (place / PROJECT_FILE).is_file()), None)


def read_project(folder: Path) -> Project:
    """Read the declarations of the project in `folder`.

    Raises:
        InvalidDocumentError: Naming the file and the key at fault.
    """
    path = folder / PROJECT_FILE
    try:
        document = tomllib.loads(_content(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocumentError(str(path), f"is not TOML: {error}") from error
    own, peer = _table(document, path, OWN_TABLE), _table(document, path, PEER_TABLE)
    declared: dict[RepoId, Declaration] = {}
    for table, keys in ((peer, PEER_TABLE), (own, OWN_TABLE)):
        for repo_text, value in (table or {}).items():
            location = f"{'.'.join(keys)}.{repo_text}"
            found = _declaration(repo_text, value, path, location, whole_numbers_only=keys is PEER_TABLE)
            known = declared.setdefault(found.requirement.repo, found)
            if wish_text(known.requirement.wish) != wish_text(found.requirement.wish):
                problem = f"asks for {wish_text(found.requirement.wish)}, but {'.'.join(PEER_TABLE)} for "
                raise InvalidDocumentError(
                    str(path),
                    f"{problem}{wish_text(known.requirement.wish)}",
                    location=location,
                    hint="keep one of them",
                )
            declared[found.requirement.repo] = found
    ordered = tuple(declared[repo] for repo in sorted(declared, key=str))
    return Project(folder, ordered, declares_own=bool(own))


def add_declaration(folder: Path, declaration: Declaration) -> None:
    """Write a declaration into the project file, in place of one of the same kernel; everything else stays as it is.

    Raises:
        InvalidDocumentError: If the file cannot be read.
        MissingDependencyError: If tomlkit is not installed.
    """
    path = folder / PROJECT_FILE
    document = _document(path)
    repo = str(declaration.requirement.repo)
    _discard(document, PEER_TABLE, repo)
    table = _made_table(document, OWN_TABLE)
    table[repo] = _value_of(declaration)
    _write(path, document)


def remove_declaration(folder: Path, repo: RepoId) -> bool:
    """Take a kernel out of the project file; False if it was not declared.

    Raises:
        As `add_declaration`.
    """
    path = folder / PROJECT_FILE
    document = _document(path)
    removed = [_discard(document, table, str(repo)) for table in (OWN_TABLE, PEER_TABLE)]
    if any(removed):
        _write(path, document)
    return any(removed)


def _content(path: Path) -> bytes:
    return read_bounded(path, _MAX_BYTES, hint=f"name the project's folder, which holds {PROJECT_FILE}")


def _table(document: Mapping[str, Any], path: Path, keys: tuple[str, ...]) -> Mapping[str, Any] | None:
    table: Any = document
    for depth, key in enumerate(keys):
        if key not in table:
            return None
        table = table[key]
        if not isinstance(table, dict):
            raise InvalidDocumentError(str(path), "is not a table", location=".".join(keys[: depth + 1]))
    return table  # type: ignore[no-any-return]


def _declaration(repo_text: str, value: object, path: Path, location: str, *, whole_numbers_only: bool) -> Declaration:
    try:
        if whole_numbers_only and (isinstance(value, bool) or not isinstance(value, int)):
            raise InvalidDocumentError("requirement", f"{value!r} is not a whole number")
        if not isinstance(value, dict):
            return Declaration(_requirement(repo_text, value))
        unknown = sorted(set(value) - {"version", "revision", "targets"})
        if unknown:
            raise InvalidDocumentError("requirement", f"unknown key {unknown[0]!r}")
        targets = value.get("targets", [])
        if not isinstance(targets, list) or not all(isinstance(text, str) for text in targets):
            raise InvalidDocumentError("requirement", "targets is not a list of texts")
        requirement = _requirement(repo_text, value.get("version"), value.get("revision"))
        return Declaration(requirement, sorted_targets(map(Target.parse, targets)))
    except InvalidDocumentError as error:
        raise InvalidDocumentError(str(path), error.problem, location=location, hint=error.hint() or _FORMS) from error


def _requirement(repo_text: str, version: object, revision: object = None) -> Requirement:
    if revision is not None and not isinstance(revision, str):
        raise InvalidDocumentError("requirement", f"revision {revision!r} is not a text")
    if version == ANY or (version is None and revision is None):
        if revision is not None:
            raise InvalidDocumentError("requirement", "has both a version and a revision")
        return Requirement(RepoId.parse(repo_text))
    if version is not None and not isinstance(version, int | str):
        raise InvalidDocumentError("requirement", f"version {version!r} is neither a whole number nor a text")
    repo = RepoId.parse(repo_text)
    return Requirement(repo, plain_wish(Requirement.parse(str(repo), version=version, revision=revision).wish))


def _value_of(declaration: Declaration) -> Any:
    wish = declaration.requirement.wish
    text = str(wish.number) if isinstance(wish, ExactVersion) else wish_text(wish)
    key = "revision" if isinstance(wish, AtRevision) else "version"
    if not declaration.targets and key == "version":
        return text
    tomlkit = _tomlkit()
    table = tomlkit.inline_table()
    table[key] = text
    if declaration.targets:
        table["targets"] = [str(target) for target in sorted_targets(declaration.targets)]
    return table


def _tomlkit() -> Any:
    try:
        import tomlkit
    except ImportError as error:
        raise MissingDependencyError(
            "editing pyproject.toml needs tomlkit, which is not installed",
            distributions=("tomlkit",),
            hint='install it: pip install "kernel-hub[lock]", or edit the file by hand and run: kernel-hub lock',
        ) from error
    return tomlkit


def _document(path: Path) -> TOMLDocument:
    tomlkit = _tomlkit()
    # The plain reader goes first, because its errors name the place.
    read_project(path.parent)
    return tomlkit.parse(_content(path).decode("utf-8"))  # type: ignore[no-any-return]


def _made_table(document: TOMLDocument, keys: tuple[str, ...]) -> Any:
    tomlkit = _tomlkit()
    table: Any = document
    for depth, key in enumerate(keys):
        if key not in table:
            table[key] = tomlkit.table(is_super_table=depth < len(keys) - 1)
        table = table[key]
    return table


def _discard(document: TOMLDocument, keys: tuple[str, ...], name: str) -> bool:
    table: Any = document
    for key in keys:
        if key not in table:
            return False
        table = table[key]
    if name not in table:
        return False
    del table[name]
    return True


def _write(path: Path, document: TOMLDocument) -> None:
    replace_whole(path, _tomlkit().dumps(document).encode("utf-8"))
