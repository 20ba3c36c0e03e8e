"""The files of a new kernel's project, from templates that come with this package.

The templates lie beside this module, each under a name that ends in `.in`; what stands between `@` signs is replaced, and
nothing else is computed in them. The operation is the same in every project, so that one set of tests fits all.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from kernel_hub.build.blueprint import Abi, Blueprint, Part
from kernel_hub.errors import BuildError

_STABLE_ABI = "2.11"
_TVM_PACKAGE = "tvm-ffi-ext"
_TORCH_PACKAGE = "torch-ext"
_FOLDERS = {Abi.STABLE: "stable", Abi.CLASSIC: "classic", Abi.TVM_FFI: "tvm_ffi"}
_SUFFIXES = {Part.CPU: ".cpp", Part.CUDA: ".cu"}
_OPS = "from ._ops import add_op_namespace_prefix, ops"
_TRITON = "from . import triton_kernel  # noqa: F401"
_ELSE_TRITON = """
if not hasattr(ops, "gated_silu"):
    # Compiled builds bring the operator along; to the others it is given in Triton.
    from . import triton_kernel  # noqa: F401
"""


def project_files(blueprint: Blueprint) -> Mapping[str, str]:
    """The text of every file of a project, by its path with `/` between names, in order."""
    found = {
        ".github/workflows/kernel.yml": _workflow(blueprint),
        ".gitignore": _template("shared/gitignore"),
        "CARD.md": _template("shared/CARD.md"),
        "benchmarks/benchmark.py": _template("shared/benchmark.py"),
        "tests/conftest.py": _filled(_template("shared/conftest.py"), BUILDS=_tested(blueprint)),
        "tests/test_gated_silu.py": _template("shared/test_gated_silu.py"),
        **_recipes(blueprint),
        **_sources(blueprint),
        **_packages(blueprint),
    }
    if blueprint.abi is not Abi.TVM_FFI or not blueprint.compiled:
        found["tests/test_operator.py"] = _template("shared/test_operator.py")
    return dict(sorted(found.items()))


def require_free(folder: Path) -> None:
    """Refuse a folder that holds something.

    Raises:
        BuildError: Naming it.
    """
    try:
        taken = folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir())))
    except OSError as error:
        raise BuildError(f"{str(folder)[:100]} can't be looked at: {error.strerror}") from error
    if taken:
        raise BuildError(
            f"{folder} is there already, and is not an empty folder", hint="name another one: --output DIR"
        )


def write_project(folder: Path, content: Mapping[str, str]) -> None:
    """Write a project's files into a folder that is empty or does not exist.

    Raises:
        BuildError: If the folder holds something, or can't be written.
    """
    require_free(folder)
    try:
        for name, text in content.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BuildError(f"{error.filename or folder} can't be written: {error.strerror}") from error


def _template(name: str) -> str:
    place = files("kernel_hub.build") / "templates"
    for part in f"{name}.in".split("/"):
        place = place / part
    return place.read_text(encoding="utf-8")


def _filled(text: str, **values: str) -> str:
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _workflow(blueprint: Blueprint) -> str:
    # Triton comes with torch's own packages; its interpreter, where there is no GPU, needs numpy.
    wanted = ["numpy", "pytest"]
    if blueprint.abi is Abi.TVM_FFI and blueprint.compiled:
        wanted.insert(0, "apache-tvm-ffi")
    missing = " --allow-missing" if Part.CUDA in blueprint.parts else ""
    return _filled(_template("shared/workflow.yml"), REQUIREMENTS=" ".join(wanted), ALLOW_MISSING=missing)


def _tested(blueprint: Blueprint) -> str:
    """The builds that the tests load, as Python: backend, and device of the tensors."""
    pairs = [f'("{part}", "{part}")' for part in blueprint.compiled]
    if blueprint.triton_backends:
        pairs.append(f'("{blueprint.triton_backends[0]}", "cuda" if GPU else "cpu")')
    return ", ".join(pairs)


def _recipes(blueprint: Blueprint) -> Mapping[str, str]:
    found = []
    if blueprint.compiled:
        found.append(_compiled_recipe(blueprint))
    if blueprint.triton_backends:
        found.append(f"{_general(blueprint, blueprint.triton_backends)}\n[torch-noarch]\n")
    # One recipe has one framework, and the first is the one that tools of one recipe read.
    return dict(zip(("build.toml", "build.triton.toml"), found, strict=False))


def _general(blueprint: Blueprint, backends: tuple[str, ...], more: str = "") -> str:
    listed = ", ".join(f'"{name}"' for name in backends)
    return (
        f'[general]\nname = "{blueprint.name}"\nversion = 1\nedition = 5\nlicense = "{blueprint.license}"\n'
        f"backends = [{listed}]\n{more}"
    )


def _compiled_recipe(blueprint: Blueprint) -> str:
    is_tvm = blueprint.abi is Abi.TVM_FFI
    names = tuple(part.value for part in blueprint.compiled)
    text = _general(blueprint, names, 'python-depends = ["tvm-ffi"]\n' if is_tvm else "")
    table, binding = ("tvm-ffi", f"{_TVM_PACKAGE}/tvm_ffi") if is_tvm else ("torch", f"{_TORCH_PACKAGE}/torch")
    text += f'\n[{table}]\nsrc = ["{binding}_binding.cpp"]\ninclude = ["csrc"]\n'
    if blueprint.abi is Abi.STABLE:
        text += "\n[torch.stable-abi]\n" + "".join(f'{name} = "{_STABLE_ABI}"\n' for name in names)
    depends = "[]" if is_tvm else '["torch"]'
    for part in blueprint.compiled:
        source = f"csrc/gated_silu{_SUFFIXES[part]}"
        text += f'\n[kernel.{part}]\nbackend = "{part}"\ndepends = {depends}\nsrc = ["csrc/gated_silu.h", "{source}"]\n'
    return text


def _sources(blueprint: Blueprint) -> Mapping[str, str]:
    if not blueprint.compiled:
        return {}
    folder = _FOLDERS[blueprint.abi]
    package, binding = (
        (_TVM_PACKAGE, "tvm_ffi_binding.cpp") if blueprint.abi is Abi.TVM_FFI else (_TORCH_PACKAGE, "torch_binding.cpp")
    )
    found = {
        f"{package}/{binding}": _template(f"{folder}/{binding}"),
        "csrc/gated_silu.h": _template(f"{folder}/gated_silu.h"),
    }
    for part in blueprint.compiled:
        name = f"gated_silu{_SUFFIXES[part]}"
        found[f"csrc/{name}"] = _template(f"{folder}/{name}")
    return found


def _packages(blueprint: Blueprint) -> Mapping[str, str]:
    """The Python packages: one for torch, compiled or not, and one for tvm-ffi, whose builds are laid out apart."""
    found: dict[str, str] = {}
    is_tvm = blueprint.abi is Abi.TVM_FFI
    if blueprint.compiled and is_tvm:
        found |= _package(blueprint, _TVM_PACKAGE, _template("tvm_ffi/functional.py"))
    compiled_here = bool(blueprint.compiled) and not is_tvm
    if compiled_here or blueprint.triton_backends:
        imports, registration = _OPS, ""
        if blueprint.triton_backends:
            imports, registration = (_OPS, _ELSE_TRITON) if compiled_here else (f"{_TRITON}\n{_OPS}", "")
            path = f"{_TORCH_PACKAGE}/{blueprint.python_name}/triton_kernel.py"
            found[path] = _template("triton/triton_kernel.py")
        functional = _filled(_template("stable/functional.py"), IMPORTS=imports, REGISTRATION=registration)
        found |= _package(blueprint, _TORCH_PACKAGE, functional)
    return found


def _package(blueprint: Blueprint, parent: str, functional: str) -> Mapping[str, str]:
    folder = f"{parent}/{blueprint.python_name}"
    return {
        f"{folder}/__init__.py": _filled(_template("shared/__init__.py"), NAME=blueprint.name),
        f"{folder}/functional.py": functional,
        f"{folder}/layers.py": _template("shared/layers.py"),
    }
