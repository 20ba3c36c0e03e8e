"""Building again: only what changed is compiled, and the result is as if everything had been."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kernel_hub.build.pipeline import build
from kernel_hub.build.reproduce import compare_builds
from kernel_hub.errors import CompileError

LABEL = "torch-stable-abi211-cpu-x86_64-linux"
SOURCES = 10
RECIPE = """
[general]
name = "many"
version = 1
edition = 5
license = "MIT"
backends = ["cpu"]

[torch]
src = ["binding.cpp"]
stable-abi = "2.11"

[kernel.many]
backend = "cpu"
depends = []
src = [{sources}]
include = ["include"]
"""
BINDING = '#include "registration.h"\nREGISTER_EXTENSION(TORCH_EXTENSION_NAME)\n'


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel of ten small sources, two of which include a header, built once."""
    folder = tmp_path / "a folder = ü"
    (folder / "torch-ext" / "many").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "include" / "shared header.h").write_text("#define SHARED 1\n")
    names = [f"part_{index}.cpp" for index in range(SOURCES)]
    for index, name in enumerate(names):
        include = '#include "shared header.h"\n' if index < 2 else ""
        (folder / name).write_text(f"{include}int part_{index}() {{ return {index}; }}\n")
    (folder / "build.toml").write_text(RECIPE.format(sources=", ".join(f'"{name}"' for name in names)))
    (folder / "binding.cpp").write_text(BINDING)
    (folder / "torch-ext" / "many" / "__init__.py").write_text("from . import _ops\n\n__all__ = []\n")
    build(folder)
    return folder


def compiled(folder: Path) -> list[str]:
    """The sources that the last build compiled, by its logs."""
    logs = (folder / ".build-work" / LABEL / "logs").iterdir()
    return sorted(path.name.split("-")[-1].removesuffix(".log") for path in logs if "link" not in path.name)


def afresh(folder: Path, elsewhere: Path) -> bytes:
    """The module of a build from nothing."""
    shutil.copytree(folder, elsewhere, ignore=shutil.ignore_patterns("build", ".build-work"))
    build(elsewhere)
    return module_of(elsewhere)


def module_of(folder: Path) -> bytes:
    return next((folder / "build" / LABEL).glob("*.abi3.so")).read_bytes()


def test_nothing_is_compiled_where_nothing_changed(kernel: Path) -> None:
    before = module_of(kernel)
    build(kernel)
    assert compiled(kernel) == []
    assert module_of(kernel) == before


def test_a_touched_source_is_not_compiled_and_a_changed_one_is(kernel: Path, tmp_path: Path) -> None:
    os.utime(kernel / "part_1.cpp")
    build(kernel)
    assert compiled(kernel) == []
    changed = kernel / "part_3.cpp"
    stamp = changed.stat()
    changed.write_text(changed.read_text().replace("return 3", "return 4"))
    # An old date does not hide a change.
    os.utime(changed, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    build(kernel)
    # The binding is compiled as well: outside git the module's name follows from the contents, and it asks for the name.
    assert compiled(kernel) == ["binding.cpp", "part_3.cpp"]
    assert module_of(kernel) == afresh(kernel, tmp_path / "afresh")


def test_a_changed_header_compiles_those_that_include_it(kernel: Path) -> None:
    (kernel / "include" / "shared header.h").write_text("#define SHARED 2\n")
    build(kernel)
    assert compiled(kernel) == ["binding.cpp", "part_0.cpp", "part_1.cpp"]


def test_a_changed_flag_compiles_its_component(kernel: Path) -> None:
    recipe = kernel / "build.toml"
    recipe.write_text(recipe.read_text() + 'cxx-flags = ["-DMORE"]\n')
    build(kernel)
    assert len(compiled(kernel)) == SOURCES + 1


def test_a_damaged_or_missing_object_is_made_again(kernel: Path) -> None:
    objects = kernel / ".build-work" / LABEL / "objects" / "many"
    (objects / "part_5.cpp.o").write_bytes(b"damaged")
    (objects / "part_6.cpp.o").unlink()
    (objects / "part_7.cpp.o.record").write_text("{")
    build(kernel)
    assert compiled(kernel) == ["part_5.cpp", "part_6.cpp", "part_7.cpp"]


def test_after_a_failure_what_had_succeeded_is_not_compiled_again(kernel: Path) -> None:
    good = (kernel / "part_9.cpp").read_text()
    (kernel / "part_9.cpp").write_text("broken\n")
    (kernel / "part_8.cpp").write_text("int part_8() { return 88; }\n")
    with pytest.raises(CompileError):
        build(kernel, parallel=1)
    (kernel / "part_9.cpp").write_text(good)
    build(kernel)
    assert compiled(kernel) == ["binding.cpp", "part_9.cpp"]


def test_sources_are_compiled_through_ccache_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "one"
    (folder / "torch-ext" / "many").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "build.toml").write_text(RECIPE.format(sources='"part.cpp"'))
    (folder / "part.cpp").write_text("int part() { return 1; }\n")
    (folder / "binding.cpp").write_text(BINDING)
    (folder / "torch-ext" / "many" / "__init__.py").write_text("from . import _ops\n\n__all__ = []\n")
    program, said = tmp_path / "tools" / "ccache", tmp_path / "said"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$CCACHE_COMPILERCHECK $3" >>\'{said}\'\nexec "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    build(folder)
    assert sorted(said.read_text().splitlines()) == ["content binding.cpp", "content part.cpp"]
    said.unlink()
    assert compare_builds(folder).identical
    assert not said.exists()


def test_without_its_working_folder_a_build_starts_from_nothing(kernel: Path) -> None:
    shutil.rmtree(kernel / ".build-work")
    build(kernel)
    assert len(compiled(kernel)) == SOURCES + 1
