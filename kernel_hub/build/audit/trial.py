"""Importing a build in a process of its own, which is the one check that runs its code.

Where the build's device is absent, its libraries may be too; the native module is then bound lazily, so that its
registrations run and functions of absent libraries are looked for only when they are called.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from packaging.version import Version

from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.machine import Machine
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.variant import ArchLabel, Label

_TIMEOUT_S = 300
_SHOWN_LINES = 4
_ABSENT = 3
_PROGRAM = """\
import importlib.util, os, sys
folder, name, lazily = sys.argv[1:]
if lazily == "lazily":
    sys.setdlopenflags(os.RTLD_LAZY)
if importlib.util.find_spec("torch"):
    import torch
spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
try:
    spec.loader.exec_module(module)
except ModuleNotFoundError as error:
    if (error.name or name).split(".")[0] == name:
        raise
    print(error.name)
    sys.exit(3)
missing = [text for text in module.__all__ if not hasattr(module, text)]
if missing:
    sys.exit(f"__all__ names what is not there: {', '.join(missing)}")
"""


@dataclass(frozen=True, slots=True)
class Imported:
    """The build imports here.

    Attributes:
        lazily: Whether functions of absent libraries were left unbound.
    """

    lazily: bool


@dataclass(frozen=True, slots=True)
class NotTried:
    """The build can't be imported on this machine, whatever it is like."""

    reason: str


Outcome: TypeAlias = Imported | NotTried | Finding


def try_import(
    folder: Path, label: Label, module: str, machine: Machine, *, libraries: tuple[Path, ...] = ()
) -> Outcome:
    """Import a build in a child process.

    Args:
        folder: The build.
        label: What it runs on.
        module: The name to import it under.
        machine: Where this is.
        libraries: Folders of libraries that the build needs and the system does not know.
    """
    reason = _unfit(label, machine)
    if reason:
        return NotTried(reason)
    lazily = isinstance(label, ArchLabel) and label.backend.kind is not BackendKind.CPU
    argv = [sys.executable, "-I", "-B", "-c", _PROGRAM, str(folder), module, "lazily" if lazily else "at once"]
    try:
        ended = subprocess.run(
            argv, env=_environment(libraries), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return _finding(f"was not imported within {_TIMEOUT_S} seconds")
    if ended.returncode == 0:
        return Imported(lazily)
    if ended.returncode == _ABSENT:
        return NotTried(f"{ended.stdout.strip()} is not installed here")
    said = "\n".join(ended.stderr.strip().splitlines()[-_SHOWN_LINES:])
    return _finding(f"can't be imported: {said or f'the process ended with status {ended.returncode}'}")


def _finding(problem: str) -> Finding:
    return Finding(Rule.IMPORT, "__init__.py", "", problem, "import it by hand to see all of what it says")


def _unfit(label: Label, machine: Machine) -> str:
    if isinstance(label, ArchLabel):
        if (label.cpu, label.os) != (machine.cpu, machine.os):
            return f"this machine is {machine.cpu} {machine.os}"
        if isinstance(label.framework, TvmFfi):
            here = machine.tvm_ffi.version if machine.tvm_ffi else None
            return "" if here == label.framework.version else _other("tvm-ffi", here, label)
    if machine.torch is None:
        return "torch is not installed here"
    torch = machine.torch.version
    match label:
        case ArchLabel(framework=Torch(version=version)) if version != torch:
            return _other("torch", torch, label)
        case ArchLabel(framework=TorchStableAbi(version=version)) if version > torch:
            return _other("torch", torch, label)
        case _:
            return ""


def _other(name: str, here: Version | None, label: ArchLabel) -> str:
    return f"{name} {here} is here, the build needs {label.framework}" if here else f"{name} is not installed here"


def _environment(libraries: tuple[Path, ...]) -> Mapping[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "HOME": os.devnull,
        **({"LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))} if libraries else {}),
    }
