"""The rules for a build's Python sources, read as syntax trees and never run.

Repository format, section (e), "Source check". A build is imported under a name that its author does not choose, beside
other builds of the same kernel, so it may not import itself by name, nor what the machine need not have, nor register an
operator under a name that another build registers too.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_hub.build.audit.finding import Finding, Rule

_ALWAYS_THERE = frozenset({"torch", "triton"})
_FLOOR = (3, 9)
_REGISTRARS = frozenset(
    {"custom_op", "triton_op", "register_kernel", "register_fake", "register_vmap", "register_torch_dispatch"}
)
_PREFIX_HELPERS = frozenset({"add_op_namespace_prefix", "torch_add_op_namespace_prefix"})
_FORGIVING = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True, slots=True)
class Package:
    """What a build's sources may rely on.

    Attributes:
        name: The kernel's Python name.
        modules: Top-level modules of its declared dependencies.
    """

    name: str
    modules: frozenset[str] = frozenset()


def check_source(content: bytes, path: str, package: Package) -> Iterator[Finding]:
    """Every breach of a rule by a Python file.

    Args:
        content: The file's bytes.
        path: Where it lies in the build.
        package: The build it belongs to.
    """
    try:
        tree = ast.parse(content, feature_version=_FLOOR)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 0
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        floor = ".".join(map(str, _FLOOR))
        yield Finding(
            Rule.SYNTAX, path, "", f"is not Python {floor}: {said}", f"write it so that Python {floor} reads it", line
        )
        return
    yield from _imports(tree, path, package)
    yield from _operators(tree, path)
    yield from _defining_calls(tree, path)
    if not _has_postponed_annotations(tree):
        yield from _annotations(tree, path)
    if path == "__init__.py" and not _offers_names(tree):
        yield Finding(
            Rule.PUBLIC_NAMES, path, "__all__", "is not a list of texts", "name what the kernel offers in __all__"
        )


def _imports(tree: ast.Module, path: str, package: Package) -> Iterator[Finding]:
    optional = set(_optional_nodes(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules = [node.module]
        else:
            continue
        for module in modules:
            top = module.partition(".")[0]
            if top == package.name:
                yield Finding(
                    Rule.SELF_IMPORT, path, module, "is imported by name, which is not the build's name when it is loaded",
                    "import it relatively: from . import ...", node.lineno,
                )  # fmt: skip
            elif node not in optional and top not in sys.stdlib_module_names | _ALWAYS_THERE | package.modules:
                yield Finding(
                    Rule.FOREIGN_IMPORT, path, module,
                    "is neither of the standard library, torch or triton, nor a declared dependency",
                    "declare it in python-depends, or import it inside try/except ImportError", node.lineno,
                )  # fmt: skip


def _optional_nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes whose failure to import is expected, or that never run."""
    for node in ast.walk(tree):
        guarded = isinstance(node, ast.Try) and any(_forgives(handler) for handler in node.handlers)
        typing = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        if isinstance(node, ast.Try | ast.If) and (guarded or typing):
            for statement in node.body:
                yield from ast.walk(statement)


def _forgives(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(kind, ast.Name) and kind.id in _FORGIVING for kind in types)


def _operators(tree: ast.Module, path: str) -> Iterator[Finding]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call) or _last_name(decorator.func) not in _REGISTRARS:
                continue
            first = decorator.args[0] if decorator.args else None
            if not (isinstance(first, ast.Call) and _last_name(first.func) in _PREFIX_HELPERS):
                yield Finding(
                    Rule.OPERATOR_NAME, path, node.name, "is registered under a name that every build of the kernel has",
                    "name it through add_op_namespace_prefix(...) of ._ops", decorator.lineno,
                )  # fmt: skip


def _defining_calls(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Operators that are defined by a call, rather than by a decorator, under a name or in a namespace that is written out."""
    for node in _run_on_import(tree):
        if not isinstance(node, ast.Call):
            continue
        called = _last_name(node.func)
        first = node.args[0] if node.args else None
        text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
        # A library's own `define` takes a schema, whose namespace is the library's.
        is_operator = called in _REGISTRARS | {"define"} and "::" in text.partition("(")[0]
        if is_operator or (text and called == "Library" and _defines(node)):
            yield Finding(
                Rule.OPERATOR_NAME, path, called, "names an operator as every build of the kernel does",
                "take the name from add_op_namespace_prefix(...) of ._ops", node.lineno,
            )  # fmt: skip


def _run_on_import(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a module outside of functions and of what decorates them, which have a rule of their own."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
            pending.extend(child for child in ast.iter_child_nodes(node) if child not in decorators)


def _defines(call: ast.Call) -> bool:
    """Whether `torch.library.Library` is called to define operators, and not to implement those of others."""
    kinds = [*call.args[1:2], *(item.value for item in call.keywords if item.arg == "kind")]
    return any(isinstance(kind, ast.Constant) and kind.value in ("DEF", "FRAGMENT") for kind in kinds)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _has_postponed_annotations(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )


def _annotations(tree: ast.Module, path: str) -> Iterator[Finding]:
    """Annotations that are computed when the module is imported and that Python 3.9 can't compute."""
    for node in ast.walk(tree):
        wanted: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            wanted = [node.returns, *(item.annotation for item in every if item is not None)]
        elif isinstance(node, ast.AnnAssign):
            wanted = [node.annotation]
        for annotation in wanted:
            if annotation is not None and any(_is_union(part) for part in ast.walk(annotation)):
                yield Finding(
                    Rule.SYNTAX, path, ast.unparse(annotation), "is computed on import, which fails before Python 3.10",
                    "begin the file with: from __future__ import annotations", annotation.lineno,
                )  # fmt: skip


def _is_union(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def _offers_names(tree: ast.Module) -> bool:
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = getattr(node, "value", None)
            return isinstance(value, ast.List | ast.Tuple) and all(
                isinstance(item, ast.Constant) and isinstance(item.value, str) for item in value.elts
            )
    return False
