"""The settings page names every variable that is read, and its examples are read as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kernel_hub.settings import load_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
MODULES = ("settings", "overrides", "registries")
_NAME = re.compile(r'"((?:KERNEL_HUB|KERNELS|LOCAL|HF|HUGGING_FACE|XDG|DO_NOT)_[A-Z_]+)"')


def names_in_code() -> set[str]:
    sources = [(ROOT / "kernel_hub" / f"{name}.py").read_text(encoding="utf-8") for name in MODULES]
    return {name for source in sources for name in _NAME.findall(source)}


def test_every_variable_that_is_read_has_a_row_and_no_row_is_of_another() -> None:
    rows = set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE))
    assert {"KERNEL_HUB_REGISTRIES", "KERNEL_HUB_LOCK", "LOCAL_KERNELS"} <= rows
    assert rows == names_in_code()


def exports() -> list[tuple[str, str]]:
    lines = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("export ")]
    pairs = [words[1].partition("=") for words in lines]
    return [(name, value) for name, _, value in pairs]


@pytest.mark.parametrize(("name", "value"), exports())
def test_the_exports_are_understood(tmp_path: Path, name: str, value: str) -> None:
    settings = load_settings({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), name: value}, tmp_path)
    if name == "KERNEL_HUB_REGISTRIES":
        assert settings.registries["acme"].url == "https://kernels.example"
    else:
        assert [override.path for override in settings.overrides] == [tmp_path / "axpy", tmp_path / "moe"]


def test_the_tables_are_understood_and_the_project_comes_before_the_user(tmp_path: Path) -> None:
    project, user = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "pyproject.toml").write_text(project, encoding="utf-8")
    (tmp_path / "config.toml").write_text(user, encoding="utf-8")
    alone = load_settings({"KERNEL_HUB_CONFIG": str(tmp_path / "config.toml")}, tmp_path.parent)
    both = load_settings({"KERNEL_HUB_CONFIG": str(tmp_path / "config.toml")}, tmp_path)
    assert (alone.registries["acme"].token_env, both.registries["acme"].token_env) == (None, "ACME_TOKEN")
    assert both.registries["labs"].folder == (tmp_path / "registry").resolve()
