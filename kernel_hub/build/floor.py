"""Linking on a new system for old ones: stub libraries and a small archive, in place of an old system's files.

A link takes, for each function of the C library, the newest version that the linked library offers. The stubs offer, for
each symbol of the machine's own C library, its newest version that is not above the floor, and nothing else; so the link
binds to what old systems have. What C++ headers use of a newer libstdc++ comes from an archive that is linked in and hidden.

Whether a finished build keeps the floor is checked on its symbols afterwards (see `kernel_hub.build.audit.floor`), because
both measures reach only as far as their lists.
"""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from kernel_hub.build.audit.elf import Symbol, read_library
from kernel_hub.build.audit.floor import FLOOR, is_within_floor
from kernel_hub.build.command import Floor, Step
from kernel_hub.build.machine import Compiler
from kernel_hub.errors import ToolchainError
from kernel_hub.model.digest import Digest
from kernel_hub.tree import digest_of_file

# What headers of a newer libstdc++ and glibc refer to and older libraries lack, each in a member of its own: a link takes
# only the members that it needs.
COMPAT_SOURCES = {
    "threads": """\
// glibc 2.32: "this process has one thread", which lets reference counts skip atomic instructions. Zero is always right.
extern "C" {
char __libc_single_threaded = 0;
}
""",
    "length": """\
// libstdc++ 3.4.29.
#include <new>

namespace std {
void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std
""",
    "streams": """\
// libstdc++ 3.4.26 and 3.4.29 moved members of these into the library.
#include <sstream>

template class std::basic_stringbuf<char>;
template class std::basic_istringstream<char>;
template class std::basic_ostringstream<char>;
template class std::basic_stringstream<char>;
""",
    "wide_streams": """\
#include <sstream>

template class std::basic_stringbuf<wchar_t>;
template class std::basic_istringstream<wchar_t>;
template class std::basic_ostringstream<wchar_t>;
template class std::basic_stringstream<wchar_t>;
""",
}
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
# Counts changes of how stubs and archive are made.
_GENERATOR = 1
_ASSEMBLER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Run = Callable[[Step], None]
"""Runs a step and raises CompileError if it fails."""


@dataclass(frozen=True, slots=True)
class StubSources:
    """The texts that make a stub library: an assembler file and a linker's version script."""

    assembly: str
    version_script: str


def prepare_floor(compiler: Compiler, cpu: str, folder: Path, find: Callable[[str], Path], run: Run) -> Floor:
    """Make the archive and the stubs for a compiler, or find them made.

    Args:
        compiler: The C++ compiler that links with them.
        cpu: The processor, as labels write it.
        folder: Where they are made and kept.
        find: The machine's own library of a given file name, as the compiler would find it.
        run: Runs a step.

    Raises:
        ToolchainError: If a library of the machine is missing.
        CompileError: If a step fails.
    """
    loader = _LOADERS.get(cpu)
    if loader is None:
        raise ToolchainError(f"builds for {cpu} are not made: the name of its dynamic loader is unknown")
    originals = {name: find(name) for name in ("libm.so.6", "libc.so.6", loader)}
    archive, stubs = folder / "libcompat.a", tuple(folder / name for name in originals)
    tail = (find("libc_nonshared.a"),)
    made = folder / "made-from"
    key = _key(compiler, originals)
    # Written last, so a folder that was left half made is made again.
    if not (made.is_file() and made.read_text("utf-8") == key and all(path.is_file() for path in (archive, *stubs))):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, original in originals.items():
            _make_stub(compiler, folder, original, name, run)
        _make_archive(compiler, archive, run)
        made.write_text(key, encoding="utf-8")
    return Floor(archive, stubs, tail)


def _key(compiler: Compiler, originals: Mapping[str, Path]) -> str:
    """A text that changes with whatever the folder is made from."""
    parts = [f"{compiler.path}: {compiler.version}", str(Digest.of("".join(COMPAT_SOURCES.values()).encode()))]
    parts += [f"{name}: {digest_of_file(path)}" for name, path in originals.items()]
    limits = ", ".join(f"{name} {version}" for name, version in FLOOR.items())
    return "\n".join([*parts, f"floor: {limits}", f"generator: {_GENERATOR}"])


def prepare_placeholders(compiler: Compiler, names: Iterable[str], folder: Path, run: Run) -> Path:
    """Make libraries that offer nothing, to link with where those of that name are for another processor.

    A link of a shared library leaves undefined what nobody offers, so only the names of the libraries matter to it.

    Args:
        compiler: The C++ compiler that links with them.
        names: Names without `lib` and `.so`.
        folder: Where they are made.
        run: Runs a step.

    Raises:
        CompileError: If a step fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "empty.s").write_text('.section .note.GNU-stack,"",%progbits\n', encoding="ascii")
    for name in names:
        output = folder / f"lib{name}.so"
        argv = (
            str(compiler.path), "-shared", "-nostdlib", f"-Wl,-soname,{output.name}", "-o", output.name, "empty.s",
        )  # fmt: skip
        run(Step(f"placeholder {output.name}", argv, folder, output))
    return folder


def stub_sources(symbols: Iterable[Symbol]) -> StubSources:
    """The texts of a stub library that offers, of each symbol, its newest version within the floor."""
    newest: dict[str, str] = {}
    for symbol in symbols:
        usable = symbol.version and is_within_floor(symbol.version) and _ASSEMBLER_NAME.fullmatch(symbol.name)
        if usable and (symbol.name not in newest or _number(newest[symbol.name]) < _number(symbol.version)):
            newest[symbol.name] = symbol.version
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    for name, version in sorted(newest.items()):
        nodes[version].append(name)
    # A link reads names and versions only; that every stub is a function of no length is nothing it would notice.
    assembly = "".join(f".globl {name}\n.type {name}, %function\n{name}:\n" for name in sorted(newest))
    script = "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in nodes[version])} }};\n"
        for version in sorted(nodes, key=_number)
    )
    return StubSources(f'.text\n{assembly}.section .note.GNU-stack,"",%progbits\n', f"{script}NONE {{ local: *; }};\n")


def _number(version: str) -> Version:
    return Version(version.partition("_")[2])


def _make_stub(compiler: Compiler, folder: Path, original: Path, name: str, run: Run) -> None:
    sources = stub_sources(read_library(original).defined)
    assembly, script, output = folder / f"{name}.s", folder / f"{name}.map", folder / name
    assembly.write_text(sources.assembly, encoding="ascii")
    script.write_text(sources.version_script, encoding="ascii")
    argv = (
        str(compiler.path), "-shared", "-nostdlib", f"-Wl,-soname,{name}", f"-Wl,--version-script={script.name}",
        "-o", output.name, assembly.name,
    )  # fmt: skip
    run(Step(f"stub {name}", argv, folder, output))


def _make_archive(compiler: Compiler, archive: Path, run: Run) -> None:
    folder = archive.parent
    flags = ("-std=c++20", "-O2", "-fPIC", "-fno-gnu-unique", "-fno-ident", "-ffunction-sections", "-fdata-sections")
    for name, text in COMPAT_SOURCES.items():
        (folder / f"{name}.cpp").write_text(text, encoding="ascii")
        argv = (str(compiler.path), "-c", *flags, f"{name}.cpp", "-o", f"{name}.o")
        run(Step(f"compat {name}", argv, folder, folder / f"{name}.o"))
    members = [f"{name}.o" for name in COMPAT_SOURCES]
    run(Step("compat archive", (str(archiver_of(compiler)), "rcsD", archive.name, *members), folder, archive))


def archiver_of(compiler: Compiler) -> Path:
    """The archiver that belongs to a compiler: beside it, with the same prefix."""
    prefix = compiler.path.name.partition("g++")[0] if "g++" in compiler.path.name else ""
    return compiler.path.with_name(f"{prefix}ar")
