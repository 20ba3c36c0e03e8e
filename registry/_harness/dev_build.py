"""A small builder for developing kernels: one folder's recipe to an importable package, nothing else.

It does what docs on the recipe format promise for a native CPU build and for a Triton build, without audit, metadata or
digest; the project's builder does those. Kept so that a kernel can be tried while nothing else of the project works.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType

REGISTRATION = """#pragma once
#include <Python.h>
#define KH_CONCAT_(a, b) a##b
#define KH_CONCAT(a, b) KH_CONCAT_(a, b)
#define KH_STRING_(a) #a
#define KH_STRING(a) KH_STRING_(a)
#define STABLE_TORCH_LIBRARY_EXPAND(name, library) STABLE_TORCH_LIBRARY(name, library)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(name, key, library) STABLE_TORCH_LIBRARY_IMPL(name, key, library)
#define REGISTER_EXTENSION(name)                                                                \\
  PyMODINIT_FUNC KH_CONCAT(PyInit_, name)() {                                                   \\
    static PyModuleDef module = {PyModuleDef_HEAD_INIT, KH_STRING(name), nullptr, 0, nullptr,    \\
                                 nullptr, nullptr, nullptr, nullptr};                            \\
    return PyModule_Create(&module);                                                            \\
  }
"""

NATIVE_OPS = """import torch
from . import {identifier}
ops = torch.ops.{identifier}


def add_op_namespace_prefix(op_name):
    return "{identifier}::" + op_name
"""

NOARCH_OPS = NATIVE_OPS.replace("from . import {identifier}\n", "")


def build_native(kernel: Path, extra_flags: tuple[str, ...] = ()) -> Path:
    """Compile the recipe `kernel/build.toml` for this machine's CPU and return the package folder.

    Folders are named by the digest of everything that went in, under the system's temporary folder, and reused.
    """
    recipe = tomllib.loads((kernel / "build.toml").read_text())
    identifier, target = _target(kernel, "cpu", extra_flags)
    if (target / "_ops.py").exists():
        return target
    import torch

    include = Path(torch.__file__).parent / "include"
    with tempfile.TemporaryDirectory(prefix="kernel-objects-") as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "registration.h").write_text(REGISTRATION)
        major, minor = (int(part) for part in recipe["torch"]["stable-abi"]["cpu"].split("."))
        flags = [
            *("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-Wall", "-Wextra"),
            *("-Wno-maybe-uninitialized", "-Wno-uninitialized", "-Wno-ignored-attributes"),
            f"-DTORCH_EXTENSION_NAME={identifier}",
            *("-DCPU_KERNEL", "-DPy_LIMITED_API=0x03090000"),
            f"-DTORCH_TARGET_VERSION={(major << 56) | (minor << 48)}",
            f"-I{scratch}",
            *("-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")),
            *("-isystem", sysconfig.get_paths()["include"]),
        ]
        components = [(recipe["torch"]["src"], ["-O2"])]
        components += [(component["src"], component.get("cxx-flags", [])) for component in recipe["kernel"].values()]
        commands, objects = [], []
        for sources, own_flags in components:
            for source in sources:
                if not source.endswith(".cpp"):
                    continue
                objects.append(str(scratch / (source.replace("/", "_") + ".o")))
                commands.append(
                    ["g++", *flags, *own_flags, *extra_flags, "-c", str(kernel / source), "-o", objects[-1]]
                )
        _run_all(commands)
        library = scratch / f"{identifier}.abi3.so"
        _run_all([
            ["g++", "-shared", *extra_flags, *objects, "-o", str(library), "-L", str(include.parent / "lib"),
             "-ltorch", "-ltorch_cpu"]
        ])  # fmt: skip
        _assemble(kernel, target, NATIVE_OPS.format(identifier=identifier), library)
    return target


def build_noarch(kernel: Path) -> Path:
    """Copy the Python package and return its folder."""
    identifier, target = _target(kernel, "noarch", ())
    if not (target / "_ops.py").exists():
        _assemble(kernel, target, NOARCH_OPS.format(identifier=identifier), None)
    return target


def load_package(folder: Path) -> ModuleType:
    """Import a built package under its folder's name, once."""
    if folder.name in sys.modules:
        return sys.modules[folder.name]
    spec = importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{folder} is not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[folder.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[folder.name]
        raise
    return module


def _target(kernel: Path, backend: str, extra_flags: tuple[str, ...]) -> tuple[str, Path]:
    digest = hashlib.sha256(repr(extra_flags).encode())
    sources = [Path(__file__), *kernel.glob("*.toml")]
    for folder in ("csrc", "torch-ext"):
        sources += (path for path in (kernel / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
    for path in sorted(sources):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    package = kernel.name.replace("-", "_")
    identifier = f"_{package}_{backend}_{digest.hexdigest()[:12]}"
    return identifier, Path(tempfile.gettempdir()) / f"kernel-dev-builds-{os.getuid()}" / identifier


def _run_all(commands: list[list[str]]) -> None:
    width = os.cpu_count() or 1
    for start in range(0, len(commands), width):
        running = [
            (command, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            for command in commands[start : start + width]
        ]
        for command, job in running:
            output, _ = job.communicate()
            if job.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}\n{output}")
            if output:
                print(output, file=sys.stderr)


def _assemble(kernel: Path, target: Path, ops: str, library: Path | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as staging_name:
        staging = Path(staging_name) / target.name
        package = kernel / "torch-ext" / kernel.name.replace("-", "_")
        shutil.copytree(package, staging, ignore=shutil.ignore_patterns("__pycache__"))
        (staging / "_ops.py").write_text(ops)
        if library is not None:
            shutil.copy(library, staging)
        try:
            staging.rename(target)
        except OSError:
            # Another run of the tests finished the same build first.
            if not (target / "_ops.py").exists():
                raise
