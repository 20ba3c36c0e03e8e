"""Records of steps and depfiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.build.command import Step
from kernel_hub.build.records import Records, read_depfile


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a.o: a.cpp b.h\n", ["a.cpp", "b.h"]),
        ("a.o: a.cpp \\\n  b.h \\\n  c.h\n", ["a.cpp", "b.h", "c.h"]),
        ("a.o : a.cpp b.h\n", ["a.cpp", "b.h"]),
        ("a.o: with\\ space.h dollar$$.h hash\\#.h\n", ["with space.h", "dollar$.h", "hash#.h"]),
        ("/a b/c.o: x.cpp\n", ["x.cpp"]),
        ("a.o: a.cpp\n\nb.h:\n", ["a.cpp"]),
        ("", []),
    ],
)
def test_prerequisites_are_read_with_their_escapes(text: str, paths: list[str]) -> None:
    assert read_depfile(text) == paths


def step(folder: Path, *flags: str) -> Step:
    return Step("a", ("cc", *flags), folder, folder / "a.o", folder / "a.o.d")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A step's folder after it has run."""
    (tmp_path / "a.cpp").write_text("int a;")
    (tmp_path / "a.o").write_bytes(b"object")
    (tmp_path / "a.o.d").write_text("a.o: a.cpp\n")
    return tmp_path


def test_a_step_is_current_once_it_is_recorded(folder: Path) -> None:
    assert not Records("cc 1").is_current(step(folder))
    Records("cc 1").remember(step(folder))
    assert Records("cc 1").is_current(step(folder))


def test_another_toolchain_or_argument_makes_it_outdated(folder: Path) -> None:
    Records("cc 1").remember(step(folder, "-O2"))
    assert not Records("cc 2").is_current(step(folder, "-O2"))
    assert not Records("cc 1").is_current(step(folder, "-O3"))


def test_the_modules_name_matters_only_to_those_who_ask_for_it(folder: Path) -> None:
    one, other = step(folder, "-DTORCH_EXTENSION_NAME=_a"), step(folder, "-DTORCH_EXTENSION_NAME=_b")
    Records("cc").remember(one)
    assert Records("cc").is_current(other)
    (folder / "a.cpp").write_text("int TORCH_EXTENSION_NAME;")
    Records("cc").remember(one)
    assert Records("cc").is_current(one)
    assert not Records("cc").is_current(other)


def test_a_missing_input_makes_it_outdated(folder: Path) -> None:
    Records("cc").remember(step(folder))
    (folder / "a.cpp").unlink()
    assert not Records("cc").is_current(step(folder))


def test_a_forgotten_step_is_outdated(folder: Path) -> None:
    Records("cc").remember(step(folder))
    Records("cc").forget(step(folder))
    assert not Records("cc").is_current(step(folder))


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"format": 2}', b'{"format": 1}', b'{"format": 1, "inputs": []}', b"\xff"]
)
def test_a_record_that_cannot_be_read_only_makes_it_outdated(folder: Path, content: bytes) -> None:
    (folder / "a.o.record").write_bytes(content)
    assert not Records("cc").is_current(step(folder))


def test_what_a_compiler_is_run_through_changes_nothing(folder: Path) -> None:
    Records("cc").remember(step(folder))
    assert Records("cc").is_current(replace(step(folder), launcher=("ccache",)))
