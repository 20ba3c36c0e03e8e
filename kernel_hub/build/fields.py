"""Reading the single values of a recipe: versions, paths, flags, dependencies. Repository format, section (e)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath, PureWindowsPath
from typing import TypeVar

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.dependencies import python_dependency
from kernel_hub.model.document import JsonObject
from kernel_hub.model.metadata import AtFixedRevision, AtVersion, KernelDependency, check_git_url
from kernel_hub.model.requirement import RepoId

DEFAULT_PYEXT = ("py", "pyi")
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,6}")
_EXTENSION = re.compile(r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*")

_Value = TypeVar("_Value")


def python_depends(table: JsonObject, backends: tuple[BackendKind, ...]) -> tuple[str, ...]:
    names = table.texts("python-depends", default=())
    for index, text in enumerate(names):
        for backend in backends:
            if python_dependency(text, backend) is None:
                raise table.fault(
                    f"python-depends[{index}]", f"{text!r} is not in the curated list for {backend.value}"
                )
    return names


def kernel_depends(table: JsonObject) -> tuple[KernelDependency, ...]:
    return tuple(_kernel_dependency(item) for item in table.objects("kernel-depends", default=()))


def _kernel_dependency(item: JsonObject) -> KernelDependency:
    item.only("repo-id", "version", "revision")
    repo = checked(item, "repo-id", item.text("repo-id"), RepoId.parse)
    if item.has("version") == item.has("revision"):
        raise item.fault("", "needs exactly one of 'version' and 'revision'")
    return (
        AtVersion(repo, item.whole("version")) if item.has("version") else AtFixedRevision(repo, item.text("revision"))
    )


def git_url(table: JsonObject, key: str) -> str | None:
    text = table.optional_text(key)
    if text is not None and not check_git_url(text):
        raise table.fault(key, f"{text!r} is not a git URL")
    return text


def version(table: JsonObject, key: str) -> Version | None:
    text = table.optional_text(key)
    if text is None:
        return None
    if not _VERSION.fullmatch(text):
        raise table.fault(key, f"{text!r} is not a version of the form 'X.Y'")
    return Version(text)


def extensions(table: JsonObject) -> tuple[str, ...]:
    found = table.texts("pyext", default=DEFAULT_PYEXT)
    for index, text in enumerate(found):
        if not _EXTENSION.fullmatch(text):
            raise table.fault(f"pyext[{index}]", f"{text!r} is not a file extension without its dot")
    return found


def paths(table: JsonObject, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
    found = table.texts(key, default=default)
    for index, text in enumerate(found):
        path = PurePosixPath(text)
        # A Windows drive or a backslash would mean a path outside on one system and a strange name on another.
        foreign = PureWindowsPath(text)
        if not text or path.is_absolute() or ".." in foreign.parts or foreign.drive or foreign.root or "\\" in text:
            raise table.fault(f"{key}[{index}]", f"{text!r} does not stay inside the kernel's folder")
        if not text.isprintable():
            raise table.fault(f"{key}[{index}]", f"{text!r} holds control characters")
    return found


def flags(table: JsonObject, key: str) -> tuple[str, ...]:
    found = table.texts(key, default=())
    for index, text in enumerate(found):
        # Response files and output names would read and write where the build did not say.
        if not text or text.startswith("@") or (text.startswith("-o") and not text.startswith("-openmp")):
            raise table.fault(f"{key}[{index}]", f"{text!r} would redirect the compiler's input or output")
        if not text.isprintable():
            raise table.fault(f"{key}[{index}]", f"{text!r} holds control characters")
    return found


def checked(table: JsonObject, key: str, text: str, parse: Callable[[str], _Value]) -> _Value:
    try:
        return parse(text)
    except InvalidDocumentError as error:
        raise table.fault(key, error.problem) from error
