"""Second opinions on native modules, by the checkers that others publish: abi3audit and torch-abi-audit.

They read the same dynamic sections as our own rules and know other tables, so that a fault of ours does not pass alone.
What our rules found already is not said again. A checker that is not installed, or that can't read a module, is reported as
not run, which is no finding and never silence.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from packaging.version import InvalidVersion, Version

from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.audit.native import PYTHON_FLOOR, Knowledge
from kernel_hub.model.framework import TorchStableAbi, TvmFfi
from kernel_hub.model.variant import ArchLabel

ABI3AUDIT, TORCH_ABI_AUDIT = "abi3audit", "torch-abi-audit"
_INSTALL = "pip install 'kernel-hub[build]'"
_TIMEOUT_S = 120
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class NativeModule:
    """A native module of a build.

    Attributes:
        file: Where it lies on this disk.
        path: Where it lies in the build.
        label: The build's label.
    """

    file: Path
    path: str
    label: ArchLabel


@dataclass(frozen=True, slots=True)
class Review:
    """What one checker did.

    Attributes:
        name: The distribution's name.
        version: Its version; "" if it is not installed.
        count: How many modules it looked at.
        unrun: Why it looked at none, or not at all of them; "" if it did.
        wanted: Whether there is a module for it to look at.
    """

    name: str
    version: str = ""
    count: int = 0
    unrun: str = ""
    wanted: bool = True

    def __str__(self) -> str:
        name = f"{self.name} {self.version}".rstrip()
        modules = f"{self.count} native module{'' if self.count == 1 else 's'}"
        return f"{name}: not run: {self.unrun}" if self.unrun else f"{name}: looked at {modules}"


_Found: TypeAlias = dict[Path, list[Finding]]


@dataclass(frozen=True, slots=True)
class Reviews:
    """What the checkers did and found.

    Attributes:
        reviews: One for each checker, whether it ran or not.
        findings: By the module's file.
    """

    reviews: tuple[Review, ...]
    findings: Mapping[Path, Sequence[Finding]] = field(default_factory=dict)


def review(modules: Sequence[NativeModule], known: Knowledge) -> Reviews:
    """Have native modules looked at.

    Args:
        modules: Of any builds; those that a checker has no business with are left out by it.
        known: What is known here of torch's functions, which counts more than an older table.
    """
    found: _Found = {}
    done = (_python_abi(modules, found), _torch_abi(modules, known, found))
    return Reviews(done, found)


def news(ours: Iterable[Finding], theirs: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those of `theirs` that `ours` do not say already.

    A symbol may be named as the linker or as its author does; so of symbols that only they name, none counts in a module
    where ours name others of the same kind.
    """
    said = {(item.rule, item.path, item.subject) for item in ours}
    of_cxx = {(rule, path) for rule, path, subject in said if subject.startswith("_Z")}
    return tuple(
        item
        for item in theirs
        if (item.rule, item.path, item.subject) not in said
        and not ("::" in item.subject and (item.rule, item.path) in of_cxx)
    )


def _installed(name: str, module: str) -> str:
    """The version of a distribution; "" if it is not installed."""
    try:
        there = importlib.util.find_spec(module) is not None
        return importlib.metadata.version(name) if there else ""
    except (ValueError, importlib.metadata.PackageNotFoundError):
        return ""


def _unfit(name: str, version: str, modules: Sequence[NativeModule]) -> Review | None:
    """What to say where a checker can't run; None if it can."""
    if not modules:
        return Review(name, version, unrun="there is no native module for it", wanted=False)
    return None if version else Review(name, unrun=f"it is not installed: {_INSTALL}")


def _python_abi(modules: Sequence[NativeModule], found: _Found) -> Review:
    wanted = [item for item in modules if not isinstance(item.label.framework, TvmFfi) and item.label.os == "linux"]
    version = _installed(ABI3AUDIT, "abi3audit")
    unfit = _unfit(ABI3AUDIT, version, wanted)
    if unfit is not None:
        return unfit
    files = [str(item.file) for item in wanted]
    argv = [sys.executable, "-I", "-m", "abi3audit", "-R", "--assume-minimum-abi3", str(PYTHON_FLOOR), *files]
    environment = {"PATH": os.defpath, "HOME": os.devnull, "LC_ALL": "C.UTF-8"}
    try:
        ended = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
        specs = json.loads(ended.stdout)["specs"]
        results = [specs[name]["object"]["result"] for name in files]
        for item, result in zip(wanted, results, strict=True):
            found.setdefault(item.file, []).extend(_of_abi3audit(item, result))
    except subprocess.TimeoutExpired:
        return Review(ABI3AUDIT, version, unrun=f"it did not end within {_TIMEOUT_S} seconds")
    except (ValueError, KeyError, TypeError, AttributeError):
        said = (ended.stderr or ended.stdout).strip()[-_SHOWN_CHARACTERS:]
        return Review(ABI3AUDIT, version, unrun=f"it could not read them: {said or f'status {ended.returncode}'}")
    return Review(ABI3AUDIT, version, len(wanted))


def _of_abi3audit(item: NativeModule, result: Mapping[str, Any]) -> Iterator[Finding]:
    fix = f"compile with Py_LIMITED_API for Python {PYTHON_FLOOR}"
    for name in result["non_abi3_symbols"]:
        yield Finding(Rule.PYTHON_ABI, item.path, name, "is not in Python's limited API, says abi3audit", fix)
    for name, since in result["future_abi3_objects"].items():
        problem = f"is in Python's limited API only since {since}, says abi3audit"
        yield Finding(Rule.PYTHON_ABI, item.path, name, problem, fix)


def _torch_abi(modules: Sequence[NativeModule], known: Knowledge, found: _Found) -> Review:
    wanted = [item for item in modules if isinstance(item.label.framework, TorchStableAbi) and item.label.os == "linux"]
    version = _installed(TORCH_ABI_AUDIT, "torch_abi_audit")
    unfit = _unfit(TORCH_ABI_AUDIT, version, wanted)
    if unfit is not None:
        return unfit
    from torch_abi_audit import inspect_extension

    for item in wanted:
        try:
            seen = inspect_extension(item.file)
            fault = seen.error or ""
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            # It asks `nm`, which may be missing or not know the module's processor.
            seen, fault = None, str(error)
        if seen is None or fault:
            return Review(TORCH_ABI_AUDIT, version, unrun=f"it could not read {item.path}: {fault}")
        found.setdefault(item.file, []).extend(_of_torch_abi_audit(item, seen.torch, known))
    return Review(TORCH_ABI_AUDIT, version, len(wanted))


def _of_torch_abi_audit(item: NativeModule, seen: Any, known: Knowledge) -> Iterator[Finding]:
    framework = item.label.framework
    assert isinstance(framework, TorchStableAbi)
    says = f"says {TORCH_ABI_AUDIT}"
    for name in seen.unstable_symbols:
        yield Finding(
            Rule.TORCH_ABI, item.path, name, f"is of torch's C++ interface, which changes between releases, {says}",
            "use the headers below torch/csrc/stable and torch/headeronly only",
        )  # fmt: skip
    fix = "raise stable-abi in the recipe, or do without the function"
    if seen.min_torch_version and _release(seen.min_torch_version) > framework.version:
        for name in seen.version_defining_symbols:
            problem = (
                f"is in torch since {seen.min_torch_version} only, {says}, and the build is for {framework.version}"
            )
            yield Finding(Rule.TORCH_ABI, item.path, name, problem, fix)
    for name in seen.unknown_shim_symbols:
        # Headers of a torch that is here may be newer than its tables; then our own rule has judged by them.
        if known.shims is None:
            yield Finding(Rule.TORCH_ABI, item.path, name, f"is in no torch release, {says}", fix)


def _release(text: str) -> Version:
    try:
        found = Version(text)
    except InvalidVersion:
        return Version("0")
    return Version(f"{found.major}.{found.minor}")
