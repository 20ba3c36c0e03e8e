"""Reading `build.toml`: TOML text to a `Recipe`, strictly, with errors that name the key at fault.

Repository format, section (e).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from kernel_hub.build.cuda import is_inert_flag, is_inert_path
from kernel_hub.build.editions import to_current
from kernel_hub.build.fields import checked, extensions, flags, git_url, kernel_depends, paths, python_depends, version
from kernel_hub.build.recipe import (
    BackendRules,
    Component,
    Framework,
    Home,
    NoarchFramework,
    Recipe,
    TorchFramework,
    TvmFfiFramework,
)
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind, parse_kind
from kernel_hub.model.document import JsonObject
from kernel_hub.model.metadata import is_kernel_name
from kernel_hub.model.requirement import RepoId

MAX_BYTES = 1 << 20
CUTLASS = tuple(f"cutlass_{version}" for version in ("2_10", "3_5", "3_6", "3_8", "3_9", "4_0", "4_4", "4_5"))
DEPENDS = ("torch", *CUTLASS, "sycl_tla", "metal-cpp")
_RULE_KEYS: Mapping[BackendKind, tuple[str, ...]] = {
    BackendKind.CUDA: ("minver", "maxver", "python-depends", "kernel-depends"),
    BackendKind.NEURON: ("python-depends", "kernel-depends"),
    BackendKind.TPU: ("python-depends",),
    BackendKind.XPU: ("python-depends", "kernel-depends"),
}
_COMPONENT_KEYS: Mapping[BackendKind, tuple[str, ...]] = {
    BackendKind.CPU: (),
    BackendKind.CUDA: ("cuda-capabilities", "cuda-flags", "cuda-minver"),
    BackendKind.METAL: (),
    BackendKind.ROCM: ("rocm-archs", "hip-flags"),
    BackendKind.XPU: ("sycl-flags",),
}
_DEVICE_FLAGS = {BackendKind.CUDA: "cuda-flags", BackendKind.ROCM: "hip-flags", BackendKind.XPU: "sycl-flags"}
# Compilers that run their parts through a shell.
_DRIVERS = {BackendKind.CUDA: "nvcc", BackendKind.ROCM: "hipcc"}
_ARCHS = {BackendKind.CUDA: "cuda-capabilities", BackendKind.ROCM: "rocm-archs"}
_STABLE_ABI = re.compile(r"[0-9]\.[0-9]{1,3}")
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]*")


def parse_recipe(content: bytes, *, name: str = "build.toml") -> Recipe:
    """Read the bytes of a recipe of edition 5, 4 or 3.

    Args:
        content: The file's bytes.
        name: What to call it in errors.

    Raises:
        InvalidDocumentError: Naming the key at fault.
    """
    if len(content) > MAX_BYTES:
        raise InvalidDocumentError(name, f"is longer than {MAX_BYTES} bytes")
    try:
        value = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidDocumentError(name, f"is not UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidDocumentError(name, f"is not TOML: {error}") from error
    except RecursionError as error:
        raise InvalidDocumentError(name, "is not TOML: nested too deep") from error
    current, notes = to_current(value, name)
    return _recipe(JsonObject(current, name), current, notes)


def _recipe(top: JsonObject, raw: Mapping[str, Any], notes: tuple[str, ...]) -> Recipe:
    top.only("general", "torch", "tvm-ffi", "torch-noarch", "kernel")
    general = top.object("general")
    general.only(
        "name", "version", "edition", "license", "backends", "upstream", "source", "python-depends", "kernel-depends",
        "hub", "cuda", "neuron", "tpu", "xpu",
    )  # fmt: skip
    kernel_name = general.text("name")
    if not is_kernel_name(kernel_name):
        raise general.fault(
            "name",
            f"{kernel_name!r} is not a kernel name: at least two characters, of lower-case letters, digits and '-', "
            "beginning with a letter and not ending with '-'",
        )
    backends = _backends(general)
    framework = _framework(top, raw, backends)
    components = _components(top, backends)
    if isinstance(framework, NoarchFramework) and components:
        notes = (*notes, "a recipe with 'torch-noarch' compiles nothing: its 'kernel' tables are not used")
    return Recipe(
        name=kernel_name,
        version=general.whole("version"),
        license=general.text("license"),
        backends=backends,
        framework=framework,
        components=components,
        upstream=git_url(general, "upstream"),
        source=git_url(general, "source"),
        python_depends=python_depends(general, backends),
        kernel_depends=kernel_depends(general),
        rules=_rules(general),
        home=_home(general),
        notes=notes,
    )


def _backends(general: JsonObject) -> tuple[BackendKind, ...]:
    names = general.texts("backends")
    if not names:
        raise general.fault("backends", "names no backend, so there is nothing to build")
    found = tuple(checked(general, f"backends[{index}]", text, parse_kind) for index, text in enumerate(names))
    if len(set(found)) != len(found):
        raise general.fault("backends", "names a backend twice")
    return found


def _rules(general: JsonObject) -> dict[BackendKind, BackendRules]:
    found: dict[BackendKind, BackendRules] = {}
    for backend, keys in _RULE_KEYS.items():
        table = general.optional_object(backend.value)
        if table is None:
            continue
        table.only(*keys)
        rules = BackendRules(
            minver=version(table, "minver"),
            maxver=version(table, "maxver"),
            python_depends=python_depends(table, (backend,)),
            kernel_depends=kernel_depends(table),
        )
        if rules.minver and rules.maxver and rules.minver > rules.maxver:
            raise table.fault("minver", f"{rules.minver} is above maxver {rules.maxver}")
        found[backend] = rules
    return found


def _home(general: JsonObject) -> Home:
    table = general.optional_object("hub")
    if table is None:
        return Home()
    table.only("repo-id", "branch")
    repo = checked(table, "repo-id", table.text("repo-id"), RepoId.parse) if table.has("repo-id") else None
    branch = table.optional_text("branch")
    if branch is not None and (not _BRANCH.fullmatch(branch) or ".." in branch):
        raise table.fault("branch", f"{branch!r} is not the name of a branch")
    return Home(repo, branch)


def _require_inert(table: JsonObject, backend: BackendKind) -> None:
    for key, is_inert in (
        ("cuda-flags", is_inert_flag),
        ("hip-flags", is_inert_flag),
        ("src", is_inert_path),
        ("include", is_inert_path),
    ):
        for index, text in enumerate(table.texts(key, default=())):
            if not is_inert(text):
                raise table.fault(
                    f"{key}[{index}]", f"{text!r} holds characters that {_DRIVERS[backend]} hands to a shell"
                )


def _framework(top: JsonObject, raw: Mapping[str, Any], backends: tuple[BackendKind, ...]) -> Framework:
    given = [key for key in ("torch", "tvm-ffi", "torch-noarch") if top.has(key)]
    if len(given) != 1:
        raise top.fault(
            "",
            f"needs exactly one of the tables 'torch', 'tvm-ffi' and 'torch-noarch', has {', '.join(given) or 'none'}",
        )
    table = top.object(given[0])
    pyext = extensions(table)
    if any(text.endswith((".cu", ".hip")) for text in table.texts("src", default=())):
        for backend in (found for found in backends if found in _DRIVERS):
            _require_inert(table, backend)
    if given[0] == "torch-noarch":
        table.only("pyext", "cuda_capabilities", "rocm_archs")
        return NoarchFramework(
            pyext, table.texts("cuda_capabilities", default=()), table.texts("rocm_archs", default=())
        )
    if given[0] == "tvm-ffi":
        table.only("src", "include", "pyext", "cxx-flags")
        return TvmFfiFramework(paths(table, "src"), paths(table, "include", ()), pyext, flags(table, "cxx-flags"))
    table.only("src", "include", "pyext", "minver", "maxver", "cxx-flags", "stable-abi")
    minver, maxver = version(table, "minver"), version(table, "maxver")
    if minver and maxver and minver > maxver:
        raise table.fault("minver", f"{minver} is above maxver {maxver}")
    return TorchFramework(
        src=paths(table, "src", ()),
        include=paths(table, "include", ()),
        pyext=pyext,
        minver=minver,
        maxver=maxver,
        cxx_flags=flags(table, "cxx-flags"),
        stable_abi=_stable_abi(table, raw["torch"], backends),
    )


def _stable_abi(
    table: JsonObject, raw: Mapping[str, Any], backends: tuple[BackendKind, ...]
) -> dict[BackendKind, Version]:
    value = raw.get("stable-abi")
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        target = _abi_version(table, "stable-abi")
        return dict.fromkeys(backends, target)
    versions = table.object("stable-abi")
    said = {checked(versions, key, key, parse_kind): _abi_version(versions, key) for key in versions.names()}
    # The format lets the table speak of backends that the kernel does not have, and ignores that.
    return {backend: said[backend] for backend in backends if backend in said}


def _abi_version(table: JsonObject, key: str) -> Version:
    text = table.text(key)
    if not _STABLE_ABI.fullmatch(text):
        raise table.fault(key, f"{text!r} is not a torch version of the form 'X.Y'")
    return Version(text)


def _components(top: JsonObject, backends: tuple[BackendKind, ...]) -> tuple[Component, ...]:
    tables = top.optional_object("kernel")
    if tables is None:
        return ()
    return tuple(_component(name, tables, backends) for name in tables.names())


def _component(name: str, tables: JsonObject, backends: tuple[BackendKind, ...]) -> Component:
    table = tables.object(name)
    if not _COMPONENT.fullmatch(name):
        raise table.fault("", f"{name!r} is not the name of a component (letters, digits, '_' and '-')")
    backend = checked(table, "backend", table.text("backend"), parse_kind)
    own = _COMPONENT_KEYS.get(backend)
    if own is None:
        raise table.fault("backend", f"{backend.value} has no compiled components")
    if backend not in backends:
        raise table.fault("backend", f"{backend.value} is not in general.backends")
    table.only("backend", "depends", "src", "include", "cxx-flags", *own)
    depends = table.texts("depends")
    for index, dependency in enumerate(depends):
        if dependency not in DEPENDS:
            raise table.fault(f"depends[{index}]", f"{dependency!r} is not one of {', '.join(DEPENDS)}")
    if backend in _DRIVERS:
        _require_inert(table, backend)
    return Component(
        name=name,
        backend=backend,
        depends=depends,
        src=paths(table, "src"),
        include=paths(table, "include", ()),
        cxx_flags=flags(table, "cxx-flags"),
        archs=table.texts(_ARCHS[backend], default=()) if backend in _ARCHS else (),
        device_flags=flags(table, _DEVICE_FLAGS[backend]) if backend in _DEVICE_FLAGS else (),
        cuda_minver=version(table, "cuda-minver"),
    )
