"""Putting a build together: Python files, `_ops.py`, the native module, `metadata.json` with its digest; then one rename.

Repository format, sections (c) and (e). A build appears under its label complete or not at all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_hub import __version__
from kernel_hub.build.audit.layout import native_name
from kernel_hub.build.built_with import Tool, built_with
from kernel_hub.build.generated import native_ops, noarch_ops, tvm_ffi_ops
from kernel_hub.build.matrix import Job, NativeJob, NoarchJob
from kernel_hub.build.project import python_folder, require_inside
from kernel_hub.build.provenance import SourceOrigin
from kernel_hub.build.recipe import NoarchFramework
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import Digest
from kernel_hub.model.framework import TvmFfi
from kernel_hub.model.metadata import Metadata, Provenance
from kernel_hub.tree import manifest_of, paths_of

# What a build writes itself. The ecosystem's tools leave such files among the sources, so they are passed over there.
_GENERATED = frozenset({"_ops.py", "metadata.json", "metadata.json.sigstore"})


@dataclass(frozen=True, slots=True)
class Assembled:
    """A build that is put together, and not in its place yet.

    Attributes:
        metadata: As written.
        size_bytes: The sum of its files' lengths.
    """

    metadata: Metadata
    size_bytes: int


def module_id(job: Job, origin: SourceOrigin) -> str:
    """The name of a build's module and operator namespace: `_<python name>_<backend>_<unique>`."""
    return f"_{job.recipe.python_name}_{job.backend.value}_{origin.unique}"


def assemble(
    job: Job,
    root: Path,
    origin: SourceOrigin,
    *,
    library: Path | None,
    stage: Path,
    tools: Sequence[Tool] = (),
    headers: Mapping[str, Digest] | None = None,
) -> Assembled:
    """Put one build together.

    Args:
        job: What was built.
        root: The kernel's folder.
        origin: Where its sources come from.
        library: The native module; None for builds without one.
        stage: The folder to put it together in, emptied before.
        tools: The compilers that made the native module.
        headers: The digests of the libraries of headers that it was compiled with, by name.

    Raises:
        InvalidDocumentError: If a Python source leads out of the kernel's folder.
    """
    name = module_id(job, origin)
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    for path, real in _python_files(job, root):
        target = stage / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(real, target)
    match job:
        case NativeJob() if isinstance(job.label.framework, TvmFfi):
            text = tvm_ffi_ops(name, native_name(job.label, name))
        case NativeJob():
            text = native_ops(name)
        case NoarchJob():
            text = noarch_ops(name)
    (stage / "_ops.py").write_text(text, encoding="utf-8")
    if library is not None:
        shutil.copyfile(library, stage / library.name)
    said = built_with(job, tools, name, headers or {}) if isinstance(job, NativeJob) else {}
    metadata = _metadata(job, name, origin, said).with_manifest(manifest_of(stage))
    (stage / "metadata.json").write_bytes(metadata.format())
    size_bytes = sum((stage / path).stat().st_size for path in paths_of(stage))
    return Assembled(metadata, size_bytes)


def put_in_place(stage: Path, folder: Path) -> None:
    """Make `folder` be what `stage` is; what was there before goes away only once the new one is in place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    old = stage.with_name(f"{stage.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        folder.rename(old)
    try:
        stage.rename(folder)
    except BaseException:
        # Interrupted in between, the one that was there before comes back.
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _python_files(job: Job, root: Path) -> Iterator[tuple[str, Path]]:
    """The files of the Python package that belong to a build, with the real file of each."""
    package = python_folder(root, job.recipe)
    framework = job.recipe.framework
    everything = isinstance(framework, NoarchFramework)
    # Builds with a native module carry no interface files: that is how the ecosystem's builder lays them out.
    extensions = {"py", *framework.pyext} - {"pyi"}
    for path in sorted(paths_of(package)):
        name = path.rsplit("/", 1)[-1]
        if path in _GENERATED or path.endswith(".pyc") or "__pycache__" in path.split("/"):
            continue
        if everything or any(name.endswith(f".{extension}") for extension in extensions):
            location = (package / path).relative_to(root).as_posix()
            yield path, require_inside(root, package / path, document=job.document, location=location)
    for folder in package.rglob("*"):
        if folder.is_symlink() and folder.is_dir():
            raise InvalidDocumentError(
                job.document, f"{folder.relative_to(root)} is a link to a folder, which builds don't carry"
            )


def _metadata(job: Job, name: str, origin: SourceOrigin, said: Mapping[str, Any]) -> Metadata:
    recipe = job.recipe
    return Metadata(
        name=recipe.name,
        id=name,
        version=recipe.version,
        license=recipe.license,
        backend=job.backend,
        archs=job.archs,
        python_depends=recipe.python_depends_of(job.backend),
        kernel_depends=recipe.kernel_depends_of(job.backend),
        upstream=recipe.upstream,
        source=recipe.source,
        provenance=Provenance(builder_version=f"kernel_hub {__version__}", builder=None, kernel=origin.state),
        built_with=said,
    )
