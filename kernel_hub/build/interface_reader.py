"""Reading what a kernel offers from its Python sources, as syntax trees; nothing of it is run.

`__all__` is followed through relative imports and plain assignments. What is made in a way that a reader can't follow, such
as an operator under another name or a function that a call returns, is recorded without parameters. Decorators are taken to
keep a function's parameters, as those of torch do.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kernel_hub.build.interface import ApiRecord, Kind, Layer, Parameter, Parameters
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import covers
from kernel_hub.model.metadata import MAX_BYTES, Metadata
from kernel_hub.tree import paths_of

_ENTRY = "__init__.py"
_LAYERS = "layers"
# Classes that are made without arguments if they do not say otherwise.
_PLAIN_CLASSES = frozenset({"object", "Module"})
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
# More steps from a name to what it names are a circle, or made to keep a reader busy.
_MOST_STEPS = 50


def record_api(build_folder: Path) -> ApiRecord:
    """What a build offers.

    Args:
        build_folder: One build, with its `metadata.json`.

    Raises:
        InvalidDocumentError: If its metadata is malformed, or it can't be told what it offers.
        UnsafePathError: If it holds what is no regular file.
    """
    with (build_folder / "metadata.json").open("rb") as file:
        metadata = Metadata.parse(file.read(MAX_BYTES + 1))
    sources = {
        path: (build_folder / path).read_bytes()
        for path in paths_of(build_folder)
        if path.endswith(".py") and covers(path)
    }
    return read_api(sources, name=metadata.name, version=metadata.version)


def read_api(sources: Mapping[str, bytes], *, name: str, version: int) -> ApiRecord:
    """What a kernel with these sources offers.

    Args:
        sources: The Python files of a build, by path.
        name: The kernel's name.
        version: Its major version.

    Raises:
        InvalidDocumentError: If a file that matters is missing or no Python, or `__all__` is not written out.
    """
    package = _Package(sources)
    offered = _names_in(package.module(_ENTRY))
    functions = {item: _parameters(package.find(_ENTRY, item), package) for item in offered if item != _LAYERS}
    layers = dict(_layers(package)) if _LAYERS in offered else {}
    return ApiRecord(name, version, functions, layers)


@dataclass(frozen=True, slots=True)
class _Found:
    """A definition, and the file it stands in."""

    node: _Function | ast.ClassDef
    path: str


class _Package:
    """The sources of a build, parsed when they are asked for."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._trees: dict[str, ast.Module] = {}

    def module(self, path: str) -> ast.Module:
        if path not in self._trees:
            if path not in self._sources:
                raise InvalidDocumentError(path, "is missing, so it can't be told what the kernel offers")
            try:
                self._trees[path] = ast.parse(self._sources[path])
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise InvalidDocumentError(path, f"is not Python: {error}") from error
        return self._trees[path]

    def path_of(self, module: str) -> str | None:
        """The file of a module of the package, by its name with `/` for `.`; None if it has none."""
        places = (f"{module}/{_ENTRY}", f"{module}.py") if module else (_ENTRY,)
        return next((place for place in places if place in self._sources), None)

    def find(self, path: str, name: str, steps: int = 0) -> _Found | None:
        """The one definition of a name in a module, imports followed; None if there is none, or there are several."""
        if steps > _MOST_STEPS:
            return None
        bindings = [node for node in _statements(self.module(path).body) if name in _bound(node)]
        # An overload says nothing that the last definition, which is called, does not.
        bindings = [node for node in bindings if not _is_overload(node)]
        if len(bindings) != 1:
            return None
        match bindings[0]:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() as node:
                return _Found(node, path)
            case ast.ImportFrom(level=level, module=module, names=names) if level > 0:
                origin = next(alias.name for alias in names if (alias.asname or alias.name) == name)
                target = self.path_of(_absolute(path, level, module or ""))
                return None if target is None else self.find(target, origin, steps + 1)
            case ast.Assign(value=ast.Name(id=other)) if other != name:
                return self.find(path, other, steps + 1)
        return None


def _absolute(path: str, level: int, module: str) -> str:
    """The name of the module that an import in a file means, with `/` for `.`."""
    folders = path.split("/")[:-1]
    kept = folders[: max(0, len(folders) - (level - 1))]
    return "/".join([*kept, *(part for part in module.split(".") if part)])


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, those inside conditions among them."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(node, _Function | ast.ClassDef):
                yield from _statements(getattr(node, field, ()))
        for handler in getattr(node, "handlers", ()):
            yield from _statements(handler.body)


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
        case ast.Assign(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def _is_overload(node: ast.stmt) -> bool:
    return isinstance(node, _Function) and any(
        ast.unparse(item) in ("overload", "typing.overload") for item in node.decorator_list
    )


def _names_in(tree: ast.Module) -> tuple[str, ...]:
    """The texts of `__all__`.

    Raises:
        InvalidDocumentError: If it is missing, or computed.
    """
    found: list[str] | None = None
    for node in tree.body:
        if "__all__" not in _bound(node):
            continue
        value = getattr(node, "value", None)
        texts = (
            [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if (isinstance(value, ast.List | ast.Tuple))
            else None
        )
        if texts is None or not isinstance(value, ast.List | ast.Tuple) or len(texts) != len(value.elts):
            raise InvalidDocumentError(
                _ENTRY, "is computed, so it can't be told what the kernel offers", location="__all__",
                hint="write it as a list of texts",
            )  # fmt: skip
        found = [*(found or ()), *texts] if isinstance(node, ast.AugAssign) else texts
    if found is None:
        raise InvalidDocumentError(_ENTRY, "is missing", location="__all__", hint="name what the kernel offers in it")
    return tuple(dict.fromkeys(found))


def _parameters(found: _Found | None, package: _Package) -> Parameters:
    if found is None:
        return None
    if isinstance(found.node, ast.ClassDef):
        return _method(found.node, "__init__", package, found.path)
    return tuple(_each(found.node.args))


def _layers(package: _Package) -> Iterator[tuple[str, Layer]]:
    path = package.path_of(_LAYERS)
    if path is None:
        return
    tree = package.module(path)
    bound = {name for node in _statements(tree.body) for name in _bound(node)}
    for name in sorted(bound):
        found = None if name.startswith("_") else package.find(path, name)
        if found is not None and isinstance(found.node, ast.ClassDef):
            node, place = found.node, found.path
            yield name, Layer(_method(node, "__init__", package, place), _method(node, "forward", package, place))


def _method(node: ast.ClassDef, name: str, package: _Package, path: str, steps: int = 0) -> Parameters:
    """The parameters of a method without the first, that of a base class if the class has none of that name."""
    own = [item for item in node.body if isinstance(item, _Function) and item.name == name]
    if own:
        return tuple(_each(own[-1].args))[1:]
    if len(node.bases) != 1 or node.keywords or node.decorator_list or steps > _MOST_STEPS:
        return () if not node.bases and not node.keywords and not node.decorator_list and name == "__init__" else None
    base = ast.unparse(node.bases[0])
    if base.rpartition(".")[2] in _PLAIN_CLASSES:
        return () if name == "__init__" else None
    found = package.find(path, base)
    if found is None or not isinstance(found.node, ast.ClassDef):
        return None
    return _method(found.node, name, package, found.path, steps + 1)


def _each(arguments: ast.arguments) -> Iterator[Parameter]:
    positional = [*arguments.posonlyargs, *arguments.args]
    absent = len(positional) - len(arguments.defaults)
    for index, item in enumerate(positional):
        kind = Kind.POSITIONAL_ONLY if index < len(arguments.posonlyargs) else Kind.EITHER
        yield Parameter(item.arg, kind, ast.unparse(arguments.defaults[index - absent]) if index >= absent else None)
    if arguments.vararg is not None:
        yield Parameter(arguments.vararg.arg, Kind.VAR_POSITIONAL)
    for item, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(item.arg, Kind.KEYWORD_ONLY, None if default is None else ast.unparse(default))
    if arguments.kwarg is not None:
        yield Parameter(arguments.kwarg.arg, Kind.VAR_KEYWORD)
