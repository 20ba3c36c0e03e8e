"""What a shared library asks of the system that loads it, read from its dynamic sections.

Those are the ones that loading uses and `strip` keeps, so a stripped library says as much as an unstripped one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kernel_hub.errors import InvalidDocumentError, ToolchainError

_PF_EXECUTE = 1
_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dynamic symbol.

    Attributes:
        name: Its name, without version.
        version: Its symbol version; "" if it has none.
        library: The library that its version is expected in; "" without version.
        weak: Whether it may stay undefined.
        unique: Whether it is unique in a process (STB_GNU_UNIQUE).
    """

    name: str
    version: str
    library: str
    weak: bool
    unique: bool

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """The dynamic facts of one shared library.

    Attributes:
        machine: The processor, as ELF names it, e.g. "EM_X86_64".
        needed: The libraries it needs, in order.
        run_paths: Its DT_RPATH and DT_RUNPATH entries.
        undefined: Symbols it takes from elsewhere.
        defined: Symbols it offers.
        executable_stack: Whether it asks for one; True as well if it does not say that it does without.
    """

    machine: str
    needed: tuple[str, ...]
    run_paths: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    defined: tuple[Symbol, ...]
    executable_stack: bool


def read_library(path: Path) -> SharedLibrary:
    """Read a shared library.

    Raises:
        InvalidDocumentError: If the file is no ELF shared library.
        ToolchainError: If pyelftools is not installed.
    """
    return _with_elf(path, lambda elf: _read(elf, path))


def section_of(path: Path, name: str) -> bytes | None:
    """The bytes of a section; None if there is none.

    Raises:
        InvalidDocumentError: If the file is no ELF file.
        ToolchainError: If pyelftools is not installed.
    """

    def bytes_of(elf: Any) -> bytes | None:
        section = elf.get_section_by_name(name)
        return None if section is None else bytes(section.data())

    return _with_elf(path, bytes_of)


def section_names(path: Path) -> tuple[str, ...]:
    """The names of a file's sections, in order.

    Raises:
        InvalidDocumentError: If the file is no ELF file.
        ToolchainError: If pyelftools is not installed.
    """
    return _with_elf(path, lambda elf: tuple(section.name for section in elf.iter_sections()))


def _with_elf(path: Path, read: Callable[[Any], _Read]) -> _Read:
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise ToolchainError("reading libraries needs pyelftools", hint='pip install "kernel-hub[build]"') from error
    with path.open("rb") as file:
        try:
            return read(ELFFile(file))
        except ELFError as error:
            raise InvalidDocumentError(path.name, f"is not an ELF file that can be read: {error}") from error


def _read(elf: Any, path: Path) -> SharedLibrary:
    dynamic = elf.get_section_by_name(".dynamic")
    table = elf.get_section_by_name(".dynsym")
    if elf["e_type"] != "ET_DYN" or dynamic is None or table is None:
        raise InvalidDocumentError(path.name, "is not a shared library")
    tags = list(dynamic.iter_tags())
    versions = _versions(elf)
    symbols = [
        (entry["st_shndx"] == "SHN_UNDEF", _symbol(entry, versions.get(index, ("", ""))))
        for index, entry in enumerate(table.iter_symbols())
        if entry.name and entry["st_info"]["bind"] != "STB_LOCAL"
    ]
    return SharedLibrary(
        machine=elf["e_machine"],
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        run_paths=tuple(
            tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
            for tag in tags
            if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")
        ),
        undefined=tuple(symbol for undefined, symbol in symbols if undefined),
        defined=tuple(symbol for undefined, symbol in symbols if not undefined),
        executable_stack=_executable_stack(elf),
    )


def _symbol(entry: Any, version: tuple[str, str]) -> Symbol:
    bind = entry["st_info"]["bind"]
    # pyelftools has a name for this binding only in files that state the GNU system.
    unique = bind in ("STB_GNU_UNIQUE", "STB_LOOS", 10)
    return Symbol(entry.name, version[0], version[1], bind == "STB_WEAK", unique)


def _versions(elf: Any) -> dict[int, tuple[str, str]]:
    """Version and library of each symbol that has one, by the symbol's index."""
    indices = elf.get_section_by_name(".gnu.version")
    if indices is None:
        return {}
    names: dict[int, tuple[str, str]] = {}
    needs = elf.get_section_by_name(".gnu.version_r")
    if needs is not None:
        for library, wanted in needs.iter_versions():
            names |= {item["vna_other"]: (item.name, library.name) for item in wanted}
    defines = elf.get_section_by_name(".gnu.version_d")
    if defines is not None:
        for definition, own in defines.iter_versions():
            # The first name is the version, those after it are the versions it succeeds; index 1 is the library itself.
            first = next(own, None)
            if first is not None and definition["vd_ndx"] > 1:
                names[definition["vd_ndx"]] = (first.name, "")
    found: dict[int, tuple[str, str]] = {}
    for index in range(indices.num_symbols()):
        number = indices.get_symbol(index)["ndx"]
        # The top bit only hides a version from linkers.
        if isinstance(number, int) and number & 0x7FFF in names:
            found[index] = names[number & 0x7FFF]
    return found


def _executable_stack(elf: Any) -> bool:
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_GNU_STACK":
            return bool(segment["p_flags"] & _PF_EXECUTE)
    return True
