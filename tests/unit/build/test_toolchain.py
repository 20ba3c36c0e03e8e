"""What the builder finds on a machine: copies of CUTLASS and CUDA toolkits that variables name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.build.command import Layout, compile_steps
from kernel_hub.build.matrix import NativeJob, plan
from kernel_hub.build.toolchain import find_machine
from kernel_hub.build.vendors import find_cutlass
from kernel_hub.errors import InvalidDocumentError, ToolchainError
from kernel_hub.settings import load_build_settings
from tests.unit.build.machines import machine, recipe

VERSION = "#define CUTLASS_MAJOR 3\n#define CUTLASS_MINOR {}\n#define CUTLASS_PATCH 1\n"


def cutlass(folder: Path, minor: int) -> Path:
    (folder / "include" / "cutlass").mkdir(parents=True)
    (folder / "include" / "cutlass" / "version.h").write_text(VERSION.format(minor))
    (folder / "tools" / "util" / "include").mkdir(parents=True)
    return folder


def test_cutlass_is_named_by_what_its_headers_say_and_the_first_of_a_name_counts(tmp_path: Path) -> None:
    one, two, again = (cutlass(tmp_path / name, minor) for name, minor in (("a", 8), ("b", 5), ("c", 8)))
    found = find_cutlass([one, two, again])
    assert [(library.name, library.version, library.root) for library in found] == [
        ("cutlass_3_5", "3.5.1", two), ("cutlass_3_8", "3.8.1", one),
    ]  # fmt: skip
    assert found[0].includes == (two / "include", two / "tools" / "util" / "include")


def test_a_folder_without_cutlass_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="is no copy of CUTLASS"):
        find_cutlass([tmp_path])
    said = load_build_settings({"HOME": str(tmp_path), "CUTLASS_HOME": str(tmp_path)})
    assert f"{tmp_path} is no copy of CUTLASS" in find_machine(said).absent["headers"]


def test_only_components_that_ask_for_a_library_see_its_headers(tmp_path: Path) -> None:
    libraries = find_cutlass([cutlass(tmp_path / "cutlass", 8)])
    text = '[torch]\nstable-abi = "2.11"\n'
    for name, depends in (("with", '"cutlass_3_8"'), ("without", '"torch"')):
        text += f'[kernel.{name}]\nbackend = "cuda"\ndepends = [{depends}]\nsrc = ["{name}.cu"]\n'
    here = replace(machine(cuda=("13.0",)), headers=libraries)
    job = plan({"build.toml": recipe(text, backends='["cuda"]')}, here).jobs[0]
    assert isinstance(job, NativeJob)
    layout = Layout(Path("/k"), Path("/w/include"), Path("/w/objects"), Path("/w/m.so"))
    compiler = here.compiler
    assert compiler is not None
    steps = compile_steps(job, "m", layout, compiler.path, here.python_include)
    seen = {step.name: str(libraries[0].includes[0]) in step.argv for step in steps}
    assert seen == {"with: with.cu": True, "without: without.cu": False}
    # Where the library lies must not show in the output.
    assert all(f"-ffile-prefix-map={libraries[0].root}=cutlass_3_8" in step.argv for step in steps)


def test_a_named_toolkit_that_is_none_is_the_reason_and_no_other_is_taken(tmp_path: Path) -> None:
    said = load_build_settings({"HOME": str(tmp_path), "CUDA_HOME": str(tmp_path)})
    found = find_machine(said)
    assert found.cuda == ()
    assert f"{tmp_path}/bin/nvcc does not answer" in found.absent["cuda"]


def test_variables_that_hold_no_path_are_refused() -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        load_build_settings({"HOME": "/h", "CUDA_HOME": "~nobody-of-that-name/x"})
    assert caught.value.document == "CUDA_HOME"
