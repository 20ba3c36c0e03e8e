"""A build as a wheel that pip installs: the same files below the kernel's Python name, and what pip wants to know of them.

The import name is the kernel's own, `import axpy`; the operator namespace stays that of the build, so that a process may
have the wheel and the same kernel from a registry. pip chooses by Python and system only: which build fits the machine's
backend is for whoever installs it to know, and nothing is verified when it is imported. Two exports of a build are the same
bytes, given the same zlib.

Leaves out: kernels that need other kernels, which pip cannot install, and compiled builds for other systems than Linux.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kernel_hub import __version__
from kernel_hub.build.audit.check import require_passed
from kernel_hub.build.audit.finding import Rule
from kernel_hub.build.audit.layout import check_build
from kernel_hub.build.audit.native import Knowledge
from kernel_hub.build.wheel_metadata import WheelName, core_metadata, requirements, wheel_file, wheel_name
from kernel_hub.errors import BuildError, InvalidDocumentError, ToolchainError
from kernel_hub.locking.files import writing_whole
from kernel_hub.model.digest import covers
from kernel_hub.model.metadata import MAX_BYTES, Metadata
from kernel_hub.model.variant import ArchLabel, parse_label
from kernel_hub.tree import paths_of

# What a wheel can't be made from; the other rules are about how loaders load, or about publishing.
_RULES = frozenset(
    {Rule.METADATA, Rule.LABEL, Rule.DIGEST, Rule.FILES, Rule.ENTRY, Rule.LIBRARY, Rule.PROCESSOR, Rule.STACK}
)
_METADATA_FILE = "metadata.json"
# The earliest time that a zip file can state.
_TIME = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ExportedWheel:
    """A wheel that was made.

    Attributes:
        path: Where it lies.
        label: The build that it holds.
        name: What it is called.
        module: What it is imported as.
        requires: What pip must install beside it.
        size_bytes: Its length.
    """

    path: Path
    label: str
    name: WheelName
    module: str
    requires: tuple[str, ...]
    size_bytes: int


def export_wheel(
    build: Path, out: Path, *, distribution: str | None = None, licenses: Sequence[Path] = ()
) -> ExportedWheel:
    """Make the wheel of a build.

    Args:
        build: The build, in a folder that its label names.
        out: The folder to put the wheel in, made if it is not there.
        distribution: What pip calls it; by default as the kernel.
        licenses: Files with the text of its licence.

    Raises:
        CheckFailedError: If the build is not what its digest says, or is not laid out as a build.
        BuildError: If no wheel can hold it: it needs other kernels, or is for a system without such wheels.
        InvalidDocumentError: If `distribution` is no name.
        ToolchainError: If auditwheel or pyelftools is not installed.
        CacheError: If the wheel can't be written.
    """
    findings = check_build(build, build.name, Knowledge())
    require_passed(build.name, findings, tolerated=frozenset(Rule) - _RULES)
    label = parse_label(build.name)
    with (build / _METADATA_FILE).open("rb") as file:
        metadata = Metadata.parse(file.read(MAX_BYTES + 1))
    policy = _policy_of(build, label) if isinstance(label, ArchLabel) else ""
    name = wheel_name(metadata, label, policy, distribution)
    requires = requirements(metadata, label, imports_torch=_imports_torch(build))
    own = core_metadata(name, metadata, label, requires, tuple(path.name for path in licenses))
    texts = _own_files(name, own, licenses)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{out} can't be made: {error.strerror}") from error
    path = out / name.file_name
    with writing_whole(path) as target:
        _write(target, build, metadata.python_name, name, texts)
    return ExportedWheel(path, build.name, name, metadata.python_name, requires, path.stat().st_size)


def _imports_torch(build: Path) -> bool:
    """Whether a Python source imports torch unconditionally; what it says inside functions or conditions may be optional."""
    for path in paths_of(build):
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse((build / path).read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidDocumentError(path, f"is not Python: {error}") from error
        for node in tree.body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            if any(name.partition(".")[0] == "torch" for name in names):
                return True
    return False


def _policy_of(build: Path, label: ArchLabel) -> str:
    """The oldest system that auditwheel finds a build's native modules fit for, by the versions of their symbols.

    Its rule about libraries is left to our own check: what it would copy into a wheel comes with torch.
    """
    try:
        from auditwheel.architecture import Architecture
        from auditwheel.elfutils import elf_find_versioned_symbols
        from auditwheel.libc import Libc
        from auditwheel.policy import WheelPolicies
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise ToolchainError("making a wheel needs auditwheel", hint="pip install 'kernel-hub[build]'") from error
    if label.os != "linux":
        return ""
    needed: dict[str, set[str]] = {}
    for file in sorted(build.rglob("*.so")):
        with file.open("rb") as opened:
            try:
                for library, version in elf_find_versioned_symbols(ELFFile(opened)):
                    needed.setdefault(library, set()).add(version)
            except ELFError as error:
                raise InvalidDocumentError(file.name, f"is not an ELF file that can be read: {error}") from error
    try:
        policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(label.cpu))
    except ValueError as error:
        raise BuildError(f"{label}: auditwheel knows no processor {label.cpu}") from error
    return str(policies.versioned_symbols_policy(needed).name).removesuffix(f"_{label.cpu}")


def _own_files(name: WheelName, metadata: str, licenses: Sequence[Path]) -> dict[str, bytes]:
    found = {
        f"{name.dist_info}/METADATA": metadata.encode("utf-8"),
        f"{name.dist_info}/WHEEL": wheel_file(name, generator=f"kernel_hub {__version__}").encode("utf-8"),
    }
    for path in licenses:
        found[f"{name.dist_info}/licenses/{path.name}"] = path.read_bytes()
    return found


def _write(target: BinaryIO, build: Path, module: str, name: WheelName, texts: dict[str, bytes]) -> None:
    record: list[str] = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        # The format recommends a wheel's own files last, where tools find them without reading the rest.
        for path in sorted(path for path in paths_of(build) if covers(path) or path == _METADATA_FILE):
            record.append(_add(archive, f"{module}/{path}", _pieces(build / path)))
        for path, content in sorted(texts.items()):
            record.append(_add(archive, path, iter((content,))))
        listed = "\n".join([*record, f"{name.dist_info}/RECORD,,"]) + "\n"
        _add(archive, f"{name.dist_info}/RECORD", iter((listed.encode("utf-8"),)))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _add(archive: zipfile.ZipFile, path: str, pieces: Iterator[bytes]) -> str:
    """Add a file; its line of RECORD."""
    entry = zipfile.ZipInfo(path, _TIME)
    entry.external_attr = _REGULAR_FILE
    entry.create_system = 3
    entry.compress_type = zipfile.ZIP_DEFLATED
    digest, size_bytes = hashlib.sha256(), 0
    # Written in pieces, a file does not tell beforehand whether it needs the larger fields.
    with archive.open(entry, "w", force_zip64=True) as file:
        for piece in pieces:
            digest.update(piece)
            size_bytes += len(piece)
            file.write(piece)
    text = base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode("ascii")
    quoted = f'"{path.replace(chr(34), 2 * chr(34))}"' if any(char in path for char in ',"') else path
    return f"{quoted},sha256={text},{size_bytes}"
