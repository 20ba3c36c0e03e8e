"""A kernel's folder: its recipes and the files they name, all of it checked before anything is built.

A folder holds `build.toml` and may hold further recipes `build.<name>.toml`, because one recipe has exactly one framework
table (docs/decisions/0005-several-recipes.md). Every file that a recipe names must exist and, links followed, lie inside
the folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.build.reader import MAX_BYTES, parse_recipe
from kernel_hub.build.recipe import NoarchFramework, Recipe, TvmFfiFramework
from kernel_hub.errors import InvalidDocumentError

_RECIPE_NAME = re.compile(r"build(\.[A-Za-z0-9_-]+)?\.toml")
SOURCE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".hip"})
_HEADER_SUFFIXES = frozenset({".h", ".hh", ".hpp", ".hxx", ".cuh", ".inc", ".inl"})


@dataclass(frozen=True, slots=True)
class Project:
    """A kernel's folder and its recipes.

    Attributes:
        folder: Absolute, links resolved.
        recipes: By file name; all agree on name, version and licence.
    """

    folder: Path
    recipes: dict[str, Recipe]

    @property
    def first(self) -> Recipe:
        """The recipe to ask for what all of them agree on."""
        return next(iter(self.recipes.values()))


def open_project(folder: Path) -> Project:
    """Read and check every recipe of a kernel's folder.

    Raises:
        InvalidDocumentError: If there is no recipe, one is malformed, they disagree, or a file that one names is missing
            or lies outside the folder.
    """
    root = folder.resolve()
    names = sorted(path.name for path in root.glob("build*.toml") if _RECIPE_NAME.fullmatch(path.name))
    if not names:
        raise InvalidDocumentError(
            str(folder), "has no build.toml", hint="name the folder of a kernel's sources, the one with build.toml"
        )
    # build.toml comes first: what the recipes share is asked of it.
    names.sort(key=lambda name: (name != "build.toml", name))
    recipes = {name: parse_recipe(_read(root, name), name=f"{folder / name}") for name in names}
    project = Project(root, recipes)
    _require_agreement(folder, project)
    for name, recipe in recipes.items():
        _require_files(root, recipe, f"{folder / name}")
    return project


def python_folder(root: Path, recipe: Recipe) -> Path:
    """Where the Python sources of a recipe's kernel lie."""
    parent = "tvm-ffi-ext" if isinstance(recipe.framework, TvmFfiFramework) else "torch-ext"
    return root / parent / recipe.python_name


def require_inside(root: Path, path: Path, *, document: str, location: str) -> Path:
    """`path` with links resolved.

    Raises:
        InvalidDocumentError: If it does not exist or lies outside `root`.
    """
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise InvalidDocumentError(document, f"{path.relative_to(root)} does not exist", location=location) from error
    if not real.is_relative_to(root):
        raise InvalidDocumentError(
            document, f"{path.relative_to(root)} leads out of the kernel's folder", location=location
        )
    return real


def _read(root: Path, name: str) -> bytes:
    path = require_inside(root, root / name, document=name, location="")
    if not path.is_file():
        raise InvalidDocumentError(name, "is not a file")
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _require_agreement(folder: Path, project: Project) -> None:
    names = list(project.recipes)
    first = project.first
    for name in names[1:]:
        other = project.recipes[name]
        for key in ("name", "version", "license"):
            ours, theirs = getattr(first, key), getattr(other, key)
            if ours != theirs:
                raise InvalidDocumentError(
                    f"{folder / name}", f"is {theirs!r}, but {ours!r} in {names[0]}", location=f"general.{key}"
                )


def _require_files(root: Path, recipe: Recipe, document: str) -> None:
    for named in recipe.paths():
        require_inside(root, root / named, document=document, location=named)
    for location, sources in _sources(recipe):
        for source in sources:
            suffix = Path(source).suffix
            if suffix not in SOURCE_SUFFIXES and suffix not in _HEADER_SUFFIXES:
                raise InvalidDocumentError(document, f"{source} is neither source nor header", location=location)
            if not (root / source).is_file():
                raise InvalidDocumentError(document, f"{source} is not a file", location=location)
    package = python_folder(root, recipe)
    entry = require_inside(root, package / "__init__.py", document=document, location="general.name")
    if not entry.is_file():
        raise InvalidDocumentError(document, f"{entry.relative_to(root)} is not a file", location="general.name")
    for twin in (package / recipe.python_name, package / f"{recipe.python_name}.py"):
        if twin.exists():
            raise InvalidDocumentError(
                document,
                f"{twin.relative_to(root)} is called like the package that holds it",
                location="general.name",
                hint="a loader that finds a folder of the kernel's name in a build takes that for the kernel",
            )


def _sources(recipe: Recipe) -> list[tuple[str, tuple[str, ...]]]:
    found = [(f"kernel.{component.name}.src", component.src) for component in recipe.components]
    if not isinstance(recipe.framework, NoarchFramework):
        found.append(("torch.src", recipe.framework.src))
    return found
