"""The rules for a build as a whole: its label, its metadata, its files, and then each file's own rules.

Repository format, sections (a), (c) and (e). Reads the build and runs nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_hub.build.audit.elf import read_library, section_of
from kernel_hub.build.audit.fatbin import SECTION, check_archs
from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.audit.native import Knowledge, check_native
from kernel_hub.build.audit.python import Package, check_source
from kernel_hub.errors import InvalidDocumentError, UnsafePathError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.dependencies import python_dependency
from kernel_hub.model.digest import covers
from kernel_hub.model.framework import TvmFfi
from kernel_hub.model.metadata import MAX_BYTES, Metadata
from kernel_hub.model.repo_path import check_file_path
from kernel_hub.model.variant import ArchLabel, Label, NoarchLabel, parse_label
from kernel_hub.tree import manifest_of, paths_of

_NATIVE_SUFFIXES = (".so", ".dylib", ".dll", ".pyd")
_REBUILD = "build it again with kernel-hub build"


def check_build(folder: Path, label_text: str, known: Knowledge) -> tuple[Finding, ...]:
    """Every breach of a rule by one build, in order.

    Args:
        folder: The build.
        label_text: What it is called.
        known: What others offer to it.

    Raises:
        ToolchainError: If a library that reads native modules is not installed.
    """
    try:
        paths = sorted(paths_of(folder))
        metadata = _metadata(folder)
        label = parse_label(label_text)
    except UnsafePathError as error:
        return (Finding(Rule.FILES, "", "", error.message, "builds hold plain files only"),)
    except (InvalidDocumentError, OSError) as error:
        rule = Rule.LABEL if isinstance(error, InvalidDocumentError) and error.document == "label" else Rule.METADATA
        said = error.problem if isinstance(error, InvalidDocumentError) else str(error.strerror)
        return (Finding(rule, "metadata.json" if rule is Rule.METADATA else "", "", said, _REBUILD),)
    findings = [
        *_check_label(label, label_text, metadata),
        *_check_files(folder, paths, metadata),
        *_check_natives(folder, paths, label, metadata, known),
        *_check_sources(folder, paths, label, metadata),
    ]
    return tuple(sorted(findings))


def _metadata(folder: Path) -> Metadata:
    with (folder / "metadata.json").open("rb") as file:
        return Metadata.parse(file.read(MAX_BYTES + 1))


def _check_label(label: Label, text: str, metadata: Metadata) -> Iterator[Finding]:
    if str(label) != text:
        yield Finding(Rule.LABEL, "", text, f"is another way to write {label}", f"name the build {label}")
    stated = label.name if isinstance(label, NoarchLabel) else label.backend.kind.value
    if stated != metadata.backend.value:
        yield Finding(
            Rule.LABEL, "metadata.json", "backend.type", f"is {metadata.backend}, but the label says {stated}", _REBUILD
        )
    if Metadata.parse(metadata.format()) != metadata:
        yield Finding(Rule.METADATA, "metadata.json", "", "does not survive being written and read again", _REBUILD)
    if not metadata.id.isidentifier():
        yield Finding(Rule.METADATA, "metadata.json", metadata.id, "is not a name that Python can import", _REBUILD)


def _check_files(folder: Path, paths: list[str], metadata: Metadata) -> Iterator[Finding]:
    for path in paths:
        if (folder / path).is_symlink():
            yield Finding(Rule.FILES, path, "", "is a link", "put the file itself there")
        try:
            check_file_path(path)
        except InvalidDocumentError as error:
            yield Finding(Rule.FILES, path, "", error.problem, "give it a name that every system can hold")
        if path.endswith(".pyc") or "__pycache__" in path.split("/"):
            yield Finding(Rule.BYTECODE, path, "", "is bytecode, which no digest covers", "remove it")
    if "__init__.py" not in paths:
        yield Finding(Rule.ENTRY, "__init__.py", "", "is missing", "every build is imported through it")
    twin = metadata.python_name
    if any(path == f"{twin}.py" or path.startswith(f"{twin}/") for path in paths):
        yield Finding(
            Rule.ENTRY,
            twin,
            "",
            "is called like the kernel, so older loaders would take it for the kernel",
            "rename it",
        )
    if metadata.manifest is None:
        yield Finding(Rule.DIGEST, "metadata.json", "digest", "is missing", _REBUILD)
        return
    listed, there = metadata.manifest.files, manifest_of(folder, metadata.manifest.algorithm).files
    for path in sorted({*listed, *there}):
        if path not in there:
            yield Finding(Rule.DIGEST, path, "", "is in the digest and missing", _REBUILD)
        elif path not in listed:
            yield Finding(Rule.DIGEST, path, "", "is not in the digest", _REBUILD)
        elif listed[path] != there[path]:
            yield Finding(Rule.DIGEST, path, "", "was changed after the digest was made", _REBUILD)


def _check_natives(
    folder: Path, paths: list[str], label: Label, metadata: Metadata, known: Knowledge
) -> Iterator[Finding]:
    natives = [path for path in paths if path.endswith(_NATIVE_SUFFIXES)]
    if isinstance(label, NoarchLabel):
        for path in natives:
            yield Finding(
                Rule.LIBRARY, path, "", "is native code, and the label promises that there is none",
                "build it under a label that names processor and system",
            )  # fmt: skip
        return
    wanted = native_name(label, metadata.id)
    if wanted not in natives:
        yield Finding(Rule.LIBRARY, wanted, "", "is missing", "a compiled build has its native module under that name")
    for path in natives:
        if label.os != "linux":
            continue
        try:
            library = read_library(folder / path)
        except InvalidDocumentError as error:
            yield Finding(Rule.LIBRARY, path, "", error.problem, _REBUILD)
            continue
        yield from check_native(library, path, label, metadata.id if path == wanted else None, known)
        if path == wanted and label.backend.kind is BackendKind.CUDA:
            yield from check_archs(section_of(folder / path, SECTION), metadata.archs, path)


def native_name(label: ArchLabel, module: str) -> str:
    """The file name of a compiled build's native module."""
    if not isinstance(label.framework, TvmFfi):
        return f"{module}.abi3.so" if label.os != "windows" else f"{module}.pyd"
    return module + {"linux": ".so", "darwin": ".dylib"}.get(label.os, ".dll")


def _check_sources(folder: Path, paths: list[str], label: Label, metadata: Metadata) -> Iterator[Finding]:
    named = (python_dependency(name, metadata.backend) for name in metadata.python_depends)
    modules = {item.module for item in named if item is not None and item.module is not None}
    if isinstance(label, ArchLabel) and isinstance(label.framework, TvmFfi):
        modules.add("tvm_ffi")
    package = Package(metadata.python_name, frozenset(modules))
    for path in paths:
        if path.endswith(".py") and covers(path):
            yield from check_source((folder / path).read_bytes(), path, package)
