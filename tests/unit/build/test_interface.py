"""What a kernel offers, read from its sources, and which changes of that break callers."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.build.interface import ApiRecord, Kind, Layer, Parameter
from kernel_hub.build.interface_changes import breaches
from kernel_hub.build.interface_reader import read_api, record_api
from kernel_hub.errors import InvalidDocumentError
from tests.support.fake_kernels import write_fake_kernel

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "audit" / "interface.json").read_text("utf-8"))
SOURCES = {
    "__init__.py": (
        b"from typing import overload\nfrom . import layers\nfrom .parts import scale as scaled\n"
        b"from .parts.more import Thing, twice\n__all__ = ['scaled', 'twice', 'Thing', 'layers']\n__all__ += ['op']\n"
        b"op = make()\ndef hidden(x): ...\n"
    ),
    "parts/__init__.py": b"from .more import *\nif True:\n    def scale(x, /, by=2.0, *, out=None): ...\n",
    "parts/more.py": b"from .. import base\ndef one(x, *xs, **options): ...\ntwice = one\nclass Thing(object): ...\n",
    "base.py": b"",
    "layers.py": (
        b"from torch import nn\nclass _Own(nn.Module): ...\nclass Plain(nn.Module):\n    def forward(self, x): ...\n"
        b"class Wide(Plain):\n    def __init__(self, width=1): ...\nclass Strange(make()): ...\n"
    ),
}  # fmt: skip


def record(text: str, module: str = "") -> ApiRecord:
    """What a module offers that names all its public functions."""
    names = [
        name
        for node in ast.parse(text).body
        for name in (
            [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.ImportFrom)
            else [ast.unparse(target) for target in getattr(node, "targets", [])]
        )
    ]  # fmt: skip
    sources = {"__init__.py": f"__all__ = {names}\n{text}\n".encode(), "m.py": module.encode()}
    return read_api(sources, name="axpy", version=1)


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_a_change_breaks_what_it_is_said_to_break(case: dict[str, Any]) -> None:
    module = case.get("module", "")
    found = breaches(record(case["old"], module), record(case["new"], module))
    assert [[item.subject, item.problem] for item in found] == case["breaches"]
    assert all("general.version" in item.fix for item in found)


def test_what_all_names_is_followed_to_where_it_is_defined() -> None:
    found = read_api(SOURCES, name="axpy", version=3)
    assert (found.name, found.version, list(found.functions)) == ("axpy", 3, ["scaled", "twice", "Thing", "op"])
    assert found.functions["scaled"] == (
        Parameter("x", Kind.POSITIONAL_ONLY), Parameter("by", default="2.0"),
        Parameter("out", Kind.KEYWORD_ONLY, "None"),
    )  # fmt: skip
    assert found.functions["twice"] == (
        Parameter("x"), Parameter("xs", Kind.VAR_POSITIONAL), Parameter("options", Kind.VAR_KEYWORD),
    )  # fmt: skip
    assert (found.functions["Thing"], found.functions["op"]) == ((), None)


def test_layers_are_the_public_classes_with_what_they_take() -> None:
    layers = read_api(SOURCES, name="axpy", version=3).layers
    assert layers == {
        "Plain": Layer((), (Parameter("x"),)),
        "Wide": Layer((Parameter("width", default="1"),), (Parameter("x"),)),
        "Strange": Layer(None, None),
    }


def test_a_layer_that_is_gone_or_changed_is_a_breach_and_a_new_version_may() -> None:
    old = read_api(SOURCES, name="axpy", version=3)
    changed = SOURCES["layers.py"].replace(b"Strange", b"Other").replace(b"self, x", b"self, y")
    new = read_api(SOURCES | {"layers.py": changed}, name="axpy", version=3)
    assert [item.subject for item in breaches(old, new)] == [
        "layers.Plain.forward(x)", "layers.Strange", "layers.Wide.forward(x)",
    ]  # fmt: skip
    assert breaches(old, read_api({"__init__.py": b"__all__ = []"}, name="axpy", version=4)) == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (b"", "is missing"),
        (b"__all__ = sorted(globals())", "is computed"),
        (b"__all__ = ['a', b]", "is computed"),
        (b"__all__ = ['a'\n", "is not Python"),
        (b"\0", "is not Python"),
    ],
)
def test_what_cannot_be_told_is_an_error(entry: bytes, problem: str) -> None:
    with pytest.raises(InvalidDocumentError, match=problem):
        read_api({"__init__.py": entry}, name="axpy", version=1)
    with pytest.raises(InvalidDocumentError, match="is missing"):
        read_api({}, name="axpy", version=1)


@pytest.mark.parametrize(
    "text",
    ["from . import f", "from .m import f", "from .absent import f", "f = g\ng = f", "from ..... import f", "f: int"],
)
def test_names_that_lead_nowhere_or_in_a_circle_are_offered_without_parameters(text: str) -> None:
    sources = {"__init__.py": f"__all__ = ['f']\n{text}".encode(), "m.py": b"from . import f"}
    assert read_api(sources, name="axpy", version=1).functions == {"f": None}


def test_a_class_that_inherits_from_itself_ends() -> None:
    sources = {"__init__.py": b"__all__ = ['A']\nclass A(B): ...\nclass B(A): ..."}
    assert read_api(sources, name="axpy", version=1).functions == {"A": None}


def test_a_build_on_disk_is_recorded_without_being_run(tmp_path: Path) -> None:
    write_fake_kernel(tmp_path, ["torch-cpu"])
    folder = next(path.parent for path in tmp_path.rglob("metadata.json"))
    with (folder / "__init__.py").open("w") as file:
        file.write("\n__all__ = ['late']\nraise SystemExit\ndef late(x): ...\n")
    found = record_api(folder)
    assert (found.name, found.version, found.functions) == ("axpy", 1, {"late": (Parameter("x"),)})


@pytest.mark.parametrize(
    ("content", "location"),
    [
        (b'{"format": 2, "name": "a", "version": 1, "functions": {}, "layers": {}}', "format"),
        (b'{"format": 1, "version": 1, "functions": {}, "layers": {}}', "name"),
        (b'{"format": 1, "name": "a", "version": 1, "functions": [], "layers": {}}', "functions"),
        (b'{"format": 1, "name": "a", "version": 1, "functions": {"f": [{"name": "x", "kind": "k"}]}, "layers": {}}',
         "functions.f[0].kind"),
        (b'{"format": 1, "name": "a", "version": 1, "functions": {}, "layers": {"L": 1}}', "layers.L"),
    ],
)  # fmt: skip
def test_a_malformed_record_names_the_key_at_fault(content: bytes, location: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        ApiRecord.parse(content)
    assert caught.value.location == location


def test_the_reference_shows_a_record_and_every_kind_of_parameter() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "api-record.md").read_text("utf-8")
    example = page.partition("```json\n")[2].partition("```")[0]
    record = ApiRecord.parse(example.encode())
    assert ApiRecord.parse(record.format()) == record
    assert all(f"`{kind}`" in page for kind in Kind)
