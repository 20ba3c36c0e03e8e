"""The shape of the code, as rules that a test can hold it to (docs/explanation/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kernel_hub"
MODULES = sorted(PACKAGE.rglob("*.py"))

# Layer of a module, by the longest prefix. Imports go downward only; inside one layer only within one package.
LAYERS = {
    "kernel_hub": 5,
    "kernel_hub.errors": 0,
    "kernel_hub.model": 1,
    "kernel_hub.resolve": 2,
    "kernel_hub.overrides": 2,
    "kernel_hub.places": 1.5,
    "kernel_hub.configuration": 2,
    "kernel_hub.registries": 2.5,
    "kernel_hub.devices": 3.9,
    "kernel_hub.select": 2,
    "kernel_hub.narrow": 2.2,
    "kernel_hub.bundle": 2,
    "kernel_hub.refusal": 2.5,
    "kernel_hub.trust": 2,
    "kernel_hub.build.recipe": 2,
    "kernel_hub.build.blueprint": 2,
    "kernel_hub.build.built_with": 2,
    "kernel_hub.build.jobs": 2,
    "kernel_hub.build.matrix": 2,
    "kernel_hub.build.command": 2,
    "kernel_hub.build.compatibility": 2,
    "kernel_hub.build.cuda": 2,
    "kernel_hub.build.editions": 2,
    "kernel_hub.build.fields": 2,
    "kernel_hub.build.generated": 2,
    "kernel_hub.build.interface": 2,
    "kernel_hub.build.interface_changes": 2,
    "kernel_hub.build.wheel_metadata": 2,
    "kernel_hub.build.machine": 2,
    "kernel_hub.build.offered": 2.1,
    "kernel_hub.build.reader": 2,
    "kernel_hub.build.rocm": 2,
    "kernel_hub.server.wire": 2,
    "kernel_hub.settings": 3,
    "kernel_hub.detect": 3,
    "kernel_hub.tree": 2.5,
    "kernel_hub.writable": 2.5,
    "kernel_hub.cache": 3,
    "kernel_hub.index": 3,
    "kernel_hub.caches": 3.5,
    "kernel_hub.local": 3,
    "kernel_hub.sources": 3.5,
    "kernel_hub.fetch": 3.6,
    "kernel_hub.signatures": 3,
    "kernel_hub.trust_store": 3,
    "kernel_hub.signing": 3.7,
    "kernel_hub.verify": 3.6,
    "kernel_hub.importer": 3.7,
    "kernel_hub.build": 3.8,
    "kernel_hub.locking": 4.15,
    "kernel_hub.locking.files": 3.6,
    "kernel_hub.locking.reading": 3.7,
    "kernel_hub.locking.lookup": 3.8,
    "kernel_hub.locking.holding": 3.9,
    "kernel_hub.admission": 2.5,
    "kernel_hub.redirects": 3.8,
    "kernel_hub.yanks": 3.8,
    "kernel_hub.described": 3.9,
    "kernel_hub.plan": 3.9,
    "kernel_hub.planner": 4,
    "kernel_hub.inspection": 4.1,
    "kernel_hub.loader": 4.1,
    "kernel_hub.api": 4.2,
    "kernel_hub.fallback": 4.3,
    "kernel_hub.server": 4,
    "kernel_hub.cli": 5,
    "kernel_hub.__main__": 6,
}
BANNED_WORDS = {"utils", "helpers", "common", "misc", "base", "manager", "data", "info", "process", "handle"}
MAY_IMPORT_TORCH = ("kernel_hub.detect", "kernel_hub.importer", "kernel_hub.layers", "kernel_hub.bench")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(name: str) -> str:
    """The second-level package of a module, or the module itself."""
    return ".".join(name.split(".")[:2])


def layer_of(name: str) -> float:
    matches = [prefix for prefix in LAYERS if name == prefix or name.startswith(prefix + ".")]
    return LAYERS[max(matches, key=len)]


def imports(path: Path) -> Iterator[tuple[str, ast.AST, bool]]:
    """Every imported module with its node and whether it is imported for types only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or "", node, id(node) in typing_only
            for alias in node.names:
                child = f"{node.module}.{alias.name}"
                if (ROOT / Path(*child.split("."))).with_suffix(".py").exists():
                    yield child, node, id(node) in typing_only


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_downward(path: Path) -> None:
    name = name_of(path)
    for imported, _, typing_only in imports(path):
        if not imported.startswith("kernel_hub") or typing_only or imported in ("kernel_hub", package_of(name)):
            continue
        same_package = package_of(imported) == package_of(name)
        allowed = layer_of(imported) <= layer_of(name) if same_package else layer_of(imported) < layer_of(name)
        assert allowed, f"{name} (layer {layer_of(name)}) imports {imported} (layer {layer_of(imported)})"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_adapters_are_the_only_importers_of_what_they_adapt(path: Path) -> None:
    name = name_of(path)
    for imported, node, typing_only in imports(path):
        top = imported.split(".")[0]
        if top == "huggingface_hub":
            assert name.startswith("kernel_hub.sources.hub"), f"{name} imports huggingface_hub"
        if top in ("torch", "triton") and not typing_only:
            assert name.startswith(MAY_IMPORT_TORCH), f"{name} imports {top}"
            assert node.col_offset > 0, f"{name} imports {top} at module level"
        assert top not in ("registry", "tests", "examples", "kernels"), f"{name} imports {top}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_settings_reads_the_environment_and_only_cli_prints_or_exits(path: Path) -> None:
    name = name_of(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv", "os.environb"):
            assert name == "kernel_hub.settings", f"{name}:{node.lineno} reads the environment"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.exit", "exit", "quit"):
            assert name.startswith(("kernel_hub.cli", "kernel_hub.__main__")), f"{name}:{node.lineno} prints or exits"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_module_names_are_words_of_the_domain_and_modules_are_documented(path: Path) -> None:
    words = set(path.stem.lower().split("_")) | set(path.parent.name.lower().split("_"))
    assert not words & BANNED_WORDS
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_verify_makes_a_verified_artifact(path: Path) -> None:
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("VerifiedArtifact")
    ]
    assert not calls or package_of(name_of(path)) == "kernel_hub.verify"


def test_import_loads_neither_torch_nor_huggingface_hub() -> None:
    program = (
        "import sys, kernel_hub; dir(kernel_hub)\n"
        "heavy = {'torch', 'huggingface_hub', 'httpx', 'httpx2', 'triton', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "kernel_hub.get_kernel, kernel_hub.explain, kernel_hub.Host\n"
        "heavy = {'torch', 'huggingface_hub', 'triton', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, cwd=ROOT)


def test_every_public_name_exists() -> None:
    import kernel_hub

    for name in kernel_hub.__all__:
        assert getattr(kernel_hub, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kernel_hub.no_such_name
