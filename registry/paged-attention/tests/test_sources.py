"""What the format asks of a kernel's sources: old Python, relative imports, few dependencies, prefixed operators."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parents[1]
MODULES = sorted((KERNEL / "torch-ext" / "paged_attention").glob("*.py"))
REGISTERING = {"custom_op", "register_fake", "register_kernel", "register_autograd", "register_vmap", "triton_op"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_modules_parse_as_python_3_9_and_import_little(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = {str(node.module).partition(".")[0]}
        else:
            continue
        assert roots <= {"torch", "triton"} | set(sys.stdlib_module_names)
        assert "paged_attention" not in roots


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_registered_names_carry_the_builds_own_prefix(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REGISTERING:
            first = node.args[0]
            assert isinstance(first, ast.Call) and isinstance(first.func, ast.Name)
            assert first.func.id == "add_op_namespace_prefix"


def test_both_recipes_describe_one_kernel_and_name_existing_files() -> None:
    native = tomllib.loads((KERNEL / "build.toml").read_text())
    noarch = tomllib.loads((KERNEL / "build.noarch.toml").read_text())
    for key in ("name", "version", "edition", "license"):
        assert native["general"][key] == noarch["general"][key]
    assert not set(native["general"]["backends"]) & set(noarch["general"]["backends"])
    named = {source for component in native["kernel"].values() for source in component["src"]}
    assert named == {str(path.relative_to(KERNEL)) for path in (KERNEL / "csrc").iterdir()}
    assert all((KERNEL / source).is_file() for source in native["torch"]["src"])


def test_the_public_names_are_listed() -> None:
    tree = ast.parse((KERNEL / "torch-ext" / "paged_attention" / "__init__.py").read_text())
    listed = [node for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"]
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(ast.literal_eval(listed[0].value)) == imported
