"""Every file of `tests/security` names its attack and what stands in the way, because a page is made from them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "security").glob("test_*.py"))


@pytest.fixture(scope="module")
def threat_model() -> ModuleType:
    spec = importlib.util.spec_from_file_location("threat_model", ROOT / "docs" / "threat_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules["threat_model"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_about_an_attack_says_which_and_what_enforces_the_defence(path: Path, threat_model: ModuleType) -> None:
    """The docstring begins with 'Attack: ', and `ENFORCED_BY = "kernel_hub..."` names something that is there."""
    defence = threat_model.defence_of(path)
    assert defence.attack
    assert defence.tests > 0
