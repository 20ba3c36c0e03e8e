"""Which compilers are here, to the byte: the programs behind a compiler's name, and the digests of their files.

A driver such as `g++` starts other programs, and a link or a script may stand in for any of them; what counts is the file
that runs in the end. Leaves out shared libraries that those programs load.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from kernel_hub.build.built_with import Tool
from kernel_hub.build.machine import Compiler, CudaToolkit, HeaderLibrary, RocmToolkit
from kernel_hub.model.digest import Digest, tree_digest
from kernel_hub.tree import digest_of_file

_PARTS = ("cc1plus", "as", "ld")
_CUDA_PARTS = ("bin/cudafe++", "nvvm/bin/cicc", "bin/ptxas", "bin/fatbinary")
_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_CUDA_BUILD = re.compile(r"\bV(\d+\.\d+\.\d+)")
_TIMEOUT_S = 60


def compiler_identity(compiler: Compiler) -> Tool:
    """A C++ compiler with the programs that it starts, as far as it names them."""
    named = {part: _part(compiler.path, part) for part in _PARTS}
    found = {compiler.path.name: compiler.path, **{part: path for part, path in named.items() if path is not None}}
    return Tool(compiler.path.name, compiler.version, _digests(found))


def toolkit_identity(toolkit: CudaToolkit) -> Tool:
    """A CUDA toolkit's compiler with its parts."""
    if toolkit.clang_headers is not None:
        parts = [toolkit.root / "bin" / name for name in ("ptxas", "fatbinary")]
        said = _said((str(toolkit.nvcc), "clang", "--version")).partition("\n")[0].strip()
        found = {path.name: path for path in (toolkit.nvcc, *parts) if path.is_file()}
        return Tool("clang", said or "clang", _digests(found))
    parts = [toolkit.root / part for part in _CUDA_PARTS]
    found = {path.name: path for path in (toolkit.nvcc, *parts) if path.is_file()}
    version = _CUDA_BUILD.search(_said((str(toolkit.nvcc), "--version")))
    return Tool(toolkit.nvcc.name, version[1] if version else str(toolkit.version), _digests(found))


def rocm_identity(toolkit: RocmToolkit) -> Tool:
    """ROCm's compiler with the clang behind it."""
    parts = (toolkit.hipcc, *(toolkit.root / "llvm" / "bin" / name for name in ("clang++", "lld")))
    found = {path.name: path for path in parts if path.is_file()}
    return Tool(toolkit.hipcc.name, str(toolkit.version), _digests(found))


def header_digests(libraries: Iterable[HeaderLibrary]) -> dict[str, Digest]:
    """The digest of each library's headers, by its name."""
    return {library.name: _tree_digest(library.root, library.includes) for library in libraries}


def _tree_digest(root: Path, includes: tuple[Path, ...]) -> Digest:
    found = [path for folder in includes for path in folder.rglob("*") if path.is_file()]
    return tree_digest((path.relative_to(root).as_posix(), digest_of_file(path)) for path in sorted(found))


def _digests(programs: dict[str, Path]) -> tuple[tuple[str, Digest], ...]:
    return tuple((name, _digest(path.resolve())) for name, path in sorted(programs.items()))


def _digest(path: Path) -> Digest:
    state = path.stat()
    return _digest_of_state(path, state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=64)
def _digest_of_state(path: Path, size_bytes: int, mtime_ns: int, inode: int) -> Digest:
    """A program's digest, computed once in a process for as long as its file stays the same."""
    del size_bytes, mtime_ns, inode
    return digest_of_file(path)


def _part(compiler: Path, name: str) -> Path | None:
    """A program that a compiler starts; None if it does not say which."""
    said = _said((str(compiler), f"-print-prog-name={name}")).strip()
    # A compiler without the program answers with the name alone, and so does one that will look for it on its path.
    found = said if Path(said).is_absolute() else shutil.which(said, path=_SEARCH_PATH) if said else None
    return Path(found) if found and Path(found).is_file() else None


def _said(argv: tuple[str, ...]) -> str:
    try:
        answer = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=True,
            timeout=_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout
