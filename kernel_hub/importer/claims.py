"""Which artifact is imported under which name, and the record of each: once, whole or not at all.

Each artifact is imported under a module name of its own, `<python_name>_<digits of its tree digest>`, so that two versions
of one kernel live side by side and a relative import never meets the other's module. The same bytes from another origin
are the same kernel. Names are stable between processes, but a process can only import those it has loaded: a pickled
function of a kernel is found again where the kernel was loaded first.

What module names cannot keep apart is torch's operator namespace, `torch.ops.<id>`. Of two different artifacts that
claim the same one, the second is refused before any of its code runs.

Leaves out: finding and reading files (see `kernel_hub.importer.finder`), and verifying them (see `kernel_hub.verify`).
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from packaging.version import Version

from kernel_hub.errors import EmptyKernelError, KernelHubError, MissingDependencyError
from kernel_hub.importer.dependencies import check_dependencies, is_importable, pip_line
from kernel_hub.importer.finder import KernelFinder, KernelPackage
from kernel_hub.importer.namespaces import Holder, Namespaces, native_files
from kernel_hub.model.artifact import FromSource, Origin, VerifiedArtifact
from kernel_hub.model.digest import Digest
from kernel_hub.model.framework import TvmFfi
from kernel_hub.model.loaded import LoadedKernel
from kernel_hub.model.metadata import KernelDependency
from kernel_hub.model.value import dataclass
from kernel_hub.model.variant import ArchLabel, read_label

FORMAT_OF_KERNELS = Version("0.17.2")
"""The release of the `kernels` client whose repository format this package implements."""

_LOG = logging.getLogger(__name__)
_NAME_DIGITS = 12


class _Key(NamedTuple):
    """What makes two artifacts the same kernel: the same files under the same names, given the same other kernels."""

    tree_digest: Digest
    id: str
    python_name: str
    kernel_depends: tuple[KernelDependency, ...]


@dataclass(slots=True)
class _Claim:
    """One artifact's hold on a module name.

    Attributes:
        key: Which artifact.
        name: The module name.
        origin: Where the artifact came from.
        holder: Its hold on its operator namespace.
        users: How many calls are importing it now.
        record: Set when the body begins.
        finished: Whether the body ran to its end.
    """

    key: _Key
    name: str
    origin: Origin
    holder: Holder
    users: int = 0
    record: LoadedKernel | None = None
    finished: bool = False


class Importer:
    """The kernels of one process. `import_artifact` and `loaded_kernels` use the process's own."""

    def __init__(self) -> None:
        self._finder = KernelFinder()
        # Held for bookkeeping only; while code is imported, Python's module locks order the threads.
        self._lock = threading.Lock()
        self._claims: dict[_Key, _Claim] = {}
        self._namespaces = Namespaces()

    def load(self, verified: VerifiedArtifact, *, notes: tuple[str, ...] = ()) -> LoadedKernel:
        """See `import_artifact`."""
        prefix = _package_prefix(verified)
        check_dependencies(verified.metadata)
        claim = self._claim(verified, prefix, notes)
        try:
            if not claim.finished:
                _prepare_native(verified)
                self._import(claim, verified)
            record = claim.record
            assert record is not None, "the module of a claim is only made by its own loader"
            found = _record(verified, record.module, notes)
            # The same bytes may have come from elsewhere before; what is returned says where this call found them.
            return record if _provenance(found) == _provenance(record) else found
        finally:
            self._release(claim)

    def loaded(self) -> tuple[LoadedKernel, ...]:
        """See `loaded_kernels`."""
        with self._lock:
            return tuple(claim.record for claim in self._claims.values() if claim.finished and claim.record)

    def _claim(self, verified: VerifiedArtifact, prefix: str, notes: tuple[str, ...]) -> _Claim:
        metadata = verified.metadata
        key = _Key(verified.tree_digest, metadata.id, metadata.python_name, metadata.kernel_depends)
        with self._lock:
            claim = self._claims.get(key)
            if claim is None:
                holder = self._namespaces.take(key, verified)
                claim = _Claim(key, self._free_name(key), verified.artifact.origin, holder)
                self._claims[key] = claim
                self._finder.register(
                    KernelPackage(
                        name=claim.name,
                        root=Path(verified.artifact.root).absolute(),
                        prefix=prefix,
                        files=verified.files,
                        subject=_subject(verified),
                        before=partial(self._begin, claim, verified, notes),
                        after=partial(self._end, claim),
                    )
                )
            elif claim.origin != verified.artifact.origin:
                _LOG.info("%s is already here, from %s", _subject(verified), claim.origin)
            claim.users += 1
            return claim

    def _free_name(self, key: _Key) -> str:
        # More digits if need be: who makes two trees with the same first ones must not get one under the other's name.
        names = (f"{key.python_name}_{key.tree_digest.hex[:digits]}" for digits in range(_NAME_DIGITS, 65))
        return next(name for name in names if name not in sys.modules and not self._finder.serves(name))

    def _begin(self, claim: _Claim, verified: VerifiedArtifact, notes: tuple[str, ...], module: ModuleType) -> None:
        claim.holder.begun = True
        claim.record = _record(verified, module, notes)
        module.__dict__["__kernel_hub__"] = claim.record

    def _end(self, claim: _Claim, module: ModuleType | None) -> None:
        if module is not None and claim.record is not None and claim.record.module is not module:
            claim.record = replace(claim.record, module=module)
            module.__dict__["__kernel_hub__"] = claim.record
        claim.finished = claim.holder.finished = module is not None

    def _import(self, claim: _Claim, verified: VerifiedArtifact) -> None:
        try:
            importlib.import_module(claim.name)
        except KernelHubError as error:
            # A kernel that the body asked for was refused, or a file changed under it: that verdict stands.
            error.add_note(f"while importing {_subject(verified)}")
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            # Whatever a kernel raises, be it to end the process, is the kernel's failure. Imported here, because most import.
            from kernel_hub.importer.faults import import_fault

            raise import_fault(
                error, subject=_subject(verified), module_name=claim.name, label=verified.artifact.label
            ) from error

    def _release(self, claim: _Claim) -> None:
        with self._lock:
            claim.users -= 1
            if claim.users or claim.finished:
                return
            self._claims.pop(claim.key, None)
            self._finder.unregister(claim.name)
            self._namespaces.give_back(claim.holder)


_PROCESS = Importer()


def import_artifact(verified: VerifiedArtifact, *, notes: tuple[str, ...] = ()) -> LoadedKernel:
    """Import a verified artifact, or return what was imported of the same bytes before.

    The body runs once, however many threads ask. If it fails, nothing of it stays in `sys.modules` and a second call
    tries again. A body that asks for its own kernel gets the unfinished module, as with any import in a circle.

    Args:
        verified: From `kernel_hub.verify.verify`.
        notes: What earlier stages have to say to the reader of the record.

    Returns:
        The record. The module carries that of its first import as `__kernel_hub__`.

    Raises:
        EmptyKernelError: If the build has no entry module.
        MissingDependencyError: If a Python package that it needs is not installed.
        AmbiguousKernelError: If another kernel of this process claims the same operator namespace.
        KernelImportError: If its code fails.
    """
    return _PROCESS.load(verified, notes=notes)


def loaded_kernels() -> tuple[LoadedKernel, ...]:
    """Every kernel that this process has imported, in order."""
    return _PROCESS.loaded()


def _package_prefix(verified: VerifiedArtifact) -> str:
    for prefix in ("", f"{verified.metadata.python_name}/"):
        if f"{prefix}__init__.py" in verified.files:
            return prefix
    raise EmptyKernelError(
        f"{_subject(verified)} is empty: it has neither __init__.py nor {verified.metadata.python_name}/__init__.py",
        hint="build it again; its Python files belong directly into the build's folder",
    )


def _prepare_native(verified: VerifiedArtifact) -> None:
    """Load torch if the build's native libraries link to it, because they do not say where it lies."""
    label = read_label(verified.artifact.label)
    if not native_files(verified) or (isinstance(label, ArchLabel) and isinstance(label.framework, TvmFfi)):
        return
    if not is_importable("torch"):
        raise MissingDependencyError(
            f"{_subject(verified)} has native libraries that need torch, which is not installed",
            distributions=("torch",),
            hint=pip_line(("torch",)),
        )
    importlib.import_module("torch")


def _record(verified: VerifiedArtifact, module: ModuleType, notes: tuple[str, ...]) -> LoadedKernel:
    return LoadedKernel(
        module=module,
        name=_kernel_name(verified),
        origin=verified.artifact.origin,
        label=verified.artifact.label,
        version=verified.metadata.version,
        metadata=verified.metadata,
        tree_digest=verified.tree_digest,
        notes=tuple(dict.fromkeys((*notes, *_own_notes(verified)))),
    )


def _provenance(record: LoadedKernel) -> tuple[object, ...]:
    return (record.origin, record.label, record.metadata, record.notes)


def _kernel_name(verified: VerifiedArtifact) -> str:
    origin = verified.artifact.origin
    return str(origin.pin.repo) if isinstance(origin, FromSource) else verified.metadata.name


def _subject(verified: VerifiedArtifact) -> str:
    return f"kernel {verified.metadata.name} (build {verified.artifact.label} of {verified.artifact.origin})"


def _own_notes(verified: VerifiedArtifact) -> tuple[str, ...]:
    metadata = verified.metadata
    notes = []
    if verified.signed_by:
        notes.append(f"it is signed by {', '.join(verified.signed_by)}")
    if metadata.provenance is not None and metadata.provenance.dirty:
        notes.append("it was built from sources with uncommitted changes")
    if metadata.kernels_minver is not None and metadata.kernels_minver > FORMAT_OF_KERNELS:
        notes.append(
            f"it asks for kernels >= {metadata.kernels_minver}; this release implements the format of {FORMAT_OF_KERNELS}"
        )
    if not verified.has_manifest:
        notes.append("its metadata carries no digest, so only what the source says of its files could be checked")
    return tuple(notes)
