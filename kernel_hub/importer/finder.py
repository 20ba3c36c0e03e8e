"""Python's import system, taught to serve verified files: one finder for the module names that the importer gives out.

Module locks, recursion, deadlock detection and `sys.modules` stay Python's own. What differs from its file loaders:

- only files that were verified exist; a folder is never searched, so planted modules and bytecode are not found;
- source is digested again as it is read, so what runs is what was verified, also when it is imported much later;
- a native library must have the size, time and inode that it had when it was verified (it is opened by path);
- bytecode is neither read nor written.

Leaves out: which name an artifact gets, and what is recorded of it (see `kernel_hub.importer`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType

from kernel_hub.errors import DigestMismatchError
from kernel_hub.importer.kernel_dependencies import prepare
from kernel_hub.model.artifact import VerifiedFile, Violation, ViolationKind
from kernel_hub.model.digest import Digest
from kernel_hub.model.value import dataclass

_ENTRY = "__init__.py"


@dataclass(frozen=True, slots=True)
class KernelPackage:
    """A verified artifact as an importable package.

    Attributes:
        name: Its module name, unique in this process.
        root: The artifact's folder.
        prefix: Where the package lies inside it: "" or `<python_name>/`.
        files: The verified files by path inside the artifact.
        subject: What to call it in errors.
        before: Called with the module before its body runs.
        after: Called with what `import` returns if the body ran to its end, else with None.
    """

    name: str
    root: Path
    prefix: str
    files: Mapping[str, VerifiedFile]
    subject: str
    before: Callable[[ModuleType], None]
    after: Callable[[ModuleType | None], None]
    folders: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        folders = {str(folder) for path in self.files for folder in PurePosixPath(path).parents}
        object.__setattr__(self, "folders", frozenset(folders))

    def spec(self, fullname: str) -> ModuleSpec:
        """How to import the package itself or a module below it.

        Raises:
            ModuleNotFoundError: If no verified file is that module. Nobody else may be asked, because Python's own path
                finder would search the folder and find what was never verified.
        """
        if fullname == self.name:
            path = f"{self.prefix}{_ENTRY}"
            return self._located(fullname, path, _EntryLoader(fullname, self._location(path), self.files[path], self))
        stem = self.prefix + fullname[len(self.name) + 1 :].replace(".", "/")
        for candidate in (f"{stem}/__init__", stem):
            for suffix in EXTENSION_SUFFIXES:
                path = candidate + suffix
                if path in self.files:
                    native = _NativeLoader(fullname, self._location(path), self.files[path], self.subject)
                    return self._located(fullname, path, native)
            path = f"{candidate}.py"
            if path in self.files:
                source = _SourceLoader(fullname, self._location(path), self.files[path], self.subject)
                return self._located(fullname, path, source)
        if stem in self.folders:
            namespace = ModuleSpec(fullname, None, is_package=True)
            namespace.submodule_search_locations = [self._location(stem)]
            return namespace
        raise ModuleNotFoundError(f"No module named {fullname!r} in {self.subject}", name=fullname)

    def _located(self, fullname: str, path: str, loader: _SourceLoader | _NativeLoader) -> ModuleSpec:
        location = self._location(path)
        is_package = PurePosixPath(path).name.partition(".")[0] == "__init__"
        folders = [str(Path(location).parent)] if is_package else None
        spec = spec_from_file_location(fullname, location, loader=loader, submodule_search_locations=folders)
        assert spec is not None, "a spec with a loader is always made"
        return spec

    def _location(self, path: str) -> str:
        return str(self.root.joinpath(*path.split("/")))


class KernelFinder:
    """Finds the modules of registered packages and nothing else."""

    def __init__(self) -> None:
        self._packages: dict[str, KernelPackage] = {}

    def register(self, package: KernelPackage) -> None:
        """Serve a package from now on."""
        self._packages[package.name] = package
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def unregister(self, name: str) -> None:
        """Serve it no more."""
        self._packages.pop(name, None)

    def serves(self, name: str) -> bool:
        """Whether a package of this name is registered."""
        return name in self._packages

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002  the folder is known
        target: ModuleType | None = None,  # noqa: ARG002  reloading finds the same file
        /,
    ) -> ModuleSpec | None:
        """As the import system asks; None for names that are not ours."""
        package = self._packages.get(fullname.partition(".")[0])
        return package.spec(fullname) if package else None


class _SourceLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, file: VerifiedFile, subject: str) -> None:
        super().__init__(fullname, path)
        self._file = file
        self._subject = subject

    def exec_module(self, module: ModuleType) -> None:
        prepare(module)
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def get_data(self, path: str) -> bytes:
        content = super().get_data(path)
        if path == self.path:
            found = Digest.of(content, self._file.digest.algorithm)
            if found != self._file.digest:
                raise _changed(self._subject, path, str(self._file.digest), str(found))
        return content


class _EntryLoader(_SourceLoader):
    def __init__(self, fullname: str, path: str, file: VerifiedFile, package: KernelPackage) -> None:
        super().__init__(fullname, path, file, package.subject)
        self._package = package

    def exec_module(self, module: ModuleType) -> None:
        name = self._package.name
        self._package.before(module)
        try:
            super().exec_module(module)
        except BaseException:
            # Python removes the package; the modules below it that were already imported are removed here, under the
            # same module lock, so that the next try finds nothing of this one.
            for below in [other for other in sys.modules if other.startswith(f"{name}.")]:
                sys.modules.pop(below, None)
            self._package.after(None)
            raise
        # A body may put another module in its place, as Python allows. One that removed itself is put back, because later
        # relative imports need it.
        self._package.after(sys.modules.setdefault(name, module))


class _NativeLoader(ExtensionFileLoader):
    def __init__(self, fullname: str, path: str, file: VerifiedFile, subject: str) -> None:
        super().__init__(fullname, path)
        self._file = file
        self._subject = subject

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = Path(self.path).stat()
        found = (now.st_size, now.st_mtime_ns, now.st_ino)
        verified = (self._file.size_bytes, self._file.mtime_ns, self._file.inode)
        if found != verified:
            raise _changed(self._subject, self.path, str(self._file.digest), "a file that was written since")
        return super().create_module(spec)


def _changed(subject: str, path: str, expected: str, found: str) -> DigestMismatchError:
    violation = Violation(ViolationKind.CHANGED, path, expected, found)
    return DigestMismatchError(
        f"{subject}: a file changed after it was verified:\n  {violation}",
        violations=(violation,),
        hint="it was not imported; start again in a new process, which verifies the kernel anew",
    )
