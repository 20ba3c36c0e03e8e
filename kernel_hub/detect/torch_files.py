"""What torch's installed files say: version, what it was built for, and its C++ string ABI; torch is not imported.

`torch/version.py` holds constants, which are read with `ast`. A build whose file is written otherwise is described by its
distribution's metadata as far as that goes. A torch that is imported already is asked instead, which is quicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from packaging.version import Version

from kernel_hub.detect.probes import Found, Probes, guarded, read_text
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

# Functions of libc10 that take a std::string; how their names are mangled is the ABI itself (Itanium C++ ABI,
# section 5.1.8: "Ss" abbreviates the old std::string, the new one is spelt out).
_NEW_STRING: Final = Pattern(rb"_ZNK?3c10\w{0,200}NSt7__cxx1112basic_string")
_OLD_STRING: Final = Pattern(rb"_ZN3c105ErrorC[12]E\w{0,40}(?:ESs|RKSs)")
_MACRO: Final = Pattern(r"_GLIBCXX_USE_CXX11_ABI=([01])")
_MAX_LIBRARY_BYTES: Final = 64 << 20
_FIRST_ALWAYS_CXX11: Final = (2, 7)


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """An installation of torch.

    Attributes:
        folder: The package's folder; None if torch is not installed.
        fields: Constants of `version.py` by name; None values are kept, names it does not set are absent.
        problem: Why torch could not be looked for, or its `fields` not be read; empty if all went well.
        version: The version of torch.
    """

    folder: Path | None
    fields: Mapping[str, str | bool | None] = field(default_factory=dict)
    problem: str = ""
    version: Found[Version] = field(default=Found(None, "torch is not installed"))

    def text(self, name: str) -> str | None:
        """A field that holds a text."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and value else None


def read_torch(probes: Probes) -> TorchFiles:
    """Find torch and read its version file."""
    located = guarded(lambda: Found(probes.find_module("torch"), ""))
    if located.value is None:
        return TorchFiles(None, problem=located.how, version=Found(None, located.how or "torch is not installed"))
    folder = located.value
    fields = guarded(lambda: _imported_fields(probes))
    if not fields.value:
        fields = guarded(lambda: _read_fields(folder / "version.py"))
    files = TorchFiles(folder, fields.value or {}, "" if fields.value else fields.how)
    version = guarded(lambda: _version(probes, files))
    return TorchFiles(folder, files.fields, files.problem, version)


def probe_cxx11_abi(probes: Probes, torch: TorchFiles) -> Found[bool]:
    """Whether torch uses libstdc++'s C++11 strings: from its library's symbols, its CMake file, or its release."""
    if probes.platform.system != "linux":
        return Found(None, "only asked on Linux")
    if torch.folder is None:
        return Found(None, torch.problem or "torch is not installed")
    own_word = getattr(probes.imported("torch._C"), "_GLIBCXX_USE_CXX11_ABI", None)
    if isinstance(own_word, bool):
        return Found(own_word, "the imported torch says so")
    library = torch.folder / "lib" / "libc10.so"
    if library.is_file():
        with library.open("rb") as stream:
            content = stream.read(_MAX_LIBRARY_BYTES)
        if _NEW_STRING.search(content):
            return Found(True, "symbols of torch/lib/libc10.so")
        if _OLD_STRING.search(content):
            return Found(False, "symbols of torch/lib/libc10.so")
    cmake = torch.folder / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    if cmake.is_file():
        found = _MACRO.search(read_text(cmake))
        if found:
            return Found(found[1] == "1", "TORCH_CXX_FLAGS in TorchConfig.cmake")
    version = torch.version.value
    if version is not None and (version.major, version.minor) >= _FIRST_ALWAYS_CXX11:
        return Found(True, "no file says; torch's Linux wheels have it from 2.7 on")
    return Found(None, "neither libc10.so nor TorchConfig.cmake says")


def _version(probes: Probes, torch: TorchFiles) -> Found[Version]:
    text = torch.text("__version__")
    if text is not None:
        return Found(Version(text), f"torch/version.py: {text}")
    text = probes.find_version("torch")
    if text is None:
        return Found(None, torch.problem or "neither torch/version.py nor a distribution's metadata says")
    return Found(Version(text), f"metadata of the distribution torch: {text}")


def _imported_fields(probes: Probes) -> Found[dict[str, str | bool | None]]:
    constants = vars(probes.imported("torch.version") or object)
    fields = {
        name: value
        for name, value in constants.items()
        if (value is None or isinstance(value, str | bool)) and (not name.startswith("__") or name == "__version__")
    }
    return Found(fields if "__version__" in fields else None, "torch/version.py")


def _read_fields(path: Path) -> Found[dict[str, str | bool | None]]:
    if not path.is_file():
        return Found(None, "torch has no version.py")
    # Imported here, because an imported torch needs no reading.
    import ast

    fields: dict[str, str | bool | None] = {}
    for statement in ast.parse(read_text(path)).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                pass
            case _:
                continue
        if value is None or isinstance(value, str | bool):
            fields[name] = value
    return Found(fields or None, "torch/version.py" if fields else "torch/version.py holds no constants")
