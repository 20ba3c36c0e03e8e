"""Whether the Python dependencies that a build names are installed, asked before it is downloaded.

Repository format, section (i). Leaves out: dependencies on other kernels, and versions, which the format does not state.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable

from kernel_hub.errors import InvalidDocumentError, MissingDependencyError
from kernel_hub.model.dependencies import PythonDependency, python_dependency
from kernel_hub.model.metadata import Metadata


def is_importable(module: str) -> bool:
    """Whether a top-level module could be imported, without importing it."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, AttributeError, ValueError):
        # A finder that fails for this name will fail for the kernel too.
        return False


def missing_dependencies(
    metadata: Metadata, *, importable: Callable[[str], bool] = is_importable
) -> tuple[PythonDependency, ...]:
    """The dependencies of a build that are not installed, in the order metadata names them.

    Args:
        metadata: Of the build.
        importable: How to tell whether a module is there.

    Raises:
        InvalidDocumentError: If metadata names something outside the curated list.
    """
    found = []
    for index, name in enumerate(metadata.python_depends):
        dependency = python_dependency(name, metadata.backend)
        if dependency is None:
            raise _unknown(metadata, index, name)
        if dependency.module is not None and not importable(dependency.module):
            found.append(dependency)
    return tuple(dict.fromkeys(found))


def check_dependencies(metadata: Metadata, *, importable: Callable[[str], bool] = is_importable) -> None:
    """Refuse a build whose Python dependencies are not all installed.

    Raises:
        MissingDependencyError: Naming every missing one and one command that installs them.
        InvalidDocumentError: If metadata names something outside the curated list.
    """
    missing = missing_dependencies(metadata, importable=importable)
    if missing:
        names = ", ".join(dependency.name for dependency in missing)
        distributions = [dependency.distribution for dependency in missing]
        raise MissingDependencyError(
            f"{metadata.name} ({metadata.id}) needs Python packages that are not installed: {names}",
            distributions=distributions,
            hint=pip_line(distributions),
        )


def pip_line(distributions: Iterable[str]) -> str:
    """The one command that installs these distributions."""
    return f"pip install {' '.join(distributions)}"


def _unknown(metadata: Metadata, index: int, name: str) -> InvalidDocumentError:
    hint = "a newer kernel_hub may know it"
    if metadata.kernels_minver is not None:
        hint += f"; the build asks for kernels >= {metadata.kernels_minver}"
    return InvalidDocumentError(
        f"metadata.json of {metadata.name} ({metadata.id})",
        f"{name!r} is not a Python dependency that the format knows for {metadata.backend.value}",
        location=f"python-depends[{index}]",
        hint=hint,
    )
