"""The page about the package's shape says what the code is."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from kernel_hub import errors
from tests.architecture.test_layers import LAYERS, PACKAGE, layer_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
STAGES = re.findall(r"^\| \w+ \| `(kernel_hub[\w.]+)\.(\w+)` \| `(\w+)` \| (?:`(\w+)`)? ?\|$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| ([0-9.]+) \| `(kernel_hub\.\w+)` \|", PAGE, re.MULTILINE)
PLACES = sorted(set(re.findall(r"`((?:kernel_hub|tests|docs)/[\w./-]+)`", PAGE)))
NAMES = sorted(set(re.findall(r"`(kernel_hub(?:\.\w+)+)`", PAGE)))


@pytest.mark.parametrize(("module", "name", "gives", "raised"), STAGES, ids=[stage[1] for stage in STAGES])
def test_a_stage_gives_what_the_page_says(module: str, name: str, gives: str, raised: str) -> None:
    function = getattr(importlib.import_module(module), name)
    assert inspect.signature(function).return_annotation == gives
    if raised:
        assert issubclass(getattr(errors, raised), errors.KernelHubError)


def test_the_stages_are_all_there_and_each_takes_what_an_earlier_one_gives() -> None:
    assert [name for _, name, _, _ in STAGES] == [
        "resolve",
        "select",
        "narrow",
        "best",
        "fetch",
        "verify",
        "import_artifact",
    ]
    taken = {
        name: {
            str(item.annotation)
            for item in inspect.signature(getattr(importlib.import_module(module), name)).parameters.values()
        }
        for module, name, _, _ in STAGES
    }
    for before, after in (("select", "narrow"), ("narrow", "best"), ("best", "fetch"), ("resolve", "fetch")):
        given = next(gives for _, name, gives, _ in STAGES if name == before)
        assert given in taken[after], f"{after} takes no {given}"
    assert "Artifact" in taken["verify"]
    assert "VerifiedArtifact" in taken["import_artifact"]


def test_the_layers_are_those_that_the_architecture_test_enforces() -> None:
    assert ROWS
    for layer, name in ROWS:
        assert layer_of(name) == float(layer), name
        assert name in LAYERS


def test_every_package_has_a_row() -> None:
    packages = {f"kernel_hub.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= {name for _, name in ROWS}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_that_the_page_names_is_there(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_code_that_the_page_names_is_there(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)
