"""Attack: a kernel whose metadata gives it the name of something else, to be imported in its place."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.importer import import_artifact
from tests.support.artifacts import verified_build

ENFORCED_BY = "kernel_hub.importer.claims.Importer"


@pytest.mark.parametrize("name", ["json", "torch", "kernel-hub", "numpy"])
def test_a_kernel_cannot_take_the_place_of_another_module(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(name)
    body = f"# {tmp_path}\ndef dumps(value):\n    raise AssertionError('the kernel was called')\n"
    module = import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body}, name=name, id=name)).module
    assert sys.modules.get(name) is before
    assert json.dumps(1) == "1"
    assert module.__name__.startswith(f"{name.replace('-', '_')}_")


@pytest.mark.parametrize("identity", ["../x", "os", "a.b", "x y", "a\0b", "größe"])
def test_the_id_names_no_module_and_no_path(tmp_path: Path, identity: str) -> None:
    before = set(sys.modules)
    verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": f"# {tmp_path}\n"}, id=identity)
    name = import_artifact(verified).module.__name__
    assert set(sys.modules) - before == {name}


@pytest.mark.parametrize("name", ["../axpy", "a.b", "axpy/x", "Axpy", "", "größe", "axpy\n"])
def test_a_name_outside_the_format_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidDocumentError, match="name"):
        verified_build(tmp_path / "torch-cpu", {"__init__.py": ""}, name=name)
